"""What a layout is: how one family of models is stored, in `config.json` and in the names of tensors.

A layout is tables of names plus the config table of its family (`config_table.py`). It opens no file. Where a family
stores several tensors for one of ours (query, key and value), ours is their concatenation:

    tensor_names("encoder.blocks.0.attention.qkv.bias") = ("….query.bias", "….key.bias", "….value.bias")

Where the tensors themselves differ (RoBERTa's positions begin at row 2), the layout overrides `export_tensors` and
`import_tensors`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from larvatus.core.errors import ArtefactError, RecipeError
from larvatus.core.ranges import Size
from larvatus.core.settings import Settings
from larvatus.models.bundle.huggingface.config_table import ConfigTable, convert
from larvatus.models.bundle.huggingface.task_heads import TaskHeads
from larvatus.models.bundle.weights import Shape
from larvatus.models.network import ObjectiveConfig, tag
from larvatus.models.nn.encoder import EncoderConfig

OWN_TOKENS = {"bos_token_id": None, "eos_token_id": None}
"""The defaults of `transformers` are ids of the published vocabulary; the saved tokenizer has its own."""


class Architecture(Settings, error=RecipeError):
    """Everything needed to build a model before its weights are read."""

    model: EncoderConfig
    objectives: tuple[ObjectiveConfig, ...]
    vocabulary: Size


def stated_architecture(architecture: Architecture) -> Architecture:
    """What config.json states: all but an embedding head, which `modules.json` describes in every layout."""
    stated = tuple(config for config in architecture.objectives if not getattr(config, "in_modules", False))
    return msgspec.structs.replace(architecture, objectives=stated)


def stored_tag(config: ObjectiveConfig) -> str:
    """The name of the head whose classes of `transformers` hold this one (`HeadConfig.stored_as`)."""
    return getattr(config, "stored_as", None) or tag(config)


class ModelLayout(ABC):
    model_type: str
    """The `model_type` of config.json that it reads and writes."""
    family: str
    """Name of the family in messages: BERT."""
    tasks: TaskHeads
    """The heads of fine-tuned models in this family."""
    architectures: Mapping[str, tuple[str, ...]]
    """Classes of `transformers`, and the heads of each by our names."""
    aliases: Mapping[str, str] = {}
    """Tensors that are only copies of others (tied weights): alias → original, both in canonical names."""
    optional: frozenset[str] = frozenset()
    """Tensors of theirs that may be unused."""
    pad: int | None = None
    """Padding id that the family's code relies on; a model with another is not written in this layout. None: any."""

    @abstractmethod
    def unsupported(self, architecture: Architecture) -> str | None:
        """Why this layout cannot express the architecture; None if it can."""

    @abstractmethod
    def config(self, architecture: Architecture, *, pad: int | None) -> dict[str, Any]:
        """The contents of config.json."""

    def module_fields(self, objectives: Sequence[ObjectiveConfig]) -> dict[str, Any]:
        """Fields of config.json that repeat what modules.json says, for libraries that do not read it."""
        return {}

    @abstractmethod
    def architecture(self, config: Mapping[str, Any], *, source: Path, names: frozenset[str]) -> Architecture:
        """The inverse of `config`. `names` are the tensors in the file: they show heads that config.json omits."""

    @abstractmethod
    def tensor_names(self, parameter: str) -> tuple[str, ...]:
        """Their names for one parameter of ours; several where ours concatenates them along the first axis."""

    def canonical_name(self, name: str) -> str | None:
        """The name by which the tables know a tensor: old spellings replaced; None for a buffer without weights."""
        return name

    def export_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Our tensors, under canonical names, as their file has them. Also works on the meta device, for shapes."""
        return dict(tensors)

    def import_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inverse of `export_tensors`."""
        return dict(tensors)

    def unsupported_heads(self, architecture: Architecture) -> str | None:
        """Why the family has no model with these heads; None if it has one."""
        if refused := self.tasks.unsupported(architecture.objectives):
            return refused
        heads = [stored_tag(config) for config in architecture.objectives]
        known = {head for heads in self.architectures.values() for head in heads}
        if unknown := sorted(set(heads) - known):
            return f"{self.family} has no head for {unknown[0]}"
        if not any(set(heads) == set(tags) for tags in self.architectures.values()):
            return f"{self.family} has no model with the heads {' and '.join(heads)}"
        return None

    def class_names(self, architecture: Architecture) -> list[str]:
        """The `architectures` field of config.json."""
        heads = {stored_tag(config) for config in architecture.objectives}
        return [next(name for name, tags in self.architectures.items() if set(tags) == heads)]

    def promised_heads(self, names: Sequence[str] | None, source: Path) -> frozenset[str]:
        """The heads that the `architectures` field of config.json names; an unknown class is refused."""
        for name in names or ():
            if name not in self.architectures:
                raise ArtefactError(
                    f"{source}: architecture {name!r} is not one of {', '.join(self.architectures)}, so its head "
                    "cannot be read; to use only its encoder, save that with transformers: "
                    "AutoModel.from_pretrained(…).save_pretrained(…)"
                )
        return frozenset(head for name in names or () for head in self.architectures[name])


