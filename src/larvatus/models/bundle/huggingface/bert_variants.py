"""ELECTRA, ALBERT and DistilBERT as `transformers` stores them: tables over the layout of BERT (`bert_like.py`).

**ELECTRA** (Clark et al. 2020). `ElectraForPreTraining` is the discriminator, `ElectraForMaskedLM` its generator, each
in a directory of its own; we store the generator in a folder of the discriminator's. The embeddings may be narrower
than the layers, and are then projected. The generator's head always has a GELU, the discriminator's the activation of
its layers.

**ALBERT** (Lan et al. 2020). All layers share one block, over narrower embeddings. The file always has a projection to
the hidden size, ours only if the sizes differ: otherwise it is written as the identity, and another matrix is refused
when read (none is published). The pooler is one linear layer with a tanh. Layer groups are one of one, as in every
published model.

**DistilBERT** (Sanh et al. 2019). No segments and no pooler. Positions are learned or sinusoids
(`sinusoidal_pos_embds`), but stored either way, and written as learned. Norms always add 1e-12. Theirs has no dropout
after attention; ours has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from larvatus.core.errors import ArtefactError
from larvatus.models.bundle.huggingface.bert_like import (
    ACTIVATIONS,
    CONSTANTS,
    EXPECTED,
    FIELDS,
    BertLike,
    dense_classifier,
)
from larvatus.models.bundle.huggingface.config_table import ConfigTable, choice, size
from larvatus.models.bundle.huggingface.layout import OWN_TOKENS
from larvatus.models.bundle.huggingface.task_heads import CLS, QA_OUTPUTS, TaskHead, tagger, three_heads
from larvatus.models.nn.transformer import TransformerConfig

PROJECTION = "albert.encoder.embedding_hidden_mapping_in"


class Electra(BertLike):
    model_type, family = "electra", "ELECTRA"
    table = ConfigTable(
        TransformerConfig,
        FIELDS | {"embedding_size": size("embedding", "word_width")},
        constants=CONSTANTS,
        expected=EXPECTED,
        defaults={"vocab_size": 30522, "embedding_size": 128, "hidden_size": 256}
        | {"num_attention_heads": 4, "intermediate_size": 1024},
    )
    prefix = "electra"
    modules: Mapping[str, str] = {"encoder.embeddings.project": "electra.embeddings_project"}
    heads: Mapping[str, Mapping[str, str]] = {
        "masked-lm": {
            "dense": "generator_predictions.dense",
            "norm": "generator_predictions.LayerNorm",
            "": "generator_lm_head",
        },
        "replaced-tokens": {
            "dense": "discriminator_predictions.dense",
            "score": "discriminator_predictions.dense_prediction",
        },
    }
    tasks = three_heads("Electra", dense_classifier("gelu", "classifier_dropout"), tagging=tagger("classifier_dropout"))
    pretraining: Mapping[str, tuple[str, ...]] = {
        "ElectraForPreTraining": ("replaced-tokens",),
        "ElectraForMaskedLM": ("masked-lm",),
        "ElectraModel": (),
    }
    aliases: Mapping[str, str] = {"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"}
    optional: frozenset[str] = frozenset()
    gelu_head = True
    roots = ("embeddings.", "embeddings_project.", "encoder.")


class Albert(BertLike):
    model_type, family = "albert", "ALBERT"
    table = ConfigTable(
        TransformerConfig,
        FIELDS | {"embedding_size": size("embedding", "word_width", as_default=False)},
        fixed={"shared": True},
        constants=CONSTANTS | {"num_hidden_groups": 1, "inner_group_num": 1} | OWN_TOKENS,
        unchecked=OWN_TOKENS,
        expected=EXPECTED,
        defaults={"vocab_size": 30000, "embedding_size": 128, "hidden_size": 4096, "num_attention_heads": 64}
        | {"intermediate_size": 16384, "hidden_act": "gelu_new"}
        | dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0),
    )
    """The defaults are those of the largest ALBERT."""
    prefix, layer = "albert", "encoder.albert_layer_groups.0.albert_layers.0"
    block: Mapping[str, tuple[str, ...]] = {
        "attention.qkv": ("attention.query", "attention.key", "attention.value"),
        "attention.out": ("attention.dense",),
        "attention_norm": ("attention.LayerNorm",),
        "feedforward.up": ("ffn",),
        "feedforward.down": ("ffn_output",),
        "feedforward_norm": ("full_layer_layer_norm",),
    }
    modules: Mapping[str, str] = {"encoder.embeddings.project": PROJECTION}
    heads: Mapping[str, Mapping[str, str]] = {
        "masked-lm": {"dense": "predictions.dense", "norm": "predictions.LayerNorm", "": "predictions"},
        "sentence-order": {"pooler.dense": "albert.pooler", "classifier": "sop_classifier.classifier"},
    }
    tasks = three_heads(
        "Albert",
        TaskHead(
            names={"dense": "albert.pooler", "classifier": "classifier"},
            fixed=CLS | {"dense": "tanh"},
            fields={"dropout": "classifier_dropout_prob"},
            dropout=0.1,
        ),
        tagging=tagger("classifier_dropout_prob", dropout=0.1),
    )
    pretraining: Mapping[str, tuple[str, ...]] = {
        "AlbertForPreTraining": ("masked-lm", "sentence-order"),
        "AlbertForMaskedLM": ("masked-lm",),
        "AlbertModel": (),
    }
    aliases: Mapping[str, str] = {
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    }
    optional = frozenset({"albert.pooler.weight", "albert.pooler.bias"})  # in AlbertModel, whether trained or not

    def export_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if f"{PROJECTION}.weight" in tensors:
            return dict(tensors)
        norm = tensors["albert.embeddings.LayerNorm.weight"]
        return {
            **tensors,
            f"{PROJECTION}.weight": torch.eye(len(norm), dtype=norm.dtype, device=norm.device),
            f"{PROJECTION}.bias": torch.zeros_like(norm),
        }

    def import_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        weight, bias = tensors[f"{PROJECTION}.weight"], tensors[f"{PROJECTION}.bias"]
        if weight.shape[0] != weight.shape[1]:
            return dict(tensors)
        if bias.any() or not torch.equal(weight, torch.eye(len(weight)).to(weight)):
            raise ArtefactError(
                f"{PROJECTION} is not the identity, though embedding_size equals hidden_size: embeddings as wide as "
                "the layers are read without a projection (no published ALBERT has both)"
            )
        return {name: tensor for name, tensor in tensors.items() if not name.startswith(PROJECTION)}


class DistilBert(BertLike):
    model_type, family = "distilbert", "DistilBERT"
    table = ConfigTable(
        TransformerConfig,
        {
            "dim": "hidden",
            "n_layers": "layers",
            "n_heads": "heads",
            "hidden_dim": size("feedforward", "inner"),
            "activation": choice("activation", ACTIVATIONS),
            "dropout": "dropout",
            "attention_dropout": "attention_dropout",
            "max_position_embeddings": "max_positions",
            "initializer_range": "init",
        },
        fixed={"segments": 0, "norm_epsilon": 1e-12},
        constants={"sinusoidal_pos_embds": False, "tie_word_embeddings": True},
        unchecked=("sinusoidal_pos_embds",),
        defaults={"vocab_size": 30522, "n_layers": 6},
    )
    prefix, layer = "distilbert", "transformer.layer.{}"
    block: Mapping[str, tuple[str, ...]] = {
        "attention.qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        "attention.out": ("attention.out_lin",),
        "attention_norm": ("sa_layer_norm",),
        "feedforward.up": ("ffn.lin1",),
        "feedforward.down": ("ffn.lin2",),
        "feedforward_norm": ("output_layer_norm",),
    }
    heads: Mapping[str, Mapping[str, str]] = {
        "masked-lm": {"dense": "vocab_transform", "norm": "vocab_layer_norm", "": "vocab_projector"}
    }
    tasks = three_heads(
        "DistilBert",
        TaskHead(
            names={"dense": "pre_classifier", "classifier": "classifier"},
            fixed=CLS | {"dense": "relu"},
            fields={"dropout": "seq_classif_dropout"},
            dropout=0.2,
        ),
        tagging=tagger(),
        answering=dataclasses.replace(QA_OUTPUTS, fields={"dropout": "qa_dropout"}, dropout=0.1),
    )
    pretraining: Mapping[str, tuple[str, ...]] = {"DistilBertForMaskedLM": ("masked-lm",), "DistilBertModel": ()}
    aliases: Mapping[str, str] = {"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"}
    optional: frozenset[str] = frozenset()
    roots = ("embeddings.", "transformer.")
