"""ModernBERT as `transformers` stores it (Warner et al. 2024): `ModernBertForMaskedLM`, `ModernBertModel`.

Pre-norm, rotary positions, a gated feedforward layer, no segments. Query, key and value are one matrix in our order,
and so are the two halves of the feedforward layer, so every tensor is one of ours. The output matrix is tied to the
word embeddings. Older files state the layers with global attention and the rotary bases in other fields
(`global_attn_every_n_layers`, `global_rope_theta`): both forms are read, and the layers are written in both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from larvatus.core.errors import ArtefactError
from larvatus.core.ranges import Deviation, DropoutRate, Epsilon, Layers, RotaryBase, Size, check_ranges
from larvatus.models.bundle.huggingface.bert_like import BertLike
from larvatus.models.bundle.huggingface.config_table import ConfigField, ConfigTable, choice, size
from larvatus.models.bundle.huggingface.layout import OWN_TOKENS, Architecture
from larvatus.models.bundle.huggingface.task_heads import ENDS, TOKENS, TaskHead, three_heads
from larvatus.models.network import tag
from larvatus.models.nn.transformer import TransformerConfig

DENSE = {"dense": "gelu", "dense_norm": True}  # in all heads
HEAD = TaskHead(
    names={"dense": "head.dense", "norm": "head.norm", "classifier": "classifier"},
    fixed=DENSE,
    fields={"dropout": "classifier_dropout"},
    dropout=0.0,
)
ACTIVATIONS = {"gelu": "gelu", "gelu_pytorch_tanh": "gelu-tanh", "gelu_new": "gelu-tanh", "relu": "relu"}
LOCAL_ATTENTION = 128
BIASES = ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias")
DROPOUTS = ("attention_dropout", "embedding_dropout", "mlp_dropout")
WIDE, NARROW = "full_attention", "sliding_attention"
Activation = Literal["gelu", "gelu_pytorch_tanh", "gelu_new", "relu"]


class Rope(msgspec.Struct, frozen=True, kw_only=True):
    rope_type: Literal["default"] = "default"
    rope_theta: RotaryBase | None = None

    def __post_init__(self) -> None:
        check_ranges(self, "")


class ModernBertSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of config.json that change the computation, with their defaults; other fields are ignored."""

    vocab_size: Size = 50368
    hidden_size: Size = 768
    num_hidden_layers: Layers = 22
    num_attention_heads: Size = 12
    intermediate_size: Size = 1152
    hidden_activation: Activation = "gelu"
    classifier_activation: Activation = "gelu"
    max_position_embeddings: Size = 8192
    initializer_range: Deviation = 0.02
    norm_eps: Epsilon = 1e-5
    norm_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    classifier_bias: bool = False
    decoder_bias: Literal[True] = True
    attention_dropout: DropoutRate = 0.0
    embedding_dropout: DropoutRate = 0.0
    mlp_dropout: DropoutRate = 0.0
    local_attention: Size = LOCAL_ATTENTION
    global_attn_every_n_layers: Layers = 3
    layer_types: tuple[Literal["full_attention", "sliding_attention"], ...] | None = None
    rope_parameters: dict[str, Rope | None] | None = None
    rope_scaling: None = None
    classifier_pooling: Literal["cls", "mean"] = "cls"
    global_rope_theta: RotaryBase = 160_000.0
    local_rope_theta: RotaryBase | None = 10_000.0
    tie_word_embeddings: Literal[True] = True
    architectures: tuple[str, ...] | None = ()