class TableLayout(ModelLayout):
    """A layout of `transformers` that its tables describe."""

    table: ConfigTable
    pretraining: Mapping[str, tuple[str, ...]]
    """Classes of `transformers` without a task head, and the heads of each."""
    prefix: str
    """Beginning of the encoder's tensor names."""
    roots: tuple[str, ...]
    """Beginnings of tensor names that models without a head store without the prefix."""
    buffers: tuple[str, ...] = ()
    """Endings of constants that older versions saved as buffers."""

    def __init__(self) -> None:
        self.architectures = {**self.pretraining, **self.tasks.architectures}

    @property
    def settings(self) -> type[Any]:
        """The fields of config.json that are read."""
        return self.table.settings

    def unsupported(self, architecture: Architecture) -> str | None:
        if misfits := self.table.misfits(architecture.model):
            return f"{self.family} has no {misfits}"
        return self.unsupported_heads(architecture)

    def config(self, architecture: Architecture, *, pad: int | None) -> dict[str, Any]:
        return {
            "model_type": self.model_type,
            "architectures": self.class_names(architecture),
            "vocab_size": architecture.vocabulary,
            **self.table.write(architecture.model),
            **self.derived_config(architecture.model),
            "pad_token_id": pad,
            "dtype": "float32",
            **self.tasks.config(architecture.objectives),
        }

    def derived_config(self, model: Any) -> dict[str, Any]:
        """Fields of config.json that follow from several settings."""
        return {}

    def architecture(self, config: Mapping[str, Any], *, source: Path, names: frozenset[str]) -> Architecture:
        theirs = self.read_settings(config, source)
        model = self.table.read(theirs, source)
        promised = self.promised_heads(theirs.architectures, source)
        objectives = self.tasks.objectives(config, promised, dropout=model.dropout, source=source)
        objectives = objectives or self.objectives(promised, names)
        return Architecture(model=model, objectives=objectives, vocabulary=theirs.vocab_size)

    def read_settings(self, config: Mapping[str, Any], source: Path) -> Any:
        """The fields of config.json; what our encoder cannot express is refused."""
        return convert(config, self.settings, source)

    @abstractmethod
    def objectives(self, promised: frozenset[str], names: frozenset[str]) -> tuple[ObjectiveConfig, ...]:
        """The heads of pretraining that config.json promises or the file holds."""

    def canonical_name(self, name: str) -> str | None:
        if name.endswith(self.buffers):
            return None
        return f"{self.prefix}.{name}" if name.startswith(self.roots) else name


def to_huggingface(layout: ModelLayout, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters under their names, split where they store several."""
    split: dict[str, Tensor] = {}
    for ours, tensor in tensors.items():
        names = layout.tensor_names(ours)
        split.update(zip(names, tensor.chunk(len(names)) if len(names) > 1 else [tensor], strict=True))
    return layout.export_tensors(split)


def from_huggingface(
    layout: ModelLayout, tensors: Mapping[str, Tensor], parameters: Iterable[str]
) -> dict[str, Tensor]:
    """Their tensors under our names, in float32; always copies, so that the file may be closed."""
    tensors = layout.import_tensors(tensors)
    return {ours: _concatenated([tensors[name] for name in layout.tensor_names(ours)]) for ours in parameters}


def _concatenated(parts: Sequence[Tensor]) -> Tensor:
    if len(parts) == 1:  # a scalar cannot be concatenated
        return parts[0].to(torch.float32, copy=True)
    return torch.cat([part.to(torch.float32) for part in parts])


def huggingface_shapes(layout: ModelLayout, parameters: Mapping[str, Shape]) -> dict[str, Shape]:
    """The shapes that their tensors must have, from those of our parameters."""
    empty = {name: torch.empty(shape, device="meta") for name, shape in parameters.items()}
    return {name: tuple(tensor.shape) for name, tensor in to_huggingface(layout, empty).items()}
