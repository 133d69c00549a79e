"""What a decoder is to write for each sequence: the targets of denoising (T5), and of any task of text to text.

    >>> targets = DenoisedText(ids=np.array([9, 5, 1, 7, 1]), lengths=np.array([3, 2]))
    >>> targets.cut(tokens=(4, 6), sequences=(1, 2)).ids.tolist()
    [7, 1]

B sequences, M tokens to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from larvatus.core.arrays import Ints, Mapped, grown
from larvatus.core.batch import edges
from larvatus.core.errors import UsageError
from larvatus.core.predicted import IGNORE, Totals

A = TypeVar("A")


@dataclass(frozen=True, eq=False)
class DenoisedText(Mapped, Generic[A]):
    """The tokens to write of all sequences, laid end to end, each with what closes it."""

    what: ClassVar[str] = "spans behind sentinels"
    ids: A  # [M]
    lengths: A  # [B] of each sequence

    @property
    def count(self) -> int:
        return len(self.ids)  # type: ignore[arg-type]

    def cut(self, *, tokens: tuple[int, int], sequences: tuple[int, int]) -> DenoisedText[A]:
        border = edges(self.lengths)  # type: ignore[arg-type]
        first, last = int(border[sequences[0]]), int(border[sequences[1]])
        return DenoisedText(ids=self.ids[first:last], lengths=self.lengths[slice(*sequences)])  # type: ignore[index]

    @classmethod
    def join(cls, parts: Sequence[tuple[DenoisedText[Ints], int, int]]) -> DenoisedText[Ints]:
        texts: list[Any] = [part for part, _, _ in parts]
        return DenoisedText(
            ids=np.concatenate([text.ids for text in texts]), lengths=np.concatenate([text.lengths for text in texts])
        )

    def filled(self: DenoisedText[Ints], totals: Totals) -> DenoisedText[Ints]:
        """Filler tokens are written by the filler sequences, all as many."""
        missing, fillers = totals.targets - self.count, totals.sequences - len(self.lengths)
        if missing < 0 or (missing and not fillers):
            raise UsageError(f"a batch of {self.count} predicted tokens does not fit {totals.targets}; raise targets")
        ends = np.arange(1, fillers + 1) * missing // max(fillers, 1)
        return DenoisedText(
            ids=grown(self.ids, totals.targets, IGNORE),
            lengths=np.concatenate([self.lengths, np.diff(ends, prepend=0).astype(np.int64)]),
        )
