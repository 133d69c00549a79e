"""ALBERT (Lan et al. 2020) as `transformers` writes it: `AlbertForPreTraining`, `AlbertForMaskedLM`, `AlbertModel`.

A BERT of one block, used by all layers, over embeddings of a smaller width. Two things differ in form:

    projection   theirs always maps the embeddings to the hidden size, ours only where the two differ: where they are
                 the same it is the identity in the file, and one that is not is refused when read (none is published)
    pooler       is one linear layer with a tanh, under `albert.pooler`

Groups of layers (`num_hidden_groups`, `inner_group_num`) are one of one, as in every published model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor

from larvatus.core.errors import ArtefactError
from larvatus.core.ranges import DropoutRate, Size
from larvatus.models.bundle.huggingface.bert import EMBEDDINGS, FREE, Bert, BertSettings
from larvatus.models.bundle.huggingface.layout import Architecture, convert, misfits, promised_heads
from larvatus.models.bundle.huggingface.task_heads import CLS, ENDS, TOKENS, TaskHead, TaskHeads
from larvatus.models.network import ObjectiveConfig, tag
from larvatus.models.objectives import MaskedLMConfig, SentenceOrderConfig

LAYER = "albert.encoder.albert_layer_groups.0.albert_layers.0"
PROJECTION = "albert.encoder.embedding_hidden_mapping_in"
BLOCK = {
    "attention.qkv": ("attention.query", "attention.key", "attention.value"),
    "attention.out": ("attention.dense",),
    "attention_norm": ("attention.LayerNorm",),
    "feedforward.up": ("ffn",),
    "feedforward.down": ("ffn_output",),
    "feedforward_norm": ("full_layer_layer_norm",),
}
HEADS = {
    "masked-lm": {
        "dense.weight": "predictions.dense.weight",
        "dense.bias": "predictions.dense.bias",
        "norm.weight": "predictions.LayerNorm.weight",
        "norm.bias": "predictions.LayerNorm.bias",
        "bias": "predictions.bias",
    },
    "sentence-order": {
        "pooler.dense.weight": "albert.pooler.weight",
        "pooler.dense.bias": "albert.pooler.bias",
        "classifier.weight": "sop_classifier.classifier.weight",
        "classifier.bias": "sop_classifier.classifier.bias",
    },
}
TASKS = TaskHeads(
    "Albert",
    {
        "classification": TaskHead(
            names={"dense": "albert.pooler", "classifier": "classifier"},
            fixed=CLS | {"dense": "tanh"},
            fields={"dropout": "classifier_dropout_prob"},
            dropout=0.1,
        ),
        "tagging": TaskHead(
            names={"classifier": "classifier"}, fixed=TOKENS, fields={"dropout": "classifier_dropout_prob"}, dropout=0.1
        ),
        "answering": TaskHead(names={"classifier": "qa_outputs"}, fixed=ENDS, fields={}, dropout=0.0),
    },
)
ARCHITECTURES: dict[str, tuple[str, ...]] = {
    "AlbertForPreTraining": ("masked-lm", "sentence-order"),
    "AlbertForMaskedLM": ("masked-lm",),
    "AlbertModel": (),
    **TASKS.architectures,
}
BERT = Bert()


class AlbertSettings(BertSettings, frozen=True, kw_only=True):
    """As BERT's, with their own defaults, which are those of the largest ALBERT."""

    vocab_size: Size = 30000
    embedding_size: Size = 128
    hidden_size: Size = 4096
    num_attention_heads: Size = 64
    intermediate_size: Size = 16384
    hidden_act: Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"] = "gelu_new"
    hidden_dropout_prob: DropoutRate = 0.0
    attention_probs_dropout_prob: DropoutRate = 0.0
    num_hidden_groups: Literal[1] = 1
    inner_group_num: Literal[1] = 1


