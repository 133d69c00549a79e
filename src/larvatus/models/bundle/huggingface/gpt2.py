"""GPT-2 as `transformers` writes it (Radford et al. 2019): `GPT2LMHeadModel`, `GPT2Model`, and its heads of tasks.

GPT's form (`openai_gpt.py`) with pre-norm, a norm above the last block, other names of the embeddings, and any width
and nonlinearity of the feedforward layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from torch import Tensor

from larvatus.core.ranges import Deviation, DropoutRate, Epsilon, Layers, Size
from larvatus.models.bundle.huggingface.layout import Architecture, convert, promised_heads
from larvatus.models.bundle.huggingface.openai_gpt import (
    BLOCK,
    LAST_TOKEN,
    PLAIN,
    causal,
    heads_refusal,
    named_class,
    read_heads,
    read_shape,
    shape,
    transposed,
)
from larvatus.models.bundle.huggingface.task_heads import ENDS, TOKENS, TaskHead, TaskHeads
from larvatus.models.network import tag
from larvatus.models.nn.causal_transformer import CausalTransformerConfig

EMBEDDINGS = {"words": "wte", "positions": "wpe"}
ACTIVATIONS = {"gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "gelu": "gelu", "relu": "relu"}
TASKS = TaskHeads(
    "GPT2",
    {
        "classification": LAST_TOKEN,
        "tagging": TaskHead(
            names={"classifier": "classifier"}, fixed=TOKENS, fields={"dropout": "classifier_dropout"}, dropout=0.1
        ),
        "answering": TaskHead(names={"classifier": "qa_outputs"}, fixed=ENDS, fields={}, dropout=0.0),
    },
    usual=PLAIN,
)
ARCHITECTURES = {"GPT2LMHeadModel": ("causal-lm",), "GPT2Model": (), **TASKS.architectures}


class GPT2Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of their config.json that change what is computed, with their defaults; the others are left alone."""

    vocab_size: Size = 50257
    n_positions: Size = 1024
    n_embd: Size = 768
    n_layer: Layers = 12
    n_head: Size = 12
    n_inner: Size | None = None
    activation_function: Literal["gelu_new", "gelu_pytorch_tanh", "gelu", "relu"] = "gelu_new"
    resid_pdrop: DropoutRate = 0.1
    embd_pdrop: DropoutRate = 0.1
    attn_pdrop: DropoutRate = 0.1
    layer_norm_epsilon: Epsilon = 1e-5
    initializer_range: Deviation = 0.02
    scale_attn_weights: Literal[True] = True
    scale_attn_by_inverse_layer_idx: Literal[False] = False
    add_cross_attention: Literal[False] = False
    tie_word_embeddings: Literal[True] = True
    architectures: tuple[str, ...] | None = ()


class GPT2:
    model_type = "gpt2"
    aliases: Mapping[str, str] = {"lm_head.weight": "transformer.wte.weight"}
    spare: frozenset[str] = frozenset()
    tasks = TASKS
    pad: int | None = None

    def refusal(self, architecture: Architecture) -> str | None:
        model = architecture.model
        if not isinstance(model, CausalTransformerConfig):
            return f'GPT-2 has no model.type = "{tag(model)}"'
        if model.norm != "pre":
            return f"GPT-2 has no model.norm = {model.norm!r}, always 'pre'"
        return heads_refusal("GPT-2", TASKS, architecture)

    def config(self, architecture: Architecture, *, pad: int | None) -> dict[str, Any]:
        model = causal(architecture)
        return {
            "model_type": self.model_type,
            "architectures": named_class(ARCHITECTURES, architecture),
            **shape(architecture),
            "n_inner": model.feedforward or None,
            "activation_function": next(name for name, ours in ACTIVATIONS.items() if ours == model.activation),
            "pad_token_id": pad,
            # theirs are ids of the published vocabulary; the tokenizer beside the model knows its own
            "bos_token_id": None,
            "eos_token_id": None,
            "dtype": "float32",
            **TASKS.config(architecture.objectives),
        }

    def architecture(self, config: Mapping[str, Any], *, source: Path, names: frozenset[str]) -> Architecture:
        theirs: GPT2Settings = convert(config, GPT2Settings, source)
        promised = promised_heads(theirs.architectures, ARCHITECTURES, source)
        model = read_shape(theirs, source) | {
            "norm": "pre",
            "residual_init": True,
            "feedforward": 0 if theirs.n_inner in (None, 4 * theirs.n_embd) else theirs.n_inner,
            "activation": ACTIVATIONS[theirs.activation_function],
        }
        return Architecture(
            model=convert(model, CausalTransformerConfig, source),
            objectives=read_heads(TASKS, config, promised, names, source),
            vocabulary=theirs.vocab_size,
        )

    def theirs(self, ours: str) -> tuple[str, ...]:
        place, _, kind = ours.rpartition(".")
        match place.split("."):
            case ["encoder", "embeddings", part]:
                return (f"transformer.{EMBEDDINGS[part]}.{kind}",)
            case ["encoder", "blocks", i, *part]:
                return (f"transformer.h.{i}.{BLOCK['.'.join(part)]}.{kind}",)
            case ["encoder", "final_norm"]:
                return (f"transformer.ln_f.{kind}",)
            case ["objectives", head, *part] if head in TASKS.heads:
                return TASKS.theirs(head, ".".join([*part, kind]))
        raise KeyError(ours)

    def canonical(self, name: str) -> str | None:
        if name.endswith((".attn.bias", ".attn.masked_bias")):  # constants that older versions saved as buffers
            return None
        return f"transformer.{name}" if name.startswith(("wte.", "wpe.", "h.", "ln_f.")) else name

    def recast(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return transposed(tensors)

    def restored(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return transposed(tensors)
