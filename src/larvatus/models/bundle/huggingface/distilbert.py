"""DistilBERT as `transformers` writes it (Sanh et al. 2019): `DistilBertForMaskedLM`, `DistilBertModel`.

BERT without segments and without a pooler, under names of its own. Its positions are learnt or sines
(`sinusoidal_pos_embds`), but stand in the file either way, so they are read alike and written as learnt ones. Norms
always add 1e-12. In training, its dropout after attention is ours to add: theirs has none there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from larvatus.core.errors import ArtefactError
from larvatus.core.ranges import Deviation, DropoutRate, Layers, Size
from larvatus.models.bundle.huggingface.bert import ACTIVATIONS
from larvatus.models.bundle.huggingface.layout import Architecture, convert, misfits, promised_heads, transformer_of
from larvatus.models.bundle.huggingface.task_heads import CLS, ENDS, TOKENS, TaskHead, TaskHeads
from larvatus.models.network import tag
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig

EMBEDDINGS = {"words": "word_embeddings", "positions": "position_embeddings", "norm": "LayerNorm"}
BLOCK = {
    "attention.qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "attention.out": ("attention.out_lin",),
    "attention_norm": ("sa_layer_norm",),
    "feedforward.up": ("ffn.lin1",),
    "feedforward.down": ("ffn.lin2",),
    "feedforward_norm": ("output_layer_norm",),
}
HEAD = {"dense": "vocab_transform", "norm": "vocab_layer_norm", "": "vocab_projector"}
TASKS = TaskHeads(
    "DistilBert",
    {
        "classification": TaskHead(
            names={"dense": "pre_classifier", "classifier": "classifier"},
            fixed=CLS | {"dense": "relu"},
            fields={"dropout": "seq_classif_dropout"},
            dropout=0.2,
        ),
        "tagging": TaskHead(names={"classifier": "classifier"}, fixed=TOKENS, fields={}),
        "answering": TaskHead(
            names={"classifier": "qa_outputs"}, fixed=ENDS, fields={"dropout": "qa_dropout"}, dropout=0.1
        ),
    },
)
ARCHITECTURES = {"DistilBertForMaskedLM": ("masked-lm",), "DistilBertModel": (), **TASKS.architectures}
FREE = frozenset(
    {"layers", "hidden", "heads", "feedforward", "activation", "max_positions"}
    | {"dropout", "attention_dropout", "init"}
)
FIXED = {"segments": 0, "norm_epsilon": 1e-12}


class DistilBertSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of their config.json that change what is computed, with their defaults; the others are left alone."""

    vocab_size: Size = 30522
    dim: Size = 768
    n_layers: Layers = 6
    n_heads: Size = 12
    hidden_dim: Size = 3072
    activation: Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"] = "gelu"
    dropout: DropoutRate = 0.1
    attention_dropout: DropoutRate = 0.1
    max_position_embeddings: Size = 512
    initializer_range: Deviation = 0.02
    tie_word_embeddings: Literal[True] = True
    pruned_heads: dict[str, Any] = {}
    architectures: tuple[str, ...] | None = ()


class DistilBert:
    model_type = "distilbert"
    aliases: Mapping[str, str] = {"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"}
    spare: frozenset[str] = frozenset()
    tasks = TASKS

    def refusal(self, architecture: Architecture) -> str | None:
        if misfit := misfits(architecture.model, FREE, FIXED):
            return f"DistilBERT has no {misfit}"
        if refused := TASKS.refusal(architecture.objectives):
            return refused
        if unknown := sorted({tag(config) for config in architecture.objectives} - {"masked-lm", *TASKS.heads}):
            return f"DistilBERT has no head for {unknown[0]}"
        return None

    def config(self, architecture: Architecture, *, pad: int | None) -> dict[str, Any]:
        model, heads = transformer_of(architecture), tuple(tag(config) for config in architecture.objectives)
        return {
            "model_type": self.model_type,
            "architectures": [next(name for name, tags in ARCHITECTURES.items() if tags == heads)],
            "vocab_size": architecture.vocabulary,
            "dim": model.hidden,
            "n_layers": model.layers,
            "n_heads": model.heads,
            "hidden_dim": model.inner,
            "activation": next(theirs for theirs, ours in ACTIVATIONS.items() if ours == model.activation),
            "dropout": model.dropout,
            "attention_dropout": model.attention_dropout,
            "max_position_embeddings": model.max_positions,
            "sinusoidal_pos_embds": False,
            "initializer_range": model.init,
            "tie_word_embeddings": True,
            "pad_token_id": pad,
            "dtype": "float32",
            **TASKS.config(architecture.objectives),
        }

    def architecture(self, config: Mapping[str, Any], *, source: Path, names: frozenset[str]) -> Architecture:
        theirs: DistilBertSettings = convert(config, DistilBertSettings, source)
        if theirs.pruned_heads:
            raise ArtefactError(f"{source}: pruned_heads is set, and pruned attention heads are not supported")
        model = FIXED | {
            "layers": theirs.n_layers,
            "hidden": theirs.dim,
            "heads": theirs.n_heads,
            "feedforward": 0 if theirs.hidden_dim == 4 * theirs.dim else theirs.hidden_dim,
            "activation": ACTIVATIONS[theirs.activation],
            "max_positions": theirs.max_position_embeddings,
            "dropout": theirs.dropout,
            "attention_dropout": theirs.attention_dropout,
            "init": theirs.initializer_range,
        }
        promised = promised_heads(theirs.architectures, ARCHITECTURES, source)
        tasks = TASKS.objectives(config, promised, dropout=theirs.dropout, source=source)
        fills = "masked-lm" in promised or any(name.startswith("vocab_transform.") for name in names)
        return Architecture(
            model=convert(model, TransformerConfig, source),
            objectives=tasks or ((MaskedLMConfig(),) if fills else ()),
            vocabulary=theirs.vocab_size,
        )

    def theirs(self, ours: str) -> tuple[str, ...]:
        place, _, kind = ours.rpartition(".")
        match place.split("."):
            case ["encoder", "embeddings", part]:
                return (f"distilbert.embeddings.{EMBEDDINGS[part]}.{kind}",)
            case ["encoder", "blocks", i, *part]:
                return tuple(f"distilbert.transformer.layer.{i}.{name}.{kind}" for name in BLOCK[".".join(part)])
            case ["objectives", head, *part] if head in TASKS.heads:
                return TASKS.theirs(head, ".".join([*part, kind]))
            case ["objectives", "masked-lm", *part]:
                return (f"{HEAD['.'.join(part)]}.{kind}",)
        raise KeyError(ours)

    def canonical(self, name: str) -> str | None:
        if name.endswith("position_ids"):  # a constant that older versions saved as a buffer
            return None
        return f"distilbert.{name}" if name.startswith(("embeddings.", "transformer.")) else name
