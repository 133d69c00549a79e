"""T5 as `transformers` stores it (Raffel et al. 2020): `T5ForConditionalGeneration`.

Version 1.0 has ReLUs and scores words by the vectors that embed them; version 1.1 has gated GELUs and an output table
of its own. `feed_forward_proj` states the first; `scale_decoder_outputs` the second, or `tie_word_embeddings` in files
that are older than that field.

    {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "feed_forward_proj": "relu", …}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor

from larvatus.core.errors import ArtefactError
from larvatus.core.ranges import CountOrNone, DropoutRate, Epsilon, Layers, Size
from larvatus.models.bundle.huggingface.config_table import ConfigTable, convert
from larvatus.models.bundle.huggingface.layout import Architecture, ModelLayout
from larvatus.models.bundle.huggingface.task_heads import OWN, UNNAMED, TaskHeads
from larvatus.models.heads.writing import TextToTextConfig
from larvatus.models.network import ObjectiveConfig, tag
from larvatus.models.nn.encoder_decoder import EncoderDecoderConfig
from larvatus.models.nn.feedforward import Activation
from larvatus.models.objectives import DenoisingConfig

PROJECTIONS: dict[str, tuple[Activation, bool]] = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "gated-gelu": ("gelu-tanh", True),
    "gated-relu": ("relu", True),
}
"""`feed_forward_proj` → our activation, and whether the feedforward layer is gated."""
ATTENTION = {"q": ("q",), "kv": ("k", "v"), "out": ("o",)}
BLOCK = {"attention": (0, "SelfAttention"), "cross": (1, "EncDecAttention")}
OUTPUT = "lm_head.weight"
BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias"
GENERATIVE = frozenset({"denoising", "writing"})
"""Heads of ours that are theirs unchanged: the decoder, and the vectors that score words."""


class T5Settings(msgspec.Struct, frozen=True, kw_only=True):
    model_type: Literal["t5"]
    architectures: tuple[str, ...] | None = None
    vocab_size: Size = 32128
    d_model: Size = 512
    d_kv: Size = 64
    d_ff: Size = 2048
    num_layers: Layers = 6
    num_decoder_layers: Layers | None = None
    num_heads: Size = 8
    relative_attention_num_buckets: Size = 32
    relative_attention_max_distance: Size = 128
    dropout_rate: DropoutRate = 0.1
    layer_norm_epsilon: Epsilon = 1e-6
    feed_forward_proj: Literal["relu", "gelu", "gated-gelu", "gated-relu"] = "relu"
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None
    n_positions: Size = 512
    decoder_start_token_id: CountOrNone | None = 0
    larvatus_head: TextToTextConfig | None = None


class T5(ModelLayout):
    model_type, family = "t5", "T5"
    table = ConfigTable(
        EncoderDecoderConfig,
        {
            "d_model": "hidden",
            "num_layers": "layers",
            "num_heads": "heads",
            "relative_attention_num_buckets": "relative_buckets",
            "relative_attention_max_distance": "relative_distance",
            "dropout_rate": "dropout",
            "layer_norm_epsilon": "norm_epsilon",
            "n_positions": "max_positions",
        },
        constants={"is_encoder_decoder": True, "initializer_factor": 1.0, "eos_token_id": 1, "dtype": "float32"},
    )
    """The plain fields; those that depend on each other are in `config` and `architecture`."""
    tasks = TaskHeads("T5", UNNAMED, separate=())
    architectures: Mapping[str, tuple[str, ...]] = {
        "T5ForConditionalGeneration": ("denoising",),
        "T5WithLMHeadModel": ("denoising",),
        "T5Model": (),
    }
    aliases: Mapping[str, str] = {
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
    }
    optional = frozenset({OUTPUT})  # in tied models, a copy of the word vectors

    def unsupported(self, architecture: Architecture) -> str | None:
        model, heads = architecture.model, {tag(config) for config in architecture.objectives}
        if not isinstance(model, EncoderDecoderConfig):
            return f"T5 has no {self.table.misfits(model)}"
        if (model.activation, model.gated) not in PROJECTIONS.values():
            return f"T5 has no model.activation = {model.activation!r} with model.gated = {str(model.gated).lower()}"
        if unknown := sorted(heads - GENERATIVE):
            return f"T5 has no head for {unknown[0]}"
        return None

    def config(self, architecture: Architecture, *, pad: int | None) -> dict[str, Any]:
        model = architecture.model
        assert isinstance(model, EncoderDecoderConfig)
        projection = (model.activation, model.gated)
        return {
            "model_type": self.model_type,
            "architectures": ["T5ForConditionalGeneration" if architecture.objectives else "T5Model"],
            "vocab_size": architecture.vocabulary,
            **self.table.write(model),
            "d_kv": model.size_of_heads,
            "d_ff": model.inner,
            "num_decoder_layers": model.decoder_blocks,
            "feed_forward_proj": next(name for name, ours in PROJECTIONS.items() if ours == projection),
            "tie_word_embeddings": model.tied,
            "scale_decoder_outputs": model.tied,
            "pad_token_id": pad,
            "decoder_start_token_id": model.start,
            **self._head_config(architecture.objectives),
        }

    def _head_config(self, objectives: Sequence[ObjectiveConfig]) -> dict[str, Any]:
        """How a model fine-tuned from text to text reads: a field of our own, which `transformers` keeps."""
        tuned = [config for config in objectives if tag(config) == "writing"]
        return {OWN: msgspec.to_builtins(tuned[0])} if tuned else {}

    def architecture(self, config: Mapping[str, Any], *, source: Path, names: frozenset[str]) -> Architecture:
        theirs: T5Settings = convert(config, T5Settings, source)
        self.promised_heads(theirs.architectures, source)
        activation, gated = PROJECTIONS[theirs.feed_forward_proj]
        scaled = theirs.scale_decoder_outputs
        tied = theirs.tie_word_embeddings if scaled is None else scaled
        if not tied and OUTPUT not in names:
            raise ArtefactError(
                f"{source}: the output is not scaled, so it needs its own output matrix, and there is no {OUTPUT}; "
                "set scale_decoder_outputs to true if the model was trained so"
            )
        decoder_layers = theirs.num_decoder_layers or theirs.num_layers
        whole = theirs.d_kv * theirs.num_heads == theirs.d_model
        model = {
            "decoder_layers": 0 if decoder_layers == theirs.num_layers else decoder_layers,
            "head_size": 0 if whole else theirs.d_kv,
            "feedforward": 0 if theirs.d_ff == 4 * theirs.d_model and not gated else theirs.d_ff,
            "activation": activation,
            "gated": gated,
            "tied": tied,
            "start": theirs.decoder_start_token_id or 0,
        }
        return Architecture(
            model=self.table.read(theirs, source, model),
            objectives=(DenoisingConfig() if theirs.larvatus_head is None else theirs.larvatus_head,),
            vocabulary=theirs.vocab_size,
        )

    def tensor_names(self, parameter: str) -> tuple[str, ...]:
        match parameter.split("."):
            case ["encoder", "words", _]:
                return ("shared.weight",)
            case ["encoder", "output", _]:
                return (OUTPUT,)
            case ["encoder", "decoder", *part]:
                return self._stack_names("decoder", part)
            case ["encoder", *part]:
                return self._stack_names("encoder", part)
        raise KeyError(parameter)

    def _stack_names(self, side: str, part: list[str]) -> tuple[str, ...]:
        feedforward = 2 if side == "decoder" else 1  # number of that layer in a block
        match part:
            case ["relative", kind]:
                return (f"{side}.{BIAS}.{kind}",)
            case ["final_norm", kind]:
                return (f"{side}.final_layer_norm.{kind}",)
            case ["blocks", number, ("attention" | "cross") as kind, matrix, _]:
                layer, name = BLOCK[kind]
                return tuple(
                    f"{side}.block.{number}.layer.{layer}.{name}.{letter}.weight" for letter in ATTENTION[matrix]
                )
            case ["blocks", number, ("attention_norm" | "cross_norm") as kind, _]:
                return (f"{side}.block.{number}.layer.{BLOCK[kind.removesuffix('_norm')][0]}.layer_norm.weight",)
            case ["blocks", number, "feedforward_norm", _]:
                return (f"{side}.block.{number}.layer.{feedforward}.layer_norm.weight",)
            case ["blocks", number, "feedforward", matrix, _]:
                place = f"{side}.block.{number}.layer.{feedforward}.DenseReluDense"
                return (f"{place}.{'wi' if matrix == 'up' else 'wo'}.weight",)
        raise KeyError(".".join(part))

    def export_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """They store a gated layer as two matrices: `wi_0`, and the gate `wi_1`."""
        theirs: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            place = name.removesuffix(".wi.weight")
            if place != name and len(tensor) == 2 * tensors[f"{place}.wo.weight"].shape[1]:
                theirs[f"{place}.wi_0.weight"], theirs[f"{place}.wi_1.weight"] = tensor.chunk(2)
            else:
                theirs[name] = tensor
        return theirs

    def import_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        ours = {name: tensor for name, tensor in tensors.items() if ".wi_" not in name}
        for name, tensor in tensors.items():
            if name.endswith(".wi_0.weight"):
                place = name.removesuffix(".wi_0.weight")
                ours[f"{place}.wi.weight"] = torch.cat([tensor, tensors[f"{place}.wi_1.weight"]])
        return ours
