"""BERT as `transformers` writes it (Devlin et al. 2019): `BertForPreTraining`, `BertForMaskedLM`, `BertModel`, …

Differences of form, none of substance: they keep query, key and value apart; the output matrix of the masked-LM head
is tied to the word embeddings (a copy in the file must be equal); `BertModel` alone leaves out the prefix `bert.`;
TensorFlow's `gamma` and `beta` are the norm's weight and bias.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from larvatus.core.errors import ArtefactError
from larvatus.core.ranges import Deviation, DropoutRate, Epsilon, Layers, Size, SizeOrNone
from larvatus.models.bundle.huggingface.layout import Architecture, convert, misfits, promised_heads, transformer_of
from larvatus.models.bundle.huggingface.task_heads import CLS, ENDS, TOKENS, TaskHead, TaskHeads
from larvatus.models.network import ObjectiveConfig, tag
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig, NextSentenceConfig

EMBEDDINGS = {
    "words": "word_embeddings",
    "positions": "position_embeddings",
    "segments": "token_type_embeddings",
    "norm": "LayerNorm",
}
BLOCK = {
    "attention.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.out": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "feedforward.up": ("intermediate.dense",),
    "feedforward.down": ("output.dense",),
    "feedforward_norm": ("output.LayerNorm",),
}
HEADS = {
    "masked-lm": {
        "dense.weight": "cls.predictions.transform.dense.weight",
        "dense.bias": "cls.predictions.transform.dense.bias",
        "norm.weight": "cls.predictions.transform.LayerNorm.weight",
        "norm.bias": "cls.predictions.transform.LayerNorm.bias",
        "bias": "cls.predictions.bias",
    },
    "next-sentence": {
        "pooler.dense.weight": "bert.pooler.dense.weight",
        "pooler.dense.bias": "bert.pooler.dense.bias",
        "classifier.weight": "cls.seq_relationship.weight",
        "classifier.bias": "cls.seq_relationship.bias",
    },
}
TASKS = TaskHeads(
    "Bert",
    {
        "classification": TaskHead(
            names={"dense": "bert.pooler.dense", "classifier": "classifier"},
            fixed=CLS | {"dense": "tanh"},
            fields={"dropout": "classifier_dropout"},
        ),
        "tagging": TaskHead(names={"classifier": "classifier"}, fixed=TOKENS, fields={"dropout": "classifier_dropout"}),
        "answering": TaskHead(names={"classifier": "qa_outputs"}, fixed=ENDS, fields={}, dropout=0.0),
    },
)
ARCHITECTURES = {
    "BertForPreTraining": ("masked-lm", "next-sentence"),
    "BertForMaskedLM": ("masked-lm",),
    "BertForNextSentencePrediction": ("next-sentence",),
    "BertModel": (),
    **TASKS.architectures,
}
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu"}
FREE = frozenset(
    {"layers", "hidden", "heads", "feedforward", "activation", "norm_epsilon", "max_positions", "segments"}
    | {"dropout", "attention_dropout", "init"}
)
"""Settings of our transformer that BERT's config.json can state; the others must be as they are by default."""


class BertSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of their config.json that change what is computed, with their defaults; the others are left alone."""

    vocab_size: Size = 30522
    hidden_size: Size = 768
    num_hidden_layers: Layers = 12
    num_attention_heads: Size = 12
    intermediate_size: Size = 3072
    hidden_act: Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"] = "gelu"
    hidden_dropout_prob: DropoutRate = 0.1
    attention_probs_dropout_prob: DropoutRate = 0.1
    max_position_embeddings: Size = 512
    type_vocab_size: SizeOrNone = 2
    initializer_range: Deviation = 0.02
    layer_norm_eps: Epsilon = 1e-12
    position_embedding_type: Literal["absolute"] = "absolute"
    is_decoder: Literal[False] = False
    add_cross_attention: Literal[False] = False
    tie_word_embeddings: Literal[True] = True
    pruned_heads: dict[str, Any] = {}
    architectures: tuple[str, ...] | None = ()


class Bert:
    model_type = "bert"
    aliases: Mapping[str, str] = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    spare = frozenset({"bert.pooler.dense.weight", "bert.pooler.dense.bias"})  # BertModel has it whether trained or not
    tasks = TASKS

    def refusal(self, architecture: Architecture) -> str | None:
        model, heads = architecture.model, {tag(config): config for config in architecture.objectives}
        if misfit := misfits(model, FREE):
            return f"BERT has no {misfit}"
        if not model.segments:
            return "BERT always has segments"
        if refused := TASKS.refusal(architecture.objectives):
            return refused
        if unknown := sorted(set(heads) - {*HEADS, *TASKS.heads}):
            return f"BERT has no head for {unknown[0]}"
        pair = heads.get("next-sentence")
        if isinstance(pair, NextSentenceConfig) and not pair.pooler:
            return "BERT's next-sentence head always has a pooler"
        return None

    def config(self, architecture: Architecture, *, pad: int | None) -> dict[str, Any]:
        model, heads = transformer_of(architecture), {tag(config) for config in architecture.objectives}
        name = next(name for name, tags in ARCHITECTURES.items() if set(tags) == heads)
        activation = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == model.activation)
        return {
            "model_type": self.model_type,
            "architectures": [name],
            "vocab_size": architecture.vocabulary,
            "hidden_size": model.hidden,
            "num_hidden_layers": model.layers,
            "num_attention_heads": model.heads,
            "intermediate_size": model.feedforward or 4 * model.hidden,
            "hidden_act": activation,
            "hidden_dropout_prob": model.dropout,
            "attention_probs_dropout_prob": model.attention_dropout,
            "max_position_embeddings": model.max_positions,
            "type_vocab_size": model.segments,
            "initializer_range": model.init,
            "layer_norm_eps": model.norm_epsilon,
            "position_embedding_type": "absolute",
            "tie_word_embeddings": True,
            "pad_token_id": pad,
            "dtype": "float32",
            **TASKS.config(architecture.objectives),
        }

    def architecture(self, config: Mapping[str, Any], *, source: Path, names: frozenset[str]) -> Architecture:
        theirs: BertSettings = convert(config, BertSettings, source)
        if theirs.pruned_heads:
            raise ArtefactError(f"{source}: pruned_heads is set, and pruned attention heads are not supported")
        wide = 4 * theirs.hidden_size
        model = {
            "layers": theirs.num_hidden_layers,
            "hidden": theirs.hidden_size,
            "heads": theirs.num_attention_heads,
            "feedforward": 0 if theirs.intermediate_size == wide else theirs.intermediate_size,
            "activation": ACTIVATIONS[theirs.hidden_act],
            "norm_epsilon": theirs.layer_norm_eps,
            "max_positions": theirs.max_position_embeddings,
            "segments": theirs.type_vocab_size,
            "dropout": theirs.hidden_dropout_prob,
            "attention_dropout": theirs.attention_probs_dropout_prob,
            "init": theirs.initializer_range,
        }
        promised = promised_heads(theirs.architectures, ARCHITECTURES, source)
        tasks = TASKS.objectives(config, promised, dropout=theirs.hidden_dropout_prob, source=source)
        return Architecture(
            model=convert(model, TransformerConfig, source),
            objectives=tasks or _objectives(promised, names),
            vocabulary=theirs.vocab_size,
        )

    def theirs(self, ours: str) -> tuple[str, ...]:
        place, _, kind = ours.rpartition(".")
        match place.split("."):
            case ["encoder", "embeddings", part]:
                return (f"bert.embeddings.{EMBEDDINGS[part]}.{kind}",)
            case ["encoder", "blocks", i, *part]:
                return tuple(f"bert.encoder.layer.{i}.{name}.{kind}" for name in BLOCK[".".join(part)])
            case ["objectives", head, *part] if head in TASKS.heads:
                return TASKS.theirs(head, ".".join([*part, kind]))
            case ["objectives", head, *part]:
                return (HEADS[head][".".join([*part, kind])],)
        raise KeyError(ours)

    def canonical(self, name: str) -> str | None:
        if name.endswith(("position_ids", "token_type_ids")):  # constants that older versions saved as buffers
            return None
        if name.startswith(("embeddings.", "encoder.", "pooler.")):
            name = f"bert.{name}"
        return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _objectives(promised: frozenset[str], names: frozenset[str]) -> tuple[ObjectiveConfig, ...]:
    """The heads that the config promises and those that the file holds: published files often hold more.

    A head is recognised by a tensor of its own: the pooler stands in files without a next-sentence head too.
    """
    telling = {name: head for head, table in HEADS.items() for name in table.values() if name.startswith("cls.")}
    held = {head for name, head in telling.items() if name in names}
    known: dict[str, ObjectiveConfig] = {"masked-lm": MaskedLMConfig(), "next-sentence": NextSentenceConfig()}
    return tuple(config for head, config in known.items() if head in promised | held)
