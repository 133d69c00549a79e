"""Vectors of a text: its units with their characters and vectors.

result = model.vectors(["The bank of the river."], unit="word")[0]
result.units                     # ('The', 'bank', 'of', 'the', 'river', '.')
result.vectors[1]                # the vector of "bank"
print(result)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from larvatus.core import notebook
from larvatus.core.arrays import Floats, Ints
from larvatus.core.tabular import Tabular
from larvatus.inference.vectors.layers import PARTS, Unit, layers_label

_SHOWN = 12


@dataclass(frozen=True, eq=False, repr=False)
class Vectors(Tabular):
    """The U units of one text, in order of the text (spans in the order given)."""

    text: str
    unit: Unit
    spans: Ints
    """[U, 2] characters of each unit in `text`."""
    vectors: Floats
    """[U, D], or [layers + 1, U, D] for all layers. Units in `missing` are NaN."""
    tokens: int
    """Tokens of the text, all of which were read …"""
    windows: int
    """… in this many windows."""
    layers: str = "last"
    """Layers that the vectors are of."""

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def array(self) -> Floats:
        """The vectors as an array: like `vectors`, but [D] for a sentence or document."""
        whole: Floats = self.vectors if self.unit in PARTS else self.vectors[..., 0, :]
        return whole

    @property
    def units(self) -> tuple[str, ...]:
        """The text of each unit."""
        return tuple(self.text[start:end] for start, end in self.spans.tolist())

    @property
    def missing(self) -> tuple[int, ...]:
        """Units without a vector: the vocabulary deletes all their characters (a lone accent, a control)."""
        column = self.vectors[..., 0] if self.vectors.ndim == 2 else self.vectors[0, :, 0]
        return tuple(np.flatnonzero(np.isnan(column)).tolist())

    def _repr_html_(self) -> str:
        top = self.vectors if self.vectors.ndim == 2 else self.vectors[-1]
        rows = [
            (text, *(f"{number:.3f}" for number in vector[:4].tolist()), "…")
            for text, vector in zip(self.units, top, strict=True)
        ]
        shape = " × ".join(map(str, self.vectors.shape))
        return notebook.table((self.unit, "1", "2", "3", "4", ""), rows, note=f"{shape}, {self.tokens:,} tokens read")

    def to_dict(self) -> dict[str, Any]:
        """For JSON: a missing vector is None."""
        missing = set(self.missing)
        by_unit = self.vectors if self.vectors.ndim == 2 else self.vectors.swapaxes(0, 1)
        return {
            "text": self.text,
            "unit": self.unit,
            "layers": self.layers,
            "tokens": self.tokens,
            "windows": self.windows,
            "units": [
                {"text": text, "start": start, "end": end, "vector": None if index in missing else vector.tolist()}
                for index, (text, (start, end), vector) in enumerate(
                    zip(self.units, self.spans.tolist(), by_unit, strict=True)
                )
            ],
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each unit; `vector` is a list (a list of lists for all layers), or None if it is missing."""
        return list(self.to_dict()["units"])

    def __str__(self) -> str:
        shape = " × ".join(map(str, self.vectors.shape))
        read = f"{self.tokens:,} tokens read" + (f" in {self.windows:,} windows" if self.windows > 1 else "")
        read += "" if self.layers == "last" else f" · {layers_label(self.layers)}"
        lines = [f"{len(self):,} {self.unit}{'s' if len(self) != 1 else ''} · {shape} · {read}"]
        top = self.vectors if self.vectors.ndim == 2 else self.vectors[-1]
        for text, vector in zip(self.units[:_SHOWN], top, strict=False):
            some = " ".join(f"{number:7.3f}" for number in vector[:4].tolist())
            lines.append(f"  {_short(text):<20}  {some} …")
        return "\n".join([*lines, *(["  …"] if len(self) > _SHOWN else [])])

    def __repr__(self) -> str:
        return f"<Vectors of {len(self):,} × {self.unit}, {' × '.join(map(str, self.vectors.shape))}>"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 20 else line[:19] + "…"
