"""GPT (Radford et al. 2018) and GPT-2 (Radford et al. 2019) as `transformers` stores them: `OpenAIGPTLMHeadModel`,
`GPT2LMHeadModel`, the models without a head, and the heads of tasks.

Three things differ in form:

    matrices     theirs (`Conv1D`) are [in, out], ours [out, in]: transposed both ways
    causal-lm    has no weights of its own: `lm_head` is the word embeddings again
    dropout      theirs has a rate for embeddings and one for layers, ours one for both: different rates are refused

GPT is post-norm, its `afn = "gelu"` is the approximation by tanh, and its feedforward layer is always four times as
wide. GPT-2 is pre-norm with a norm above the last block, and any width and nonlinearity of the feedforward layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from larvatus.core.errors import ArtefactError
from larvatus.core.ranges import Size
from larvatus.models.bundle.huggingface.config_table import ConfigField, ConfigTable, choice, or_none
from larvatus.models.bundle.huggingface.layout import OWN_TOKENS, Architecture, TableLayout
from larvatus.models.bundle.huggingface.task_heads import LAST, QA_OUTPUTS, TaskHead, TaskHeads, tagger
from larvatus.models.network import ObjectiveConfig
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.objectives import CausalLMConfig

FIELDS: dict[str, str | ConfigField] = {
    "n_positions": "max_positions",
    "n_embd": "hidden",
    "n_layer": "layers",
    "n_head": "heads",
    "resid_pdrop": "dropout",
    "embd_pdrop": "dropout",
    "attn_pdrop": "attention_dropout",
    "layer_norm_epsilon": "norm_epsilon",
    "initializer_range": "init",
}
BLOCK = {
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "attention_norm": "ln_1",
    "feedforward.up": "mlp.c_fc",
    "feedforward.down": "mlp.c_proj",
    "feedforward_norm": "ln_2",
}
TRANSPOSED = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
LAST_TOKEN = TaskHead(
    names={"classifier": "score"}, fixed=LAST | {"dense": "none", "bias": False}, fields={}, dropout=0.0
)
"""Classes are scored from the last token, by a matrix only."""
PLAIN = {"choosing": {"dense": "none"}}
"""Endings, too, are scored by a matrix only."""


class GPT(TableLayout):
    """The attributes are GPT's."""

    model_type, family = "openai-gpt", "GPT"
    table = ConfigTable(
        CausalTransformerConfig,
        FIELDS | {"afn": choice("activation", {"gelu": "gelu-tanh", "relu": "relu"})},
        constants={"tie_word_embeddings": True},
        defaults={"vocab_size": 40478},
    )
    embeddings: Mapping[str, str] = {"words": "tokens_embed", "positions": "positions_embed"}
    tasks = TaskHeads("OpenAIGPT", {"classification": LAST_TOKEN}, defaults=PLAIN)
    pretraining: Mapping[str, tuple[str, ...]] = {"OpenAIGPTLMHeadModel": ("causal-lm",), "OpenAIGPTModel": ()}
    aliases: Mapping[str, str] = {"lm_head.weight": "transformer.tokens_embed.weight"}
    prefix = "transformer"
    roots: tuple[str, ...] = ("tokens_embed.", "positions_embed.", "h.")
    buffers: tuple[str, ...] = (".attn.bias", "position_ids")

    def unsupported(self, architecture: Architecture) -> str | None:
        model = architecture.model
        if not isinstance(model, CausalTransformerConfig):
            return f"{self.family} has no {self.table.misfits(model)}"
        return self.unsupported_model(model) or self.unsupported_heads(architecture)

    def unsupported_model(self, model: CausalTransformerConfig) -> str | None:
        if model.norm != "post" or model.inner != 4 * model.hidden or model.activation == "gelu":
            return (
                f"GPT has no model.norm = {model.norm!r}, model.feedforward = {model.feedforward}, "
                f"model.activation = {model.activation!r} together"
            )
        return None

    def read_settings(self, config: Mapping[str, Any], source: Path) -> Any:
        theirs = super().read_settings(config, source)
        if theirs.embd_pdrop != theirs.resid_pdrop:
            raise ArtefactError(
                f"{source}: embd_pdrop = {theirs.embd_pdrop} and resid_pdrop = {theirs.resid_pdrop} differ, which is "
                "not supported; set both to one rate"
            )
        return theirs

    def objectives(self, promised: frozenset[str], names: frozenset[str]) -> tuple[ObjectiveConfig, ...]:
        """Published files may hold only the encoder (GPT-2's); their config.json then names the class with the head."""
        return (CausalLMConfig(),) if "causal-lm" in promised or "lm_head.weight" in names else ()

    def tensor_names(self, parameter: str) -> tuple[str, ...]:
        place, _, kind = parameter.rpartition(".")
        match place.split("."):
            case ["encoder", "embeddings", part]:
                return (f"transformer.{self.embeddings[part]}.{kind}",)
            case ["encoder", "blocks", i, *part]:
                return (f"transformer.h.{i}.{BLOCK['.'.join(part)]}.{kind}",)
            case ["encoder", "final_norm"]:
                return (f"transformer.ln_f.{kind}",)
            case ["objectives", head, *part] if head in self.tasks.heads:
                return self.tasks.tensor_names(head, ".".join([*part, kind]))
        raise KeyError(parameter)

    def export_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: t.T.contiguous() if name.endswith(TRANSPOSED) else t for name, t in tensors.items()}

    def import_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.export_tensors(tensors)


class GPT2(GPT):
    model_type, family = "gpt2", "GPT-2"
    table = ConfigTable(
        CausalTransformerConfig,
        FIELDS
        | {
            "n_inner": or_none("feedforward", Size, "inner"),
            "activation_function": choice(
                "activation",
                {"gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "gelu": "gelu", "relu": "relu"},
            ),
        },
        fixed={"norm": "pre", "residual_init": True},
        constants={"tie_word_embeddings": True} | OWN_TOKENS,
        unchecked=OWN_TOKENS,
        expected={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
        defaults={"vocab_size": 50257, "n_positions": 1024},
    )
    embeddings: Mapping[str, str] = {"words": "wte", "positions": "wpe"}
    tasks = TaskHeads(
        "GPT2",
        {
            "classification": LAST_TOKEN,
            "tagging": tagger("classifier_dropout", dropout=0.1),
            "answering": QA_OUTPUTS,
        },
        defaults=PLAIN,
    )
    pretraining: Mapping[str, tuple[str, ...]] = {"GPT2LMHeadModel": ("causal-lm",), "GPT2Model": ()}
    aliases: Mapping[str, str] = {"lm_head.weight": "transformer.wte.weight"}
    roots = ("wte.", "wpe.", "h.", "ln_f.")
    buffers = (".attn.bias", ".attn.masked_bias")

    def unsupported_model(self, model: CausalTransformerConfig) -> str | None:
        return f"GPT-2 has no model.norm = {model.norm!r}, always 'pre'" if model.norm != "pre" else None