class ModernBert(BertLike):
    model_type, family = "modernbert", "ModernBERT"
    settings = ModernBertSettings
    table = ConfigTable(
        TransformerConfig,
        {
            "hidden_size": "hidden",
            "num_hidden_layers": "layers",
            "num_attention_heads": "heads",
            "intermediate_size": size("feedforward", "inner"),
            "hidden_activation": choice("activation", ACTIVATIONS),
            "max_position_embeddings": "max_positions",
            "initializer_range": "init",
            "norm_eps": "norm_epsilon",
            "norm_bias": "biases",
            "local_attention": ConfigField(
                "local_attention", lambda value: value, lambda model: model.local_attention or LOCAL_ATTENTION
            ),
            "global_attn_every_n_layers": "global_every",
            "global_rope_theta": "rotary_base",
            "local_rope_theta": "rotary_base_local",
        },
        fixed={"norm": "pre", "positions": "rotary", "segments": 0, "gated": True, "first_norm": False}
        | {"dropout": 0.0, "attention_dropout": 0.0},  # theirs is inside the feedforward layer, and twice in attention
        constants={"decoder_bias": True, "tie_word_embeddings": True, **dict.fromkeys(DROPOUTS, 0.0)}
        | dict.fromkeys((*OWN_TOKENS, "cls_token_id", "sep_token_id")),
    )
    prefix, layer = "model", "layers.{}"
    embeddings: Mapping[str, str] = {"words": "tok_embeddings", "norm": "norm"}
    block: Mapping[str, tuple[str, ...]] = {
        "attention.qkv": ("attn.Wqkv",),
        "attention.out": ("attn.Wo",),
        "attention_norm": ("attn_norm",),
        "feedforward.up": ("mlp.Wi",),
        "feedforward.down": ("mlp.Wo",),
        "feedforward_norm": ("mlp_norm",),
    }
    modules: Mapping[str, str] = {"encoder.final_norm": "model.final_norm"}
    heads: Mapping[str, Mapping[str, str]] = {"masked-lm": {"dense": "head.dense", "norm": "head.norm", "": "decoder"}}
    tasks = three_heads(
        "ModernBert",
        dataclasses.replace(HEAD, fixed={**DENSE, "mix": False}, fields={**HEAD.fields, "pool": "classifier_pooling"}),
        tagging=dataclasses.replace(HEAD, fixed=TOKENS | DENSE),
        answering=dataclasses.replace(HEAD, fixed=ENDS | DENSE),
    )
    pretraining: Mapping[str, tuple[str, ...]] = {"ModernBertForMaskedLM": ("masked-lm",), "ModernBertModel": ()}
    aliases: Mapping[str, str] = {"decoder.weight": "model.embeddings.tok_embeddings.weight"}
    optional: frozenset[str] = frozenset()
    roots = ("embeddings.", "layers.", "final_norm.")
    buffers = ("inv_freq",)

    def unsupported(self, architecture: Architecture) -> str | None:
        activation = architecture.model.activation
        if refused := super().unsupported(architecture):
            return refused
        if activation != "gelu" and any(tag(config) in self.tasks.heads for config in architecture.objectives):
            return f"ModernBERT's classifier has the activation of its layers, and ours needs a GELU, not {activation}"
        return None

    def config(self, architecture: Architecture, *, pad: int | None) -> dict[str, Any]:
        config, model = super().config(architecture, pad=pad), architecture.model
        bases = {WIDE: config.pop("global_rope_theta"), NARROW: config.pop("local_rope_theta")}
        return config | {
            "classifier_activation": config["hidden_activation"],
            **dict.fromkeys(BIASES, config["norm_bias"]),
            "layer_types": list(_layer_types(model.layers, config["global_attn_every_n_layers"])),
            "rope_parameters": {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()},
        }

    def architecture(self, config: Mapping[str, Any], *, source: Path, names: frozenset[str]) -> Architecture:
        architecture = super().architecture(config, source=source, names=names)
        classifier = config.get("classifier_activation", "gelu")
        if classifier != "gelu" and any(tag(each) in self.tasks.heads for each in architecture.objectives):
            raise ArtefactError(
                f"{source}: classifier_activation = {classifier!r} is not supported in a head that classifies; gelu is"
            )
        return architecture

    def read_settings(self, config: Mapping[str, Any], source: Path) -> ModernBertSettings:
        """Windows and rotary bases are resolved to the fields that the table reads."""
        theirs: ModernBertSettings = super().read_settings(config, source)
        _check(theirs, source)
        every, window = _windows(theirs, source)
        return msgspec.structs.replace(
            theirs,
            local_attention=window,
            global_attn_every_n_layers=every,
            global_rope_theta=_base(theirs, WIDE),
            local_rope_theta=_base(theirs, NARROW),
        )


def _check(theirs: ModernBertSettings, source: Path) -> None:
    """Refuse what their fields can state and our transformer cannot express."""
    if len({getattr(theirs, name) for name in BIASES}) > 1:
        raise ArtefactError(f"{source}: {', '.join(BIASES)} differ, and biases in some layers only are not supported")
    for name in DROPOUTS:
        if getattr(theirs, name):
            raise ArtefactError(f"{source}: {name} is not 0, and dropout in that place is not supported; set it to 0")
    if ACTIVATIONS[theirs.hidden_activation] != ACTIVATIONS[theirs.classifier_activation]:
        raise ArtefactError(f"{source}: hidden_activation and classifier_activation differ, which is not supported")


def _windows(theirs: ModernBertSettings, source: Path) -> tuple[int, int]:
    """Every how many layers attention is global, and the window of the others; `layer_types` decides if it is there."""
    layers, every = theirs.num_hidden_layers, theirs.global_attn_every_n_layers
    if theirs.layer_types is not None and len(theirs.layer_types) != layers:
        raise ArtefactError(f"{source}: layer_types has {len(theirs.layer_types)} entries for {layers} layers")
    if every < 1:
        raise ArtefactError(f"{source}: global_attn_every_n_layers = {every} must be at least 1")
    if theirs.layer_types is not None:
        kinds = theirs.layer_types
        second = kinds.index(WIDE, 1) if WIDE in kinds[1:] else max(layers, 2)
        every = next((n for n in (every, second) if kinds == _layer_types(layers, n)), 0)
        if not every:
            raise ArtefactError(f"{source}: layer_types must be {WIDE} in layers 0, n, 2n … and {NARROW} in the others")
    if every == 1:
        return 1, 0
    if theirs.local_attention < 2:
        raise ArtefactError(f"{source}: local_attention = {theirs.local_attention} must be at least 2")
    return every, theirs.local_attention // 2 * 2


def _layer_types(layers: int, every: int) -> tuple[str, ...]:
    return tuple(NARROW if layer % every else WIDE for layer in range(layers))


def _base(theirs: ModernBertSettings, kind: str) -> float:
    rope = (theirs.rope_parameters or {}).get(kind)
    if rope is not None and rope.rope_theta is not None:
        return rope.rope_theta
    # older configs have null where local layers have the base of the others
    return theirs.global_rope_theta if kind == WIDE or theirs.local_rope_theta is None else theirs.local_rope_theta
