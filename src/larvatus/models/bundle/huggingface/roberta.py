"""RoBERTa (Liu et al. 2019) and XLM-R (Conneau et al. 2020) as `transformers` writes them: `RobertaForMaskedLM`,
`RobertaModel`, …, and the same of XLM-R, which differ in the name alone, and in the kind of vocabulary.

The encoder is BERT's, under other names, but for three things:

    positions    theirs are counted from padding_idx + 1 = 2, so the first two rows belong to no token: left out when
                 read, zeros when written
    segments     theirs always has one, added to every token; ours has none: its row is added to all positions when
                 read, which is the same sum, and is zero when written
    masked-lm    its head is `lm_head`, and always has a GELU, whatever the encoder has
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor

from larvatus.core.errors import ArtefactError
from larvatus.core.ranges import Size
from larvatus.models.bundle.huggingface.bert import FREE, Bert, BertSettings
from larvatus.models.bundle.huggingface.layout import Architecture, convert, misfits, promised_heads
from larvatus.models.bundle.huggingface.task_heads import CLS, ENDS, TOKENS, TaskHead, TaskHeads
from larvatus.models.network import tag
from larvatus.models.objectives import MaskedLMConfig

HEAD = {
    "dense.weight": "lm_head.dense.weight",
    "dense.bias": "lm_head.dense.bias",
    "norm.weight": "lm_head.layer_norm.weight",
    "norm.bias": "lm_head.layer_norm.bias",
    "bias": "lm_head.bias",
}
TASKS = {
    "classification": TaskHead(
        names={"dense": "classifier.dense", "classifier": "classifier.out_proj"},
        fixed=CLS | {"dense": "tanh"},
        fields={"dropout": "classifier_dropout"},
    ),
    "tagging": TaskHead(names={"classifier": "classifier"}, fixed=TOKENS, fields={"dropout": "classifier_dropout"}),
    "answering": TaskHead(names={"classifier": "qa_outputs"}, fixed=ENDS, fields={}, dropout=0.0),
}
WORDS, POSITIONS, SEGMENTS = (
    f"roberta.embeddings.{part}_embeddings.weight" for part in ("word", "position", "token_type")
)
PAD = 1
UNUSED = PAD + 1  # rows of the positions before the first token's
BERT = Bert()


class RobertaSettings(BertSettings, frozen=True, kw_only=True):
    """As BERT's; what is not as they released it would be another computation."""

    vocab_size: Size = 50265
    type_vocab_size: Literal[1]
    pad_token_id: Literal[1] = 1


class Roberta:
    aliases: Mapping[str, str] = {"lm_head.decoder.weight": WORDS, "lm_head.decoder.bias": "lm_head.bias"}
    spare = frozenset({"roberta.pooler.dense.weight", "roberta.pooler.dense.bias"})  # RobertaModel's, never trained
    pad: int | None = PAD

    def __init__(self, model_type: str, family: str, *, vocabulary: str = "byte-bpe") -> None:
        self.model_type, self.vocabulary = model_type, vocabulary
        self.tasks = TaskHeads(family, TASKS)
        self.architectures = {f"{family}ForMaskedLM": ("masked-lm",), f"{family}Model": (), **self.tasks.architectures}

    def refusal(self, architecture: Architecture) -> str | None:
        model, heads = architecture.model, {tag(config) for config in architecture.objectives}
        if misfit := misfits(model, FREE - {"segments"}, {"segments": 0}):
            return f"RoBERTa has no {misfit}"
        if refused := self.tasks.refusal(architecture.objectives):
            return refused
        if unknown := sorted(heads - {"masked-lm", *self.tasks.heads}):
            return f"RoBERTa has no head for {unknown[0]}"
        if "masked-lm" in heads and model.activation != "gelu":
            return f"RoBERTa's masked-lm head always has a GELU, never model.activation = {model.activation!r}"
        return None

    def config(self, architecture: Architecture, *, pad: int | None) -> dict[str, Any]:
        heads = tuple(tag(config) for config in architecture.objectives)
        return {
            **BERT.config(msgspec.structs.replace(architecture, objectives=()), pad=pad),
            "model_type": self.model_type,
            "architectures": [next(name for name, tags in self.architectures.items() if tags == heads)],
            "max_position_embeddings": architecture.model.max_positions + UNUSED,
            "type_vocab_size": 1,
            **self.tasks.config(architecture.objectives),
        }

    def architecture(self, config: Mapping[str, Any], *, source: Path, names: frozenset[str]) -> Architecture:
        theirs: RobertaSettings = convert(config, RobertaSettings, source)
        promised = promised_heads(theirs.architectures, self.architectures, source)
        tasks = self.tasks.objectives(config, promised, dropout=theirs.hidden_dropout_prob, source=source)
        fills = "masked-lm" in promised or not names.isdisjoint(HEAD.values())
        if fills and theirs.hidden_act != "gelu":
            raise ArtefactError(
                f"{source}: hidden_act is {theirs.hidden_act!r}, but the masked-lm head of a {self.model_type} always "
                "has a GELU; a model with both is not supported"
            )
        as_bert = msgspec.structs.replace(
            theirs, architectures=(), max_position_embeddings=theirs.max_position_embeddings - UNUSED
        )
        encoder = BERT.architecture(msgspec.to_builtins(as_bert), source=source, names=frozenset())
        return Architecture(
            model=msgspec.structs.replace(encoder.model, segments=0),
            objectives=tasks or ((MaskedLMConfig(),) if fills else ()),
            vocabulary=theirs.vocab_size,
        )

    def theirs(self, ours: str) -> tuple[str, ...]:
        if ours.startswith("encoder."):
            return tuple(f"roberta.{name.removeprefix('bert.')}" for name in BERT.theirs(ours))
        _, head, part = ours.split(".", 2)
        return self.tasks.theirs(head, part) if head in self.tasks.heads else ({"masked-lm": HEAD}[head][part],)

    def canonical(self, name: str) -> str | None:
        if name.endswith(("position_ids", "token_type_ids")):  # constants that older versions saved as buffers
            return None
        return f"roberta.{name}" if name.startswith(("embeddings.", "encoder.", "pooler.")) else name

    def recast(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        positions = tensors[POSITIONS]
        unused, segment = (positions.new_zeros(rows, positions.shape[1]) for rows in (UNUSED, 1))
        return {**tensors, POSITIONS: torch.cat([unused, positions]), SEGMENTS: segment}

    def restored(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        positions, segment = (tensors[name].to(torch.float32) for name in (POSITIONS, SEGMENTS))
        kept = {name: tensor for name, tensor in tensors.items() if name != SEGMENTS}
        return {**kept, POSITIONS: positions[UNUSED:] + segment}
