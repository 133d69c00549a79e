"""Our weights, or their gradients, under the names that BERT-like models of `transformers` have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor

from larvatus.models.nn.transformer import TransformerConfig


def their_sizes(config: TransformerConfig) -> dict[str, Any]:
    """Fields of a config of theirs without dropout."""
    sizes = {"hidden_size": config.hidden, "intermediate_size": config.inner}
    sizes |= {"num_hidden_layers": config.layers, "num_attention_heads": config.heads}
    sizes |= {"max_position_embeddings": config.max_positions}
    return {**sizes, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def named_tensors(
    layers: Mapping[str, Any], blocks: Iterable[Any], prefix: str, get: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    """Parameters of the given layers, and of every block; names are written out once more."""
    layers, out = dict(layers), {}
    for i, block in enumerate(blocks):
        place = f"{prefix}.encoder.layer.{i}"
        layers[f"{place}.attention.output.dense"] = block.attention.out
        layers[f"{place}.attention.output.LayerNorm"] = block.attention_norm
        layers[f"{place}.intermediate.dense"] = block.feedforward.up
        layers[f"{place}.output.dense"] = block.feedforward.down
        layers[f"{place}.output.LayerNorm"] = block.feedforward_norm
        for kind, fused in block.attention.qkv.named_parameters():
            for part, third in zip(("query", "key", "value"), get(fused).chunk(3), strict=True):
                out[f"{place}.attention.self.{part}.{kind}"] = third
    for place, layer in layers.items():
        out |= {f"{place}.{kind}": get(parameter) for kind, parameter in layer.named_parameters()}
    return out
