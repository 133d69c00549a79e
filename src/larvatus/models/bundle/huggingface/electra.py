"""ELECTRA as `transformers` writes it (Clark et al. 2020): `ElectraForPreTraining` is the model itself, which tells
replaced tokens (the discriminator), `ElectraForMaskedLM` its generator; `ElectraModel` is either without a head.

The encoder is BERT's, under other names, but that its embeddings may be smaller than its layers, and then are projected
(`embedding_size`). The generator's head always has a GELU, the discriminator's the activation of its layers.
Each of the two is a directory of its own; ours keeps the generator in a folder of the discriminator's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from larvatus.core.errors import ArtefactError
from larvatus.core.ranges import Size
from larvatus.models.bundle.huggingface.bert import FREE, Bert, BertSettings
from larvatus.models.bundle.huggingface.layout import Architecture, convert, misfits, promised_heads
from larvatus.models.bundle.huggingface.task_heads import CLS, ENDS, TOKENS, TaskHead, TaskHeads
from larvatus.models.network import ObjectiveConfig, tag
from larvatus.models.objectives import MaskedLMConfig, ReplacedTokensConfig

HEADS = {
    "masked-lm": {
        "dense.weight": "generator_predictions.dense.weight",
        "dense.bias": "generator_predictions.dense.bias",
        "norm.weight": "generator_predictions.LayerNorm.weight",
        "norm.bias": "generator_predictions.LayerNorm.bias",
        "bias": "generator_lm_head.bias",
    },
    "replaced-tokens": {
        "dense.weight": "discriminator_predictions.dense.weight",
        "dense.bias": "discriminator_predictions.dense.bias",
        "score.weight": "discriminator_predictions.dense_prediction.weight",
        "score.bias": "discriminator_predictions.dense_prediction.bias",
    },
}
TASKS = TaskHeads(
    "Electra",
    {
        "classification": TaskHead(
            names={"dense": "classifier.dense", "classifier": "classifier.out_proj"},
            fixed=CLS | {"dense": "gelu"},
            fields={"dropout": "classifier_dropout"},
        ),
        "tagging": TaskHead(names={"classifier": "classifier"}, fixed=TOKENS, fields={"dropout": "classifier_dropout"}),
        "answering": TaskHead(names={"classifier": "qa_outputs"}, fixed=ENDS, fields={}, dropout=0.0),
    },
)
ARCHITECTURES = {
    "ElectraForPreTraining": ("replaced-tokens",),
    "ElectraForMaskedLM": ("masked-lm",),
    "ElectraModel": (),
    **TASKS.architectures,
}
KNOWN: dict[str, ObjectiveConfig] = {
    "masked-lm": MaskedLMConfig(),
    "replaced-tokens": ReplacedTokensConfig(generator=0.0),
}
BERT = Bert()


class ElectraSettings(BertSettings, frozen=True, kw_only=True):
    """As BERT's, with other defaults."""

    embedding_size: Size = 128
    hidden_size: Size = 256
    num_attention_heads: Size = 4
    intermediate_size: Size = 1024


class Electra:
    model_type = "electra"
    aliases: Mapping[str, str] = {"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"}
    spare: frozenset[str] = frozenset()
    tasks = TASKS

    def refusal(self, architecture: Architecture) -> str | None:
        model, heads = architecture.model, tuple(tag(config) for config in architecture.objectives)
        if misfit := misfits(model, FREE | {"embedding"}):
            return f"ELECTRA has no {misfit}"
        if not model.segments:
            return "ELECTRA always has segments"
        if refused := TASKS.refusal(architecture.objectives):
            return refused
        if heads not in ARCHITECTURES.values():
            return f"ELECTRA has no model with the heads {' and '.join(heads)}"
        if heads == ("masked-lm",) and model.activation != "gelu":
            return f"ELECTRA's masked-lm head always has a GELU, never model.activation = {model.activation!r}"
        return None

    def config(self, architecture: Architecture, *, pad: int | None) -> dict[str, Any]:
        heads = tuple(tag(config) for config in architecture.objectives)
        encoder = msgspec.structs.replace(architecture, objectives=())
        return {
            **BERT.config(encoder, pad=pad),
            "model_type": self.model_type,
            "architectures": [next(name for name, tags in ARCHITECTURES.items() if tags == heads)],
            "embedding_size": architecture.model.word_width,
            **TASKS.config(architecture.objectives),
        }

    def architecture(self, config: Mapping[str, Any], *, source: Path, names: frozenset[str]) -> Architecture:
        theirs: ElectraSettings = convert(config, ElectraSettings, source)
        promised = promised_heads(theirs.architectures, ARCHITECTURES, source)
        tasks = TASKS.objectives(config, promised, dropout=theirs.hidden_dropout_prob, source=source)
        objectives = tasks or _objectives(promised, names)
        if "masked-lm" in map(tag, objectives) and theirs.hidden_act != "gelu":
            raise ArtefactError(
                f"{source}: hidden_act is {theirs.hidden_act!r}, but the masked-lm head of an electra always has a "
                "GELU; a model with both is not supported"
            )
        as_bert = msgspec.structs.replace(theirs, architectures=())
        encoder = BERT.architecture(msgspec.to_builtins(as_bert), source=source, names=frozenset())
        smaller = 0 if theirs.embedding_size == theirs.hidden_size else theirs.embedding_size
        if theirs.embedding_size < 1:
            raise ArtefactError(f"{source}: embedding_size = {theirs.embedding_size} must be at least 1")
        return Architecture(
            model=msgspec.structs.replace(encoder.model, embedding=smaller),
            objectives=objectives,
            vocabulary=theirs.vocab_size,
        )

    def theirs(self, ours: str) -> tuple[str, ...]:
        if ours.startswith("encoder.embeddings.project."):
            return (f"electra.embeddings_project.{ours.rpartition('.')[2]}",)
        if ours.startswith("encoder."):
            return tuple(f"electra.{name.removeprefix('bert.')}" for name in BERT.theirs(ours))
        _, head, part = ours.split(".", 2)
        return TASKS.theirs(head, part) if head in TASKS.heads else (HEADS[head][part],)

    def canonical(self, name: str) -> str | None:
        if name.endswith(("position_ids", "token_type_ids")):  # constants that older versions saved as buffers
            return None
        return f"electra.{name}" if name.startswith(("embeddings.", "embeddings_project.", "encoder.")) else name


def _objectives(promised: frozenset[str], names: frozenset[str]) -> tuple[ObjectiveConfig, ...]:
    """The head that the config promises, or that the file holds."""
    held = {head for head, table in HEADS.items() if not names.isdisjoint(table.values())}
    return tuple(config for head, config in KNOWN.items() if head in promised | held)
