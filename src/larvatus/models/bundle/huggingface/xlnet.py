"""XLNet as `transformers` stores it (Yang et al. 2019): `XLNetLMHeadModel`, `XLNetModel`, …

They store query, key, value, output and distance matrices as [D, heads, size of a head], and vectors by head. They have
one dropout for everything, and so has ours. Distances have no limit there; the longest sequence is in a field of ours,
`larvatus_max_positions`. `mem_len` is our `memory`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from larvatus.core.errors import ArtefactError
from larvatus.core.ranges import Size, SizeOrNone
from larvatus.models.bundle.huggingface.bert_like import ACTIVATIONS
from larvatus.models.bundle.huggingface.config_table import ConfigTable, choice, or_none, size
from larvatus.models.bundle.huggingface.layout import TableLayout
from larvatus.models.bundle.huggingface.task_heads import LAST, TaskHead, TaskHeads, tagger
from larvatus.models.network import ObjectiveConfig
from larvatus.models.nn.xlnet import XLNetConfig
from larvatus.models.objectives import PermutationLMConfig

BLOCK = {
    "attention.qkv.weight": ("rel_attn.q", "rel_attn.k", "rel_attn.v"),
    "attention.out.weight": ("rel_attn.o",),
    "attention.distances.weight": ("rel_attn.r",),
    "attention.to_content": ("rel_attn.r_w_bias",),
    "attention.to_distance": ("rel_attn.r_r_bias",),
    "attention.to_segment": ("rel_attn.r_s_bias",),
    "attention.segments": ("rel_attn.seg_embed",),
    "attention_norm.weight": ("rel_attn.layer_norm.weight",),
    "attention_norm.bias": ("rel_attn.layer_norm.bias",),
    "feedforward.up.weight": ("ff.layer_1.weight",),
    "feedforward.up.bias": ("ff.layer_1.bias",),
    "feedforward.down.weight": ("ff.layer_2.weight",),
    "feedforward.down.bias": ("ff.layer_2.bias",),
    "feedforward_norm.weight": ("ff.layer_norm.weight",),
    "feedforward_norm.bias": ("ff.layer_norm.bias",),
}
WORDS, UNKNOWN, BIAS = "transformer.word_embedding.weight", "transformer.mask_emb", "lm_loss.bias"
TRANSPOSED = ("q", "k", "v", "r")
"""Theirs multiply from the left, so ours are the transposes."""
VECTORS = ("r_w_bias", "r_r_bias", "r_s_bias")


class XLNetLayout(TableLayout):
    model_type, family = "xlnet", "XLNet"
    table = ConfigTable(
        XLNetConfig,
        {
            "d_model": "hidden",
            "n_layer": "layers",
            "n_head": "heads",
            "d_inner": size("feedforward", "inner"),
            "ff_activation": choice("activation", ACTIVATIONS),
            "dropout": "dropout",
            "initializer_range": "init",
            "layer_norm_eps": "norm_epsilon",
            "mem_len": or_none("memory", SizeOrNone),
            "larvatus_max_positions": "max_positions",
        },
        constants={
            "attn_type": "bi",
            "summary_type": "last",
            "summary_use_proj": True,
            "summary_activation": "tanh",
            "tie_word_embeddings": True,
        },
        expected={"bi_data": False, "same_length": False, "untie_r": True},
        defaults={"vocab_size": 32000, "d_model": 1024, "n_layer": 24, "n_head": 16, "d_inner": 4096, "mem_len": 512},
        more={"d_head": (Size | None, None), "clamp_len": (Literal[-1, 0], -1)},
    )
    tasks = TaskHeads(
        "XLNet",
        {
            "classification": TaskHead(
                names={"dense": "sequence_summary.summary", "classifier": "logits_proj"},
                fixed=LAST | {"dense": "tanh"},
                fields={"dropout": "summary_last_dropout"},
                dropout=0.1,
            ),
            "tagging": tagger(),
        },
    )
    pretraining: Mapping[str, tuple[str, ...]] = {"XLNetLMHeadModel": ("permutation-lm",), "XLNetModel": ()}
    aliases: Mapping[str, str] = {"lm_loss.weight": WORDS}
    prefix = "transformer"
    roots = ("word_embedding.", "mask_emb", "layer.")

    def derived_config(self, model: XLNetConfig) -> dict[str, Any]:
        return {"d_head": model.hidden // model.heads}

    def read_settings(self, config: Mapping[str, Any], source: Path) -> Any:
        theirs = super().read_settings(config, source)
        if theirs.d_head is not None and theirs.d_head * theirs.n_head != theirs.d_model:
            raise ArtefactError(
                f"{source}: d_head = {theirs.d_head} times n_head = {theirs.n_head} is not d_model = {theirs.d_model}"
            )
        return theirs

    def objectives(self, promised: frozenset[str], names: frozenset[str]) -> tuple[ObjectiveConfig, ...]:
        return (PermutationLMConfig(),) if "permutation-lm" in promised or BIAS in names else ()

    def tensor_names(self, parameter: str) -> tuple[str, ...]:
        match parameter.split("."):
            case ["encoder", "embeddings", "words", "weight"]:
                return (WORDS,)
            case ["encoder", "query", "unknown"]:
                return (UNKNOWN,)
            case ["encoder", "blocks", i, *part]:
                return tuple(f"transformer.layer.{i}.{name}" for name in BLOCK[".".join(part)])
            case ["objectives", "permutation-lm", "bias"]:
                return (BIAS,)
            case ["objectives", head, *part] if head in self.tasks.heads:
                return self.tasks.tensor_names(head, ".".join(part))
        raise KeyError(parameter)

    def export_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        by_head = {place: segments.shape[1:] for place, segments in _segments(tensors).items()}
        exported = {}
        for name, tensor in tensors.items():
            place, _, part = name.rpartition(".")
            if name == UNKNOWN:
                exported[name] = tensor.view(1, 1, -1)
            elif place not in by_head:
                exported[name] = tensor
            elif part in VECTORS:
                exported[name] = tensor.view(*by_head[place])
            else:  # `o` is not transposed
                transposed = tensor.T if part in TRANSPOSED else tensor
                exported[name] = tensor if part == "seg_embed" else transposed.reshape(-1, *by_head[place])
        return exported

    def import_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        blocks = _segments(tensors)
        imported = {}
        for name, tensor in tensors.items():
            place, _, part = name.rpartition(".")
            if name == UNKNOWN or (place in blocks and part in VECTORS):
                imported[name] = tensor.flatten()
            elif place not in blocks or part == "seg_embed":
                imported[name] = tensor
            else:
                imported[name] = tensor.flatten(1).T if part in TRANSPOSED else tensor.flatten(1)
        return imported


def _segments(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The segment vectors [2, heads, size of a head] of each block, by its prefix."""
    end = ".seg_embed"
    return {name.removesuffix(end): tensor for name, tensor in tensors.items() if name.endswith(end)}
