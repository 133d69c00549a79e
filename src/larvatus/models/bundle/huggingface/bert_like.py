"""BERT and its relatives as `transformers` stores them: one layout class, and tables for each family.

BERT (Devlin et al. 2019), RoBERTa (Liu et al. 2019), XLM-R (Conneau et al. 2020) and MPNet (Song et al. 2020) are here;
`bert_variants.py` has ELECTRA, ALBERT and DistilBERT, `modernbert.py` ModernBERT. All store query, key and value
separately and tie the output matrix of the masked-lm head to the word embeddings (a copy in the file must be equal).
Models without a head omit the prefix (`bert.`). TensorFlow's `gamma` and `beta` are the norm's weight and bias.

RoBERTa and XLM-R differ from each other in name and kind of vocabulary only, and from BERT in three things:

    positions    counted from padding_idx + 1 = 2: the first two rows belong to no token, are dropped when read and are
                 zeros when written
    segments     there is always one, added to every token; ours has none, so its row is added to all positions when
                 read, which is the same sum, and is zero when written
    masked-lm    the head `lm_head` always has a GELU, whatever the encoder has

MPNet has RoBERTa's positions and head, no segments, and a relative position bias that all layers share. Their code
always uses 32 buckets up to a distance of 128, whatever is in config.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from larvatus.core.errors import ArtefactError
from larvatus.models.bundle.huggingface.config_table import ConfigField, ConfigTable, choice, shifted, size
from larvatus.models.bundle.huggingface.layout import Architecture, TableLayout
from larvatus.models.bundle.huggingface.task_heads import CLS, TaskHead, tagger, three_heads
from larvatus.models.network import ObjectiveConfig, tag
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig, NextSentenceConfig, ReplacedTokensConfig, SentenceOrderConfig

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu"}
FIELDS: dict[str, str | ConfigField] = {
    "hidden_size": "hidden",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": size("feedforward", "inner"),
    "hidden_act": choice("activation", ACTIVATIONS),
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "segments",
    "initializer_range": "init",
    "layer_norm_eps": "norm_epsilon",
}
CONSTANTS: dict[str, Any] = {"position_embedding_type": "absolute", "tie_word_embeddings": True}
EXPECTED = {"is_decoder": False, "add_cross_attention": False}
PAD = 1
UNUSED = PAD + 1  # rows of RoBERTa's positions before that of the first token
ROBERTA_FIELDS = {name: entry for name, entry in FIELDS.items() if name != "type_vocab_size"} | {
    "max_position_embeddings": shifted("max_positions", UNUSED)
}
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
LM_HEAD = {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "": "lm_head"}
OBJECTIVES: dict[str, ObjectiveConfig] = {
    "masked-lm": MaskedLMConfig(),
    "next-sentence": NextSentenceConfig(),
    "sentence-order": SentenceOrderConfig(),
    "replaced-tokens": ReplacedTokensConfig(generator=0.0),
}


def dense_classifier(dense: str, dropout_field: str | None = None) -> TaskHead:
    """A classifier with a dense layer of its own over [CLS], as RoBERTa has it."""
    names = {"dense": "classifier.dense", "classifier": "classifier.out_proj"}
    fields = {"dropout": dropout_field} if dropout_field else {}
    return TaskHead(names=names, fixed=CLS | {"dense": dense}, fields=fields)


class BertLike(TableLayout):
    """A family whose encoder is our transformer (`models/nn/transformer.py`). The attributes are BERT's."""

    model_type = "bert"
    family = "BERT"
    table = ConfigTable(
        TransformerConfig, FIELDS, constants=CONSTANTS, expected=EXPECTED, defaults={"vocab_size": 30522}
    )
    prefix = "bert"
    layer = "encoder.layer.{}"
    embeddings: Mapping[str, str] = EMBEDDINGS
    block: Mapping[str, tuple[str, ...]] = BLOCK
    modules: Mapping[str, str] = {}
    """Other modules of the encoder: our path → theirs."""
    heads: Mapping[str, Mapping[str, str]] = {
        "masked-lm": {
            "dense": "cls.predictions.transform.dense",
            "norm": "cls.predictions.transform.LayerNorm",
            "": "cls.predictions",
        },
        "next-sentence": {"pooler.dense": "bert.pooler.dense", "classifier": "cls.seq_relationship"},
    }
    """Modules of the heads of pretraining; "" is the head itself."""
    tasks = three_heads(
        "Bert",
        TaskHead(
            names={"dense": "bert.pooler.dense", "classifier": "classifier"},
            fixed=CLS | {"dense": "tanh"},
            fields={"dropout": "classifier_dropout"},
        ),
        tagging=tagger("classifier_dropout"),
    )
    pretraining: Mapping[str, tuple[str, ...]] = {
        "BertForPreTraining": ("masked-lm", "next-sentence"),
        "BertForMaskedLM": ("masked-lm",),
        "BertForNextSentencePrediction": ("next-sentence",),
        "BertModel": (),
    }
    aliases: Mapping[str, str] = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    optional = frozenset({"bert.pooler.dense.weight", "bert.pooler.dense.bias"})  # in BertModel, trained or not
    gelu_head = False
    """Whether the masked-lm head has a GELU, whatever the encoder has."""
    roots: tuple[str, ...] = ("embeddings.", "encoder.", "pooler.")
    buffers: tuple[str, ...] = ("position_ids", "token_type_ids")

    def unsupported(self, architecture: Architecture) -> str | None:
        model, heads = architecture.model, {tag(config): config for config in architecture.objectives}
        if misfits := self.table.misfits(model):
            return f"{self.family} has no {misfits}"
        if "type_vocab_size" in self.table.fields and not model.segments:
            return f"{self.family} always has segments"
        if refused := self.unsupported_heads(architecture):
            return refused
        for name, head in heads.items():
            if isinstance(head, NextSentenceConfig | SentenceOrderConfig) and not head.pooler:
                return f"{self.family}'s {name} head always has a pooler"
        if self.gelu_head and "masked-lm" in heads and model.activation != "gelu":
            return f"{self.family}'s masked-lm head always has a GELU, never model.activation = {model.activation!r}"
        return None

    def architecture(self, config: Mapping[str, Any], *, source: Path, names: frozenset[str]) -> Architecture:
        architecture = super().architecture(config, source=source, names=names)
        if self.gelu_head and MaskedLMConfig() in architecture.objectives and architecture.model.activation != "gelu":
            raise ArtefactError(
                f"{source}: hidden_act is {config['hidden_act']!r}, but the masked-lm head of {self.model_type} always "
                "has a GELU; a model with both is not supported"
            )
        return architecture

    def read_settings(self, config: Mapping[str, Any], source: Path) -> Any:
        if config.get("pruned_heads"):
            raise ArtefactError(f"{source}: pruned_heads is set, and pruned attention heads are not supported")
        return super().read_settings(config, source)

    def objectives(self, promised: frozenset[str], names: frozenset[str]) -> tuple[ObjectiveConfig, ...]:
        """The heads that config.json promises and those that the file holds: published files often hold more.

        A head is recognised by tensors of its own: files without a next-sentence head may hold the pooler too.
        """
        modules_of = {
            head: [name for name in table.values() if "pooler" not in name] for head, table in self.heads.items()
        }
        held = {head for head, modules in modules_of.items() for m in modules if {f"{m}.weight", f"{m}.bias"} & names}
        return tuple(OBJECTIVES[head] for head in self.heads if head in promised | held)

    def tensor_names(self, parameter: str) -> tuple[str, ...]:
        place, _, kind = parameter.rpartition(".")
        if (module := self.modules.get(place)) is not None:
            return (f"{module}.{kind}",)
        match place.split("."):
            case ["encoder", "embeddings", part]:
                return (f"{self.prefix}.embeddings.{self.embeddings[part]}.{kind}",)
            case ["encoder", "blocks", i, *part]:
                return tuple(
                    f"{self.prefix}.{self.layer.format(i)}.{name}.{kind}" for name in self.block[".".join(part)]
                )
            case ["objectives", head, *part] if head in self.tasks.heads:
                return self.tasks.tensor_names(head, ".".join([*part, kind]))
            case ["objectives", head, *part]:
                return (f"{self.heads[head]['.'.join(part)]}.{kind}",)
        raise KeyError(parameter)

    def canonical_name(self, name: str) -> str | None:
        canonical = super().canonical_name(name)
        if canonical is None or self.model_type != "bert":
            return canonical
        # files that were converted from TensorFlow
        return canonical.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