class Albert:
    model_type = "albert"
    aliases: Mapping[str, str] = {
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    }
    spare = frozenset({"albert.pooler.weight", "albert.pooler.bias"})  # AlbertModel has it whether trained or not
    tasks = TASKS
    pad: int | None = None

    def refusal(self, architecture: Architecture) -> str | None:
        model, heads = architecture.model, {tag(config): config for config in architecture.objectives}
        if misfit := misfits(model, FREE | {"embedding"}, {"shared": True}):
            return f"ALBERT has no {misfit}"
        if not model.segments:
            return "ALBERT always has segments"
        if refused := TASKS.refusal(architecture.objectives):
            return refused
        if not any(set(heads) == set(tags) for tags in ARCHITECTURES.values()):
            return f"ALBERT has no such heads together: {', '.join(heads)}"
        order = heads.get("sentence-order")
        if isinstance(order, SentenceOrderConfig) and not order.pooler:
            return "ALBERT's sentence-order head always has a pooler"
        return None

    def config(self, architecture: Architecture, *, pad: int | None) -> dict[str, Any]:
        heads = {tag(config) for config in architecture.objectives}
        return {
            **BERT.config(msgspec.structs.replace(architecture, objectives=()), pad=pad),
            "model_type": self.model_type,
            "architectures": [next(name for name, tags in ARCHITECTURES.items() if set(tags) == heads)],
            "embedding_size": architecture.model.word_width,
            "num_hidden_groups": 1,
            "inner_group_num": 1,
            # theirs are ids of the published vocabulary; the tokenizer beside the model knows its own
            "bos_token_id": None,
            "eos_token_id": None,
            **TASKS.config(architecture.objectives),
        }

    def architecture(self, config: Mapping[str, Any], *, source: Path, names: frozenset[str]) -> Architecture:
        theirs: AlbertSettings = convert(config, AlbertSettings, source)
        if theirs.embedding_size < 1:
            raise ArtefactError(f"{source}: embedding_size = {theirs.embedding_size} must be at least 1")
        as_bert = msgspec.to_builtins(msgspec.structs.replace(theirs, architectures=()))
        encoder = BERT.architecture(as_bert, source=source, names=frozenset())
        promised = promised_heads(theirs.architectures, ARCHITECTURES, source)
        tasks = TASKS.objectives(config, promised, dropout=theirs.hidden_dropout_prob, source=source)
        return Architecture(
            model=msgspec.structs.replace(encoder.model, embedding=theirs.embedding_size, shared=True),
            objectives=tasks or _objectives(promised, names),
            vocabulary=theirs.vocab_size,
        )

    def theirs(self, ours: str) -> tuple[str, ...]:
        place, _, kind = ours.rpartition(".")
        match place.split("."):
            case ["encoder", "embeddings", "project"]:
                return (f"{PROJECTION}.{kind}",)
            case ["encoder", "embeddings", part]:
                return (f"albert.embeddings.{EMBEDDINGS[part]}.{kind}",)
            case ["encoder", "blocks", "0", *part]:
                return tuple(f"{LAYER}.{name}.{kind}" for name in BLOCK[".".join(part)])
            case ["objectives", head, *part] if head in TASKS.heads:
                return TASKS.theirs(head, ".".join([*part, kind]))
            case ["objectives", head, *part]:
                return (HEADS[head][".".join([*part, kind])],)
        raise KeyError(ours)

    def canonical(self, name: str) -> str | None:
        if name.endswith(("position_ids", "token_type_ids")):  # constants that older versions saved as buffers
            return None
        return f"albert.{name}" if name.startswith(("embeddings.", "encoder.", "pooler.")) else name

    def recast(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if f"{PROJECTION}.weight" in tensors:
            return dict(tensors)
        norm = tensors["albert.embeddings.LayerNorm.weight"]
        return {
            **tensors,
            f"{PROJECTION}.weight": torch.eye(len(norm), dtype=norm.dtype, device=norm.device),
            f"{PROJECTION}.bias": torch.zeros_like(norm),
        }

    def restored(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        weight, bias = tensors[f"{PROJECTION}.weight"], tensors[f"{PROJECTION}.bias"]
        if weight.shape[0] != weight.shape[1]:
            return dict(tensors)
        if bias.any() or not torch.equal(weight, torch.eye(len(weight)).to(weight)):
            raise ArtefactError(
                f"{PROJECTION} is not the identity, though embedding_size equals hidden_size: embeddings as wide as "
                "the layers are read without a projection (no published ALBERT has both)"
            )
        return {name: tensor for name, tensor in tensors.items() if not name.startswith(PROJECTION)}


def _objectives(promised: frozenset[str], names: frozenset[str]) -> tuple[ObjectiveConfig, ...]:
    """The heads that the config promises and those that the file holds, by tensors that are of a head alone."""
    held = {head for head, table in HEADS.items() if any(t in names for t in table.values() if "pooler" not in t)}
    known: dict[str, ObjectiveConfig] = {"masked-lm": MaskedLMConfig(), "sentence-order": SentenceOrderConfig()}
    return tuple(config for head, config in known.items() if head in promised | held)
