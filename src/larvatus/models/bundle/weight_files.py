"""The tensors of one model, in one file or several, under the names that a layout's table uses.

files = WeightFiles.open(find_weights(directory), layout)     # headers only: nothing is allocated yet
unused = files.check(layout, wanted)                          # one error that lists all that does not fit
tensors = files.read(layout, allow_nan=False)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from larvatus.core.errors import ArtefactError
from larvatus.models.bundle import int8_file
from larvatus.models.bundle.huggingface import Layout
from larvatus.models.bundle.weights import TensorEntry, check_fit, check_float, iter_tensors, read_header


@dataclass(frozen=True)
class WeightFiles:
    """The tensors of one or several files, under the names that the layout's table uses."""

    paths: list[Path]
    entries: dict[str, TensorEntry]

    @property
    def name(self) -> Path:
        return self.paths[0] if len(self.paths) == 1 else self.paths[0].parent

    @classmethod
    def open(cls, paths: list[Path], layout: Layout) -> WeightFiles:
        entries: dict[str, TensorEntry] = {}
        for path in paths:
            header = int8_file.unpacked_header(path) if path.name == int8_file.NAME else read_header(path)
            for name, entry in header.items():
                known = layout.canonical(name)
                if known in entries:
                    raise ArtefactError(f"{path}: tensor {name} is there twice, under two names or in two files")
                if known is not None:
                    check_float(path, name, entry)
                    entries[known] = entry
        return cls(paths, entries)

    def check(self, layout: Layout, wanted: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
        """Refuse what does not fit, before anything is allocated; the names that stay unused."""
        shapes = {name: entry.shape for name, entry in self.entries.items()}
        for alias, original in layout.aliases.items():
            if alias in shapes:
                shapes.setdefault(original, shapes[alias])
                del shapes[alias]
        unused = tuple(sorted(name for name in shapes if name in layout.spare and name not in wanted))
        check_fit(self.name, stored={n: s for n, s in shapes.items() if n not in unused}, wanted=wanted)
        return unused

    def read(self, layout: Layout, *, allow_nan: bool) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for path in self.paths:
            stored = (
                int8_file.iter_unpacked(path, allow_nan=allow_nan)
                if path.name == int8_file.NAME
                else iter_tensors(path, allow_nan=allow_nan, integers=True)
            )
            for name, tensor in stored:
                known = layout.canonical(name)
                if known is not None:
                    tensors[known] = tensor
        for alias, original in layout.aliases.items():
            if alias in tensors:
                copy = tensors.pop(alias)
                if not torch.equal(tensors.setdefault(original, copy), copy):
                    raise ArtefactError(
                        f"{self.name}: {alias} differs from {original}, to which this kind of model ties it; "
                        "untied weights are not supported"
                    )
        return tensors
