"""GPT as `transformers` writes it (Radford et al. 2018): `OpenAIGPTLMHeadModel`, `OpenAIGPTModel`, and its classifier.

Three things differ in form, here and in GPT-2:

    matrices     theirs (`Conv1D`) are [in, out], ours [out, in]: transposed both ways
    causal-lm    has no weights of its own: `lm_head` is the word embeddings again
    dropout      theirs has a rate for embeddings and one for layers, ours one for both: others are refused

`afn = "gelu"` is the approximation by tanh; the feedforward layer is always four times as wide.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from torch import Tensor

from larvatus.core.errors import ArtefactError
from larvatus.core.ranges import Deviation, DropoutRate, Epsilon, Layers, Size
from larvatus.models.bundle.huggingface.layout import Architecture, convert, promised_heads
from larvatus.models.bundle.huggingface.task_heads import LAST, TaskHead, TaskHeads
from larvatus.models.network import ObjectiveConfig, tag
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.objectives import CausalLMConfig

BLOCK = {
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "attention_norm": "ln_1",
    "feedforward.up": "mlp.c_fc",
    "feedforward.down": "mlp.c_proj",
    "feedforward_norm": "ln_2",
}
EMBEDDINGS = {"words": "tokens_embed", "positions": "positions_embed"}
TRANSPOSED = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
LAST_TOKEN = TaskHead(
    names={"classifier": "score"}, fixed=LAST | {"dense": "none", "bias": False}, fields={}, dropout=0.0
)
"""Classes are told from the last token, by a matrix alone."""
PLAIN = {"choosing": {"dense": "none"}}
"""Of endings, too, the score is told by a matrix alone."""
TASKS = TaskHeads("OpenAIGPT", {"classification": LAST_TOKEN}, usual=PLAIN)
ARCHITECTURES = {"OpenAIGPTLMHeadModel": ("causal-lm",), "OpenAIGPTModel": (), **TASKS.architectures}


class OpenAIGPTSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of their config.json that change what is computed, with their defaults; the others are left alone."""

    vocab_size: Size = 40478
    n_positions: Size = 512
    n_embd: Size = 768
    n_layer: Layers = 12
    n_head: Size = 12
    afn: Literal["gelu", "relu"] = "gelu"
    resid_pdrop: DropoutRate = 0.1
    embd_pdrop: DropoutRate = 0.1
    attn_pdrop: DropoutRate = 0.1
    layer_norm_epsilon: Epsilon = 1e-5
    initializer_range: Deviation = 0.02
    tie_word_embeddings: Literal[True] = True
    architectures: tuple[str, ...] | None = ()


