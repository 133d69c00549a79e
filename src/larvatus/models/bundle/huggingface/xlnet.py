"""XLNet as `transformers` writes it (Yang et al. 2019): `XLNetLMHeadModel`, `XLNetModel`, …

Differences of form, none of substance: they keep query, key, value, output and distance matrices as [D, heads, size of
a head], and vectors by head. They have one dropout for everything, and so has ours. Distances have no limit there; how
long sequences may be, ours says in a field of its own, `larvatus_max_positions`. `mem_len` is our `memory`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from torch import Tensor

from larvatus.core.errors import ArtefactError
from larvatus.core.ranges import Deviation, DropoutRate, Epsilon, Layers, Size, SizeOrNone
from larvatus.models.bundle.huggingface.bert import ACTIVATIONS
from larvatus.models.bundle.huggingface.layout import Architecture, convert, promised_heads
from larvatus.models.bundle.huggingface.task_heads import LAST, TOKENS, TaskHead, TaskHeads
from larvatus.models.network import tag
from larvatus.models.nn.xlnet import XLNetConfig
from larvatus.models.objectives import PermutationLMConfig

BLOCK = {
    "attention.qkv.weight": ("rel_attn.q", "rel_attn.k", "rel_attn.v"),
    "attention.out.weight": ("rel_attn.o",),
    "attention.distances.weight": ("rel_attn.r",),
    "attention.to_content": ("rel_attn.r_w_bias",),
    "attention.to_distance": ("rel_attn.r_r_bias",),
    "attention.to_segment": ("rel_attn.r_s_bias",),
    "attention.segments": ("rel_attn.seg_embed",),
    "attention_norm.weight": ("rel_attn.layer_norm.weight",),
    "attention_norm.bias": ("rel_attn.layer_norm.bias",),
    "feedforward.up.weight": ("ff.layer_1.weight",),
    "feedforward.up.bias": ("ff.layer_1.bias",),
    "feedforward.down.weight": ("ff.layer_2.weight",),
    "feedforward.down.bias": ("ff.layer_2.bias",),
    "feedforward_norm.weight": ("ff.layer_norm.weight",),
    "feedforward_norm.bias": ("ff.layer_norm.bias",),
}
WORDS, UNKNOWN, BIAS = "transformer.word_embedding.weight", "transformer.mask_emb", "lm_loss.bias"
TURNED = ("q", "k", "v", "r")
"""Theirs are multiplied from the left, so ours are these transposed."""
VECTORS = ("r_w_bias", "r_r_bias", "r_s_bias")
TASKS = TaskHeads(
    "XLNet",
    {
        "classification": TaskHead(
            names={"dense": "sequence_summary.summary", "classifier": "logits_proj"},
            fixed=LAST | {"dense": "tanh"},
            fields={"dropout": "summary_last_dropout"},
            dropout=0.1,
        ),
        "tagging": TaskHead(names={"classifier": "classifier"}, fixed=TOKENS, fields={}),
    },
)
ARCHITECTURES = {"XLNetLMHeadModel": ("permutation-lm",), "XLNetModel": (), **TASKS.architectures}


class XLNetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of their config.json that change what is computed, with their defaults; the others are left alone."""

    vocab_size: Size = 32000
    d_model: Size = 1024
    n_layer: Layers = 24
    n_head: Size = 16
    d_inner: Size = 4096
    d_head: Size | None = None
    ff_activation: Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"] = "gelu"
    attn_type: Literal["bi"] = "bi"
    initializer_range: Deviation = 0.02
    layer_norm_eps: Epsilon = 1e-12
    dropout: DropoutRate = 0.1
    mem_len: SizeOrNone | None = 512
    bi_data: Literal[False] = False
    clamp_len: Literal[-1, 0] = -1
    same_length: Literal[False] = False
    untie_r: Literal[True] = True
    summary_type: Literal["last"] = "last"
    summary_use_proj: Literal[True] = True
    summary_activation: Literal["tanh"] = "tanh"
    tie_word_embeddings: Literal[True] = True
    larvatus_max_positions: Size = 512
    architectures: tuple[str, ...] | None = ()


