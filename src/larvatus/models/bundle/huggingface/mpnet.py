"""MPNet as `transformers` writes it (Song et al. 2020): `MPNetForMaskedLM`, `MPNetModel`.

RoBERTa's form (positions counted from row 2, `lm_head` with a GELU) without segments, and a bias by relative position
that all layers share. Their code always has 32 buckets up to a distance of 128, whatever the config says, so nothing
else is read or written.
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
from larvatus.models.bundle.huggingface.roberta import HEAD, PAD, UNUSED
from larvatus.models.bundle.huggingface.task_heads import CLS, ENDS, TOKENS, TaskHead, TaskHeads
from larvatus.models.network import tag
from larvatus.models.objectives import MaskedLMConfig

BLOCK = {
    "attention.qkv": ("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    "attention.out": ("attention.attn.o",),
    "attention_norm": ("attention.LayerNorm",),
    "feedforward.up": ("intermediate.dense",),
    "feedforward.down": ("output.dense",),
    "feedforward_norm": ("output.LayerNorm",),
}
TASKS = TaskHeads(
    "MPNet",
    {
        "classification": TaskHead(
            names={"dense": "classifier.dense", "classifier": "classifier.out_proj"},
            fixed=CLS | {"dense": "tanh"},
            fields={},
        ),
        "tagging": TaskHead(names={"classifier": "classifier"}, fixed=TOKENS, fields={}),
        "answering": TaskHead(names={"classifier": "qa_outputs"}, fixed=ENDS, fields={}, dropout=0.0),
    },
)
ARCHITECTURES = {"MPNetForMaskedLM": ("masked-lm",), "MPNetModel": (), **TASKS.architectures}
WORDS, POSITIONS = (f"mpnet.embeddings.{part}_embeddings.weight" for part in ("word", "position"))
BUCKETS = 32
FIXED = {"segments": 0, "relative_buckets": BUCKETS, "relative_distance": 128}
FOREIGN = frozenset({"type_vocab_size", "position_embedding_type"})  # fields of BERT that they do not have
BERT = Bert()


class MPNetSettings(BertSettings, frozen=True, kw_only=True):
    """As BERT's; what their code takes for granted may not be said otherwise."""

    vocab_size: Size = 30527
    relative_attention_num_buckets: Literal[32] = 32
    pad_token_id: Literal[1] = 1


class MPNet:
    model_type = "mpnet"
    aliases: Mapping[str, str] = {"lm_head.decoder.weight": WORDS, "lm_head.decoder.bias": "lm_head.bias"}
    spare = frozenset({"mpnet.pooler.dense.weight", "mpnet.pooler.dense.bias"})  # MPNetModel's, never trained
    tasks = TASKS
    pad = PAD

    def refusal(self, architecture: Architecture) -> str | None:
        model, heads = architecture.model, {tag(config) for config in architecture.objectives}
        if misfit := misfits(model, FREE - FIXED.keys(), FIXED):
            return f"MPNet has no {misfit}"
        if refused := TASKS.refusal(architecture.objectives):
            return refused
        if unknown := sorted(heads - {"masked-lm", *TASKS.heads}):
            return f"MPNet has no head for {unknown[0]}"
        if "masked-lm" in heads and model.activation != "gelu":
            return f"MPNet's masked-lm head always has a GELU, never model.activation = {model.activation!r}"
        return None

    def config(self, architecture: Architecture, *, pad: int | None) -> dict[str, Any]:
        heads = tuple(tag(config) for config in architecture.objectives)
        theirs = {
            **BERT.config(msgspec.structs.replace(architecture, objectives=()), pad=pad),
            "model_type": self.model_type,
            "architectures": [next(name for name, tags in ARCHITECTURES.items() if tags == heads)],
            "max_position_embeddings": architecture.model.max_positions + UNUSED,
            "relative_attention_num_buckets": BUCKETS,
            **TASKS.config(architecture.objectives),
        }
        return {name: value for name, value in theirs.items() if name not in FOREIGN}

    def architecture(self, config: Mapping[str, Any], *, source: Path, names: frozenset[str]) -> Architecture:
        theirs: MPNetSettings = convert(config, MPNetSettings, source)
        promised = promised_heads(theirs.architectures, ARCHITECTURES, source)
        tasks = TASKS.objectives(config, promised, dropout=theirs.hidden_dropout_prob, source=source)
        fills = "masked-lm" in promised or not names.isdisjoint(HEAD.values())
        if fills and theirs.hidden_act != "gelu":
            raise ArtefactError(
                f"{source}: hidden_act is {theirs.hidden_act!r}, but the masked-lm head of an mpnet always has a GELU; "
                "a model with both is not supported"
            )
        as_bert = msgspec.structs.replace(
            theirs, architectures=(), max_position_embeddings=theirs.max_position_embeddings - UNUSED
        )
        encoder = BERT.architecture(msgspec.to_builtins(as_bert), source=source, names=frozenset())
        return Architecture(
            model=msgspec.structs.replace(encoder.model, **FIXED),
            objectives=tasks or ((MaskedLMConfig(),) if fills else ()),
            vocabulary=theirs.vocab_size,
        )

    def theirs(self, ours: str) -> tuple[str, ...]:
        place, _, kind = ours.rpartition(".")
        match place.split("."):
            case ["encoder", "relative"]:
                return (f"mpnet.encoder.relative_attention_bias.{kind}",)
            case ["encoder", "embeddings", _]:
                return tuple(f"mpnet.{name.removeprefix('bert.')}" for name in BERT.theirs(ours))
            case ["encoder", "blocks", i, *part]:
                return tuple(f"mpnet.encoder.layer.{i}.{name}.{kind}" for name in BLOCK[".".join(part)])
            case ["objectives", head, *part] if head in TASKS.heads:
                return TASKS.theirs(head, ".".join([*part, kind]))
            case ["objectives", "masked-lm", *part]:
                return (HEAD[".".join([*part, kind])],)
        raise KeyError(ours)

    def canonical(self, name: str) -> str | None:
        if name.endswith("position_ids"):  # a constant that older versions saved as a buffer
            return None
        return f"mpnet.{name}" if name.startswith(("embeddings.", "encoder.", "pooler.")) else name

    def recast(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        positions = tensors[POSITIONS]
        unused = positions.new_zeros(UNUSED, positions.shape[1])
        return {**tensors, POSITIONS: torch.cat([unused, positions])}

    def restored(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {**tensors, POSITIONS: tensors[POSITIONS][UNUSED:]}