class OpenAIGPT:
    model_type = "openai-gpt"
    aliases: Mapping[str, str] = {"lm_head.weight": "transformer.tokens_embed.weight"}
    spare: frozenset[str] = frozenset()
    tasks = TASKS
    pad: int | None = None

    def refusal(self, architecture: Architecture) -> str | None:
        model = architecture.model
        if not isinstance(model, CausalTransformerConfig):
            return f'GPT has no model.type = "{tag(model)}"'
        if model.norm != "post" or model.inner != 4 * model.hidden or model.activation == "gelu":
            return (
                f"GPT has no model.norm = {model.norm!r}, model.feedforward = {model.feedforward}, "
                f"model.activation = {model.activation!r} together"
            )
        return heads_refusal("GPT", TASKS, architecture)

    def config(self, architecture: Architecture, *, pad: int | None) -> dict[str, Any]:
        model = causal(architecture)
        return {
            "model_type": self.model_type,
            "architectures": named_class(ARCHITECTURES, architecture),
            **shape(architecture),
            "afn": "relu" if model.activation == "relu" else "gelu",
            "pad_token_id": pad,
            "dtype": "float32",
            **TASKS.config(architecture.objectives),
        }

    def architecture(self, config: Mapping[str, Any], *, source: Path, names: frozenset[str]) -> Architecture:
        theirs: OpenAIGPTSettings = convert(config, OpenAIGPTSettings, source)
        promised = promised_heads(theirs.architectures, ARCHITECTURES, source)
        return Architecture(
            model=convert(
                read_shape(theirs, source) | {"activation": "gelu-tanh" if theirs.afn == "gelu" else theirs.afn},
                CausalTransformerConfig,
                source,
            ),
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
            case ["objectives", head, *part] if head in TASKS.heads:
                return TASKS.theirs(head, ".".join([*part, kind]))
        raise KeyError(ours)

    def canonical(self, name: str) -> str | None:
        if name.endswith((".attn.bias", "position_ids")):  # constants that older versions saved as buffers
            return None
        return f"transformer.{name}" if name.startswith(("tokens_embed.", "positions_embed.", "h.")) else name

    def recast(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return transposed(tensors)

    def restored(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return transposed(tensors)


def transposed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices of blocks the other way round; once more gives them back."""
    return {name: t.T.contiguous() if name.endswith(TRANSPOSED) else t for name, t in tensors.items()}


def causal(architecture: Architecture) -> CausalTransformerConfig:
    """The settings of a model that such a layout can express."""
    assert isinstance(architecture.model, CausalTransformerConfig), "asked before: refusal()"
    return architecture.model


def heads_refusal(family: str, tasks: TaskHeads, architecture: Architecture) -> str | None:
    """Why a family has no such heads; None if it has them."""
    if refused := tasks.refusal(architecture.objectives):
        return refused
    heads = {tag(config) for config in architecture.objectives}
    unknown = sorted(heads - {"causal-lm", *tasks.heads})
    return f"{family} has no head for {unknown[0]}" if unknown else None


def named_class(known: Mapping[str, tuple[str, ...]], architecture: Architecture) -> list[str]:
    """The `architectures` of config.json."""
    heads = tuple(tag(config) for config in architecture.objectives)
    return [next(name for name, tags in known.items() if tags == heads)]


def shape(architecture: Architecture) -> dict[str, Any]:
    """What both config.json say of sizes and rates."""
    model = causal(architecture)
    return {
        "vocab_size": architecture.vocabulary,
        "n_positions": model.max_positions,
        "n_embd": model.hidden,
        "n_layer": model.layers,
        "n_head": model.heads,
        "resid_pdrop": model.dropout,
        "embd_pdrop": model.dropout,
        "attn_pdrop": model.attention_dropout,
        "layer_norm_epsilon": model.norm_epsilon,
        "initializer_range": model.init,
        "tie_word_embeddings": True,
    }


def read_shape(theirs: Any, source: Path) -> dict[str, Any]:
    """The opposite; `theirs` has the fields of both."""
    if theirs.embd_pdrop != theirs.resid_pdrop:
        raise ArtefactError(
            f"{source}: embd_pdrop = {theirs.embd_pdrop} and resid_pdrop = {theirs.resid_pdrop} differ, which is not "
            "supported; set both to one rate"
        )
    return {
        "max_positions": theirs.n_positions,
        "hidden": theirs.n_embd,
        "layers": theirs.n_layer,
        "heads": theirs.n_head,
        "dropout": theirs.resid_pdrop,
        "attention_dropout": theirs.attn_pdrop,
        "norm_epsilon": theirs.layer_norm_epsilon,
        "init": theirs.initializer_range,
    }


def read_heads(
    tasks: TaskHeads, config: Mapping[str, Any], promised: frozenset[str], names: frozenset[str], source: Path
) -> tuple[ObjectiveConfig, ...]:
    """The task head that a config promises, or else causal-lm: every such encoder can predict the next token.

    Files of the encoder alone are those of published models, too (GPT-2's), whose config names the class with the head.
    """
    of_task = tasks.objectives(config, promised, dropout=config.get("resid_pdrop", 0.1), source=source)
    predicts = "causal-lm" in promised or "lm_head.weight" in names
    return of_task or ((CausalLMConfig(),) if predicts else ())
