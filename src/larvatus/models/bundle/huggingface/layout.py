"""What a layout is: how one family of models is written down in `config.json` and in the names of tensors.

A layout is one file: tables of names, and the settings both ways. It knows no tensor and opens no file. Where they keep
several tensors for one of ours (query, key and value), ours is those end to end:

    theirs("encoder.blocks.0.attention.qkv.bias") = ("….query.bias", "….key.bias", "….value.bias")

Where the tensors themselves differ (RoBERTa's positions begin at row 2), the layout is a `Recast` too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec
import torch
from torch import Tensor

from larvatus.core.errors import ArtefactError, RecipeError
from larvatus.core.ranges import Size
from larvatus.core.settings import Settings
from larvatus.models.bundle.huggingface.settings import convert as convert
from larvatus.models.bundle.huggingface.task_heads import TaskHeads
from larvatus.models.bundle.weights import Shape
from larvatus.models.network import ObjectiveConfig
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.nn.transformer import TransformerConfig


class Architecture(Settings, error=RecipeError):
    """All that is needed to build a model before its weights are read."""

    model: EncoderConfig
    objectives: tuple[ObjectiveConfig, ...]
    vocabulary: Size


class Layout(Protocol):
    model_type: str
    """The `model_type` of config.json that it reads and writes."""

    def refusal(self, architecture: Architecture) -> str | None:
        """Why this layout cannot express the architecture; None if it can."""

    def config(self, architecture: Architecture, *, pad: int | None) -> dict[str, Any]:
        """The contents of config.json."""

    def architecture(self, config: Mapping[str, Any], *, source: Path, names: frozenset[str]) -> Architecture:
        """The opposite. `names` are the tensors in the file: they show heads that the config does not name."""

    def theirs(self, ours: str) -> tuple[str, ...]:
        """Their names for one parameter of ours, several where ours is those joined along the first axis."""

    def canonical(self, name: str) -> str | None:
        """The name by which the tables know a tensor: old spellings made new, None for a buffer without weights."""

    aliases: Mapping[str, str]
    """Tensors that are only copies of others (tied weights): alias → original, both in canonical names."""

    spare: frozenset[str]
    """Tensors of theirs that may stay unused when the table does not ask for them."""

    tasks: TaskHeads
    """The heads of fine-tuned models in this family."""


@runtime_checkable
class Recast(Protocol):
    """What a layout has besides, where renaming and splitting is not enough. Both ways under canonical names."""

    pad: int | None
    """The padding id on which their form rests: a model with another is not written in this layout. None: any."""

    def recast(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Our tensors as their file has them. Works on tensors without memory, which show the shapes."""

    def restored(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The opposite."""


def misfits(model: msgspec.Struct, free: Set[str], fixed: Mapping[str, Any] | None = None) -> str:
    """The settings that a layout has no field for: all but the `free` must be as `fixed`, or else by default."""
    if not isinstance(model, TransformerConfig):
        return f'model.type = "{model.__struct_config__.tag}"'
    usual = TransformerConfig()
    wanted = {name: getattr(usual, name) for name in model.__struct_fields__ if name not in free} | dict(fixed or {})
    misfit = {name: getattr(model, name) for name, value in wanted.items() if getattr(model, name) != value}
    return ", ".join(f"model.{name} = {value!r}" for name, value in misfit.items())


def transformer_of(architecture: Architecture) -> TransformerConfig:
    """The settings of a model that a layout with `misfits` can express."""
    assert isinstance(architecture.model, TransformerConfig), "asked before: refusal()"
    return architecture.model


def promised_heads(
    architectures: Sequence[str] | None, known: Mapping[str, Sequence[str]], source: Path
) -> frozenset[str]:
    """The heads that the `architectures` of config.json name; one that is not known is refused."""
    for name in architectures or ():
        if name not in known:
            raise ArtefactError(
                f"{source}: architecture {name!r} is not one of {', '.join(known)}, and its head is not read; to take "
                "its encoder alone, save that with transformers: AutoModel.from_pretrained(…).save_pretrained(…)"
            )
    return frozenset(head for name in architectures or () for head in known[name])


def to_theirs(layout: Layout, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters under their names, split where they keep several."""
    split: dict[str, Tensor] = {}
    for ours, tensor in tensors.items():
        names = layout.theirs(ours)
        split.update(zip(names, tensor.chunk(len(names)) if len(names) > 1 else [tensor], strict=True))
    return layout.recast(split) if isinstance(layout, Recast) else split


def to_ours(layout: Layout, tensors: Mapping[str, Tensor], parameters: Iterable[str]) -> dict[str, Tensor]:
    """Their tensors under our names, in float32: always copies, so that the file may go away."""
    if isinstance(layout, Recast):
        tensors = layout.restored(tensors)
    return {ours: _joined([tensors[name] for name in layout.theirs(ours)]) for ours in parameters}


def _joined(parts: Sequence[Tensor]) -> Tensor:
    if len(parts) == 1:  # a single number cannot be joined to anything
        return parts[0].to(torch.float32, copy=True)
    return torch.cat([part.to(torch.float32) for part in parts])


def their_shapes(layout: Layout, parameters: Mapping[str, Shape]) -> dict[str, Shape]:
    """The shapes that their tensors must have, from those of our parameters."""
    shells = {name: torch.empty(shape, device="meta") for name, shape in parameters.items()}
    return {name: tuple(tensor.shape) for name, tensor in to_theirs(layout, shells).items()}
