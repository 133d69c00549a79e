"""ModernBERT as `transformers` writes it (Warner et al. 2024): `ModernBertForMaskedLM`, `ModernBertModel`.

Pre-norm, rotary positions, a gated feedforward layer, no segments. Query, key and value stand in one matrix in our
order, and so do the two halves of the feedforward layer, so every tensor is one of ours. The output matrix is tied to
the word embeddings. Older files name the layers of global attention and the bases of the angles in other fields
(`global_attn_every_n_layers`, `global_rope_theta`): both forms are read, and the layers are written in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from larvatus.core.errors import ArtefactError
from larvatus.core.ranges import Deviation, DropoutRate, Epsilon, Layers, RotaryBase, Size, check_ranges
from larvatus.models.bundle.huggingface.layout import Architecture, convert, misfits, promised_heads, transformer_of
from larvatus.models.bundle.huggingface.task_heads import ENDS, TOKENS, TaskHead, TaskHeads
from larvatus.models.network import ObjectiveConfig, tag
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig

BLOCK = {
    "attention.qkv": "attn.Wqkv",
    "attention.out": "attn.Wo",
    "attention_norm": "attn_norm",
    "feedforward.up": "mlp.Wi",
    "feedforward.down": "mlp.Wo",
    "feedforward_norm": "mlp_norm",
}
EMBEDDINGS = {"words": "tok_embeddings", "norm": "norm"}
HEAD = {"dense": "head.dense", "norm": "head.norm", "": "decoder"}
DENSE = {"dense": "gelu", "dense_norm": True}  # in all heads
HEAD_NAMES = {"dense": "head.dense", "norm": "head.norm", "classifier": "classifier"}
TASKS = TaskHeads(
    "ModernBert",
    {
        "classification": TaskHead(
            names=HEAD_NAMES,
            fixed={**DENSE, "mix": False},
            fields={"dropout": "classifier_dropout", "pool": "classifier_pooling"},
            dropout=0.0,
        ),
        "tagging": TaskHead(
            names=HEAD_NAMES, fixed=TOKENS | DENSE, fields={"dropout": "classifier_dropout"}, dropout=0.0
        ),
        "answering": TaskHead(
            names=HEAD_NAMES, fixed=ENDS | DENSE, fields={"dropout": "classifier_dropout"}, dropout=0.0
        ),
    },
)
ARCHITECTURES = {"ModernBertForMaskedLM": ("masked-lm",), "ModernBertModel": (), **TASKS.architectures}
ACTIVATIONS = {"gelu": "gelu", "gelu_pytorch_tanh": "gelu-tanh", "gelu_new": "gelu-tanh", "relu": "relu"}
FIXED = {"norm": "pre", "positions": "rotary", "segments": 0, "gated": True, "first_norm": False} | {
    "dropout": 0.0,  # theirs stands in other places: inside the feedforward layer, and twice in attention
    "attention_dropout": 0.0,
}
"""Settings of our transformer that their config.json has no field for."""
FREE = frozenset(
    {"layers", "hidden", "heads", "feedforward", "activation", "norm_epsilon", "max_positions", "init", "biases"}
    | {"rotary_base", "rotary_base_local", "local_attention", "global_every"}
)
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
    """The fields of their config.json that change what is computed, with their defaults; the others are left alone."""

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
    local_attention: Size = 128
    global_attn_every_n_layers: Layers = 3
    layer_types: tuple[Literal["full_attention", "sliding_attention"], ...] | None = None
    rope_parameters: dict[str, Rope | None] | None = None
    rope_scaling: None = None
    classifier_pooling: Literal["cls", "mean"] = "cls"
    global_rope_theta: RotaryBase = 160_000.0
    local_rope_theta: RotaryBase | None = 10_000.0
    tie_word_embeddings: Literal[True] = True
    architectures: tuple[str, ...] | None = ()


class ModernBert:
    model_type = "modernbert"
    aliases: Mapping[str, str] = {"decoder.weight": "model.embeddings.tok_embeddings.weight"}
    spare: frozenset[str] = frozenset()
    tasks = TASKS

    def refusal(self, architecture: Architecture) -> str | None:
        if misfit := misfits(architecture.model, FREE, FIXED):
            return f"ModernBERT has no {misfit}"
        if refused := TASKS.refusal(architecture.objectives):
            return refused
        heads = {tag(config) for config in architecture.objectives}
        if unknown := sorted(heads - {"masked-lm", *TASKS.heads}):
            return f"ModernBERT has no head for {unknown[0]}"
        if heads & TASKS.heads.keys() and architecture.model.activation != "gelu":
            return (
                f"ModernBERT's classifier has a GELU only if model.activation, {architecture.model.activation}, is one"
            )
        return None

    def config(self, architecture: Architecture, *, pad: int | None) -> dict[str, Any]:
        model, heads = transformer_of(architecture), tuple(tag(config) for config in architecture.objectives)
        activation = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == model.activation)
        bases = {WIDE: model.rotary_base, NARROW: model.rotary_base_local}
        return {
            "model_type": self.model_type,
            "architectures": [next(name for name, tags in ARCHITECTURES.items() if tags == heads)],
            "vocab_size": architecture.vocabulary,
            "hidden_size": model.hidden,
            "num_hidden_layers": model.layers,
            "num_attention_heads": model.heads,
            "intermediate_size": model.inner,
            "hidden_activation": activation,
            "classifier_activation": activation,
            "max_position_embeddings": model.max_positions,
            "initializer_range": model.init,
            "norm_eps": model.norm_epsilon,
            **dict.fromkeys(BIASES, model.biases),
            "decoder_bias": True,
            **dict.fromkeys(DROPOUTS, 0.0),
            "local_attention": model.local_attention or ModernBertSettings().local_attention,
            "global_attn_every_n_layers": model.global_every,
            "layer_types": [NARROW if model.window(layer) else WIDE for layer in range(model.layers)],
            "rope_parameters": {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()},
            "tie_word_embeddings": True,
            "pad_token_id": pad,
            # theirs are ids of the published vocabulary; the tokenizer beside the model knows its own
            **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")),
            "dtype": "float32",
            **TASKS.config(architecture.objectives),
        }

    def architecture(self, config: Mapping[str, Any], *, source: Path, names: frozenset[str]) -> Architecture:
        theirs: ModernBertSettings = convert(config, ModernBertSettings, source)
        _check(theirs, source)
        model = FIXED | {
            "layers": theirs.num_hidden_layers,
            "hidden": theirs.hidden_size,
            "heads": theirs.num_attention_heads,
            "feedforward": theirs.intermediate_size,
            "activation": ACTIVATIONS[theirs.hidden_activation],
            "norm_epsilon": theirs.norm_eps,
            "max_positions": theirs.max_position_embeddings,
            "init": theirs.initializer_range,
            "biases": theirs.norm_bias,
            "rotary_base": _base(theirs, WIDE),
            "rotary_base_local": _base(theirs, NARROW),
            **_windows(theirs, source),
        }
        settings: TransformerConfig = convert(model, TransformerConfig, source)
        usual = msgspec.structs.replace(settings, feedforward=0)
        return Architecture(
            model=usual if usual.inner == settings.inner else settings,
            objectives=_objectives(theirs, config, source=source, names=names),
            vocabulary=theirs.vocab_size,
        )

    def theirs(self, ours: str) -> tuple[str, ...]:
        place, _, kind = ours.rpartition(".")
        match place.split("."):
            case ["encoder", "embeddings", part]:
                return (f"model.embeddings.{EMBEDDINGS[part]}.{kind}",)
            case ["encoder", "blocks", i, *part]:
                return (f"model.layers.{i}.{BLOCK['.'.join(part)]}.{kind}",)
            case ["encoder", "final_norm"]:
                return (f"model.final_norm.{kind}",)
            case ["objectives", head, *part] if head in TASKS.heads:
                return TASKS.theirs(head, ".".join([*part, kind]))
            case ["objectives", "masked-lm", *part]:
                return (f"{HEAD['.'.join(part)]}.{kind}",)
        raise KeyError(ours)

    def canonical(self, name: str) -> str | None:
        if name.endswith("inv_freq"):  # constants that may be saved as buffers
            return None
        return f"model.{name}" if name.startswith(("embeddings.", "layers.", "final_norm.")) else name


def _check(theirs: ModernBertSettings, source: Path) -> None:
    """Refuse what their fields can say and our transformer cannot."""
    if len({getattr(theirs, name) for name in BIASES}) > 1:
        raise ArtefactError(f"{source}: {', '.join(BIASES)} differ, and biases in some layers only are not supported")
    for name in DROPOUTS:
        if getattr(theirs, name):
            raise ArtefactError(f"{source}: {name} is not 0, and dropout in that place is not supported; set it to 0")
    if ACTIVATIONS[theirs.hidden_activation] != ACTIVATIONS[theirs.classifier_activation]:
        raise ArtefactError(f"{source}: hidden_activation and classifier_activation differ, which is not supported")


def _windows(theirs: ModernBertSettings, source: Path) -> dict[str, int]:
    """`local_attention` and `global_every`, from the list of layers where there is one."""
    layers, every = theirs.num_hidden_layers, theirs.global_attn_every_n_layers
    if theirs.layer_types is not None and len(theirs.layer_types) != layers:
        raise ArtefactError(f"{source}: layer_types has {len(theirs.layer_types)} entries for {layers} layers")
    if every < 1:
        raise ArtefactError(f"{source}: global_attn_every_n_layers = {every} must be at least 1")
    if theirs.layer_types is not None:
        kinds = theirs.layer_types
        second = kinds.index(WIDE, 1) if WIDE in kinds[1:] else max(layers, 2)
        every = next((n for n in (every, second) if kinds == _kinds(layers, n)), 0)
        if not every:
            raise ArtefactError(f"{source}: layer_types must be {WIDE} in layers 0, n, 2n … and {NARROW} in the others")
    if every == 1:
        return {"local_attention": 0, "global_every": 1}
    if theirs.local_attention < 2:
        raise ArtefactError(f"{source}: local_attention = {theirs.local_attention} must be at least 2")
    return {"local_attention": theirs.local_attention // 2 * 2, "global_every": every}


def _kinds(layers: int, every: int) -> tuple[str, ...]:
    return tuple(NARROW if layer % every else WIDE for layer in range(layers))


def _base(theirs: ModernBertSettings, kind: str) -> float:
    rope = (theirs.rope_parameters or {}).get(kind)
    if rope is not None and rope.rope_theta is not None:
        return rope.rope_theta
    # older configs say null where local layers have the base of the others
    return theirs.global_rope_theta if kind == WIDE or theirs.local_rope_theta is None else theirs.local_rope_theta


def _objectives(
    theirs: ModernBertSettings, config: Mapping[str, Any], *, source: Path, names: frozenset[str]
) -> tuple[ObjectiveConfig, ...]:
    """The head that the config promises, or that the file holds."""
    promised = promised_heads(theirs.architectures, ARCHITECTURES, source)
    tasks = TASKS.objectives(config, promised, dropout=0.0, source=source)
    if tasks and theirs.classifier_activation != "gelu":
        raise ArtefactError(
            f"{source}: classifier_activation = {theirs.classifier_activation!r} is not supported in a head that "
            "classifies; gelu is"
        )
    fills = "masked-lm" in promised or "head.dense.weight" in names
    return tasks or ((MaskedLMConfig(),) if fills else ())