class XLNet:
    model_type = "xlnet"
    aliases: Mapping[str, str] = {"lm_loss.weight": WORDS}
    spare: frozenset[str] = frozenset()
    tasks = TASKS
    pad: int | None = None

    def refusal(self, architecture: Architecture) -> str | None:
        model, heads = architecture.model, {tag(config) for config in architecture.objectives}
        if not isinstance(model, XLNetConfig):
            return f'XLNet has no model.type = "{model.__struct_config__.tag}"'
        if refused := TASKS.refusal(architecture.objectives):
            return refused
        if unknown := sorted(heads - {"permutation-lm", *TASKS.heads}):
            return f"XLNet has no head for {unknown[0]}"
        return None

    def config(self, architecture: Architecture, *, pad: int | None) -> dict[str, Any]:
        model, heads = architecture.model, tuple(tag(config) for config in architecture.objectives)
        assert isinstance(model, XLNetConfig)
        return {
            "model_type": self.model_type,
            "architectures": [next(name for name, tags in ARCHITECTURES.items() if tags == heads)],
            "vocab_size": architecture.vocabulary,
            "d_model": model.hidden,
            "n_layer": model.layers,
            "n_head": model.heads,
            "d_head": model.hidden // model.heads,
            "d_inner": model.inner,
            "ff_activation": next(theirs for theirs, ours in ACTIVATIONS.items() if ours == model.activation),
            "attn_type": "bi",
            "dropout": model.dropout,
            "initializer_range": model.init,
            "layer_norm_eps": model.norm_epsilon,
            "mem_len": model.memory or None,
            "summary_type": "last",
            "summary_use_proj": True,
            "summary_activation": "tanh",
            "tie_word_embeddings": True,
            "larvatus_max_positions": model.max_positions,
            "pad_token_id": pad,
            "dtype": "float32",
            **TASKS.config(architecture.objectives),
        }

    def architecture(self, config: Mapping[str, Any], *, source: Path, names: frozenset[str]) -> Architecture:
        theirs: XLNetSettings = convert(config, XLNetSettings, source)
        if theirs.d_head is not None and theirs.d_head * theirs.n_head != theirs.d_model:
            raise ArtefactError(
                f"{source}: d_head = {theirs.d_head} times n_head = {theirs.n_head} is not d_model = {theirs.d_model}"
            )
        model = {
            "type": "xlnet",
            "layers": theirs.n_layer,
            "hidden": theirs.d_model,
            "heads": theirs.n_head,
            "feedforward": 0 if theirs.d_inner == 4 * theirs.d_model else theirs.d_inner,
            "activation": ACTIVATIONS[theirs.ff_activation],
            "norm_epsilon": theirs.layer_norm_eps,
            "max_positions": theirs.larvatus_max_positions,
            "memory": theirs.mem_len or 0,
            "dropout": theirs.dropout,
            "init": theirs.initializer_range,
        }
        promised = promised_heads(theirs.architectures, ARCHITECTURES, source)
        tasks = TASKS.objectives(config, promised, dropout=theirs.dropout, source=source)
        predicts = "permutation-lm" in promised or BIAS in names
        return Architecture(
            model=convert(model, XLNetConfig, source),
            objectives=tasks or ((PermutationLMConfig(),) if predicts else ()),
            vocabulary=theirs.vocab_size,
        )

    def theirs(self, ours: str) -> tuple[str, ...]:
        match ours.split("."):
            case ["encoder", "embeddings", "words", "weight"]:
                return (WORDS,)
            case ["encoder", "query", "unknown"]:
                return (UNKNOWN,)
            case ["encoder", "blocks", i, *part]:
                return tuple(f"transformer.layer.{i}.{name}" for name in BLOCK[".".join(part)])
            case ["objectives", "permutation-lm", "bias"]:
                return (BIAS,)
            case ["objectives", head, *part] if head in TASKS.heads:
                return TASKS.theirs(head, ".".join(part))
        raise KeyError(ours)

    def canonical(self, name: str) -> str | None:
        return f"transformer.{name}" if name.startswith(("word_embedding.", "mask_emb", "layer.")) else name

    def recast(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        by_head = {place: segments.shape[1:] for place, segments in _segments(tensors).items()}
        recast = {}
        for name, tensor in tensors.items():
            place, _, part = name.rpartition(".")
            if name == UNKNOWN:
                recast[name] = tensor.view(1, 1, -1)
            elif place not in by_head:
                recast[name] = tensor
            elif part in VECTORS:
                recast[name] = tensor.view(*by_head[place])
            else:  # o stays as it is
                turned = tensor.T if part in TURNED else tensor
                recast[name] = tensor if part == "seg_embed" else turned.reshape(-1, *by_head[place])
        return recast

    def restored(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        blocks = _segments(tensors)
        restored = {}
        for name, tensor in tensors.items():
            place, _, part = name.rpartition(".")
            if name == UNKNOWN or (place in blocks and part in VECTORS):
                restored[name] = tensor.flatten()
            elif place not in blocks or part == "seg_embed":
                restored[name] = tensor
            else:
                restored[name] = tensor.flatten(1).T if part in TURNED else tensor.flatten(1)
        return restored


def _segments(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The vectors of segments [2, heads, size of a head] of each block, by where it stands."""
    end = ".seg_embed"
    return {name.removesuffix(end): tensor for name, tensor in tensors.items() if name.endswith(end)}