class ShiftedPositions(BertLike):
    """A family whose first two rows of positions belong to no token, with RoBERTa's masked-lm head."""

    heads: Mapping[str, Mapping[str, str]] = {"masked-lm": LM_HEAD}
    gelu_head = True
    pad = PAD

    def __init__(self) -> None:
        super().__init__()
        tables = f"{self.prefix}.embeddings"
        self.positions = f"{tables}.position_embeddings.weight"
        self.aliases = {
            "lm_head.decoder.weight": f"{tables}.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        }
        # of models without a head, never trained
        self.optional = frozenset(f"{self.prefix}.pooler.dense.{kind}" for kind in ("weight", "bias"))

    def export_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        table = tensors[self.positions]
        return {**tensors, self.positions: torch.cat([table.new_zeros(UNUSED, table.shape[1]), table])}

    def import_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {**tensors, self.positions: tensors[self.positions][UNUSED:]}


class Roberta(ShiftedPositions):
    family = "RoBERTa"
    table = ConfigTable(
        TransformerConfig,
        ROBERTA_FIELDS,
        fixed={"segments": 0},
        constants=CONSTANTS | {"type_vocab_size": 1},
        expected=EXPECTED | {"pad_token_id": PAD},
        defaults={"vocab_size": 50265, "max_position_embeddings": 512, "type_vocab_size": msgspec.NODEFAULT},
    )
    prefix = "roberta"
    segments = "roberta.embeddings.token_type_embeddings.weight"

    def __init__(self, model_type: str, classes: str, *, vocabulary: str = "byte-bpe") -> None:
        self.model_type, self.vocabulary = model_type, vocabulary
        classifier = dense_classifier("tanh", "classifier_dropout")
        self.tasks = three_heads(classes, classifier, tagging=tagger("classifier_dropout"))
        self.pretraining = {f"{classes}ForMaskedLM": ("masked-lm",), f"{classes}Model": ()}
        super().__init__()

    def export_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        exported = super().export_tensors(tensors)
        table = exported[self.positions]
        return {**exported, self.segments: table.new_zeros(1, table.shape[1])}

    def import_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        imported = super().import_tensors(tensors)
        segment = imported.pop(self.segments)
        return {**imported, self.positions: imported[self.positions].to(torch.float32) + segment.to(torch.float32)}


class MPNet(ShiftedPositions):
    model_type, family = "mpnet", "MPNet"
    table = ConfigTable(
        TransformerConfig,
        ROBERTA_FIELDS,
        fixed={"segments": 0, "relative_buckets": 32, "relative_distance": 128},
        constants={"tie_word_embeddings": True, "relative_attention_num_buckets": 32},
        expected=EXPECTED | {"position_embedding_type": "absolute", "pad_token_id": PAD},
        defaults={"vocab_size": 30527, "max_position_embeddings": 512},
    )
    prefix = "mpnet"
    block = BLOCK | {
        "attention.qkv": ("attention.attn.q", "attention.attn.k", "attention.attn.v"),
        "attention.out": ("attention.attn.o",),
        "attention_norm": ("attention.LayerNorm",),
    }
    modules: Mapping[str, str] = {"encoder.relative": "mpnet.encoder.relative_attention_bias"}
    tasks = three_heads("MPNet", dense_classifier("tanh"), tagging=tagger())
    pretraining: Mapping[str, tuple[str, ...]] = {"MPNetForMaskedLM": ("masked-lm",), "MPNetModel": ()}
