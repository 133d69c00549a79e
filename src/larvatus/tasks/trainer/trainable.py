"""Which parameters fine-tuning trains (all, head, last layers, biases or LoRA), and the rate of each layer.

    all       every weight (Devlin et al. 2019)
    head      the head over frozen features (their §5.3; `features.py` computes those once)
    last2     the head and the two highest layers
    bias      the head and the biases of all layers and norms (BitFit, Ben Zaken et al. 2022)
    lora16    the head and low-rank additions of rank 16 (`models/nn/lora.py`, Hu et al. 2022); lora16-all: to all
              matrices of the layers, not only those of queries and values

With layer-wise decay (Howard & Ruder 2018; Clark et al. 2020) lower layers, which know more of language and less of the
task, learn slower: the highest layer has the rate, each below it `layer_decay` of the one above, embeddings least.

    groups = trainable(model, TrainableConfig.read("last2"), decay=0.01, seed=1)
    optimizer = torch.optim.AdamW(groups)
    for …:
        train_mode(model)                     # after every evaluation
        set_rate(optimizer, schedule(step))
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, get_args

import msgspec
from torch import nn

from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.ranges import Factor, LayersOrNone, PositiveShare, short_repr
from larvatus.core.settings import Settings
from larvatus.models.heads.head import Head
from larvatus.models.network import Network
from larvatus.models.nn.lora import TARGETS, LoRAConfig, add_lora
from larvatus.tasks.arguments import Trainable


class TrainableConfig(Settings):
    part: Trainable = msgspec.field(default="all", name="what")
    """Part of the model that is trained: all, head, or the head with the last layers, LoRA or biases."""
    last: LayersOrNone = 0
    """How many layers, with "last"."""
    layer_decay: PositiveShare = 1.0
    """The rate of a layer as a share of that of the layer above it; embeddings come below the lowest."""
    head_rate: Factor | None = None
    """The rate of the head, in rates of the highest layer; None: by the task, or 1."""
    crf_rate: Factor = 10.0
    """The rate of a CRF's transitions, in rates of the head."""
    lora: LoRAConfig = LoRAConfig()
    """With "lora"."""
    embeddings: bool = True
    """With "all": whether the embeddings learn too. Otherwise they never do."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.part not in (known := get_args(Trainable)):
            raise UsageError(f"{self.part!r} cannot be trained{did_you_mean(self.part, known)}")
        if (self.part == "last") != (self.last > 0):
            raise UsageError("the last layers are trained by number, one or more, such as last2, and only with last")

    @classmethod
    def read(cls, word: str, **settings: Any) -> TrainableConfig:
        """From the command line's word and the other settings.

        The scale α / r of LoRA is that of the default rank.

        >>> TrainableConfig.read("last2").last, TrainableConfig.read("lora16").lora.rank
        (2, 16)
        """
        match = re.fullmatch(r"(all|head|bias|last(?=\d)|lora)(\d{1,4})?((?<=\d)-all)?", word, flags=re.ASCII)
        number = None if match is None or match[2] is None else int(match[2])
        numbered = ("last", "lora") if match is not None and match[3] is None else ("lora",)
        if match is None or (number is not None and match[1] not in numbered):
            known = ["all", "head", "last1", "last2", "bias", "lora", "lora16", "lora16-all"]
            raise UsageError(f"{short_repr(word)} is not something to train{did_you_mean(word, known)}")
        if match[1] == "lora" and number is not None:
            targets = LoRAConfig().targets if match[3] is None else TARGETS
            settings["lora"] = LoRAConfig(rank=number, alpha=2.0 * number, targets=targets)
        if match[1] == "last":
            settings["last"] = number
        return cls(part=match[1], **settings)  # type: ignore[arg-type]

    @property
    def word(self) -> str:
        """The opposite of `read`: ``last2``, ``lora8``, ``lora8-all``."""
        every = "-all" if set(self.lora.targets) == set(TARGETS) else ""
        return self.part + {"last": str(self.last), "lora": f"{self.lora.rank}{every}"}.get(self.part, "")


def trainable(
    model: Network,
    config: TrainableConfig,
    *,
    decay: float,
    seed: int,
    rates: Mapping[str, float] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Choose the parameters to train, add LoRA if requested, and return parameter groups for AdamW.

    A group has `params`, `weight_decay` (`decay` for matrices, 0 for norms and biases) and `scale`: its share of the
    rate, see `engine.optimizer.set_rate`. `rates` are factors of the rates of heads, by name, where there are several.
    """
    parts = _parts(model)
    blocks = max(depth for depth, _ in parts)
    if config.part == "last":
        if blocks < model.encoder.depth:
            raise UsageError(
                "all layers of this model are one, so its last cannot be trained separately; train lora or all"
            )
        if config.last > blocks:
            raise UsageError(f"the model has {blocks} layers, so its last {config.last} cannot be trained")
    model.requires_grad_(False)
    if config.part == "lora":
        add_lora(model.encoder, config.lora, seed=seed)
    for depth, part in parts:
        if (config.part == "all" and (depth < blocks or config.embeddings)) or depth < config.last:
            part.requires_grad_(True)
    if config.part == "bias":
        _biases_learn(model)
    model.objectives.requires_grad_(True)
    scaled = [(config.layer_decay**depth, part) for depth, part in parts]
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    head_rate = config.head_rate or 1.0
    for rate, part in [*scaled, (head_rate, model.objectives)]:
        for name, parameter in part.named_parameters():
            if parameter.requires_grad:
                scale = rate * config.crf_rate if ".crf." in name else rate
                scale *= rates.get(name.partition(".")[0], 1.0) if part is model.objectives else 1.0
                key = (scale, decay if parameter.ndim >= 2 else 0.0)
                group = groups.setdefault(key, {"params": [], "weight_decay": key[1], "scale": scale})
                group["params"].append(parameter)
    return list(groups.values())


def _parts(model: Network) -> list[tuple[int, nn.Module]]:
    """Parts of the encoder that are trained with the head: all, except a decoder that the head does not read."""
    head = next((head for head in model.heads.values() if isinstance(head, Head)), None)
    return model.encoder.parts() if head is None else head.parts(model.encoder)


def _biases_learn(model: Network) -> None:
    """Biases of linear layers and norms, by their names."""
    biases = [parameter for name, parameter in model.encoder.named_parameters() if name.endswith("bias")]
    if not biases:
        raise UsageError("the model has no biases to train (as ModernBERT has none); train lora or all")
    for parameter in biases:
        parameter.requires_grad_(True)


def train_mode(model: Network) -> None:
    """`model.train()`, but with all below the lowest part that learns in evaluation mode.

    Those layers are a fixed function of the text, as they will be in use. Nothing of them wants a gradient, so torch
    keeps nothing of them for the backward pass.
    """
    model.train()
    for _, part in _parts(model):
        if any(parameter.requires_grad for parameter in part.parameters()):
            return
        part.eval()
