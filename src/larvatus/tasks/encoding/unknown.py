"""Labels of validation or test examples that the model does not know: counted as wrong and reported, or refused.

    unknown = unknown_texts(dev.examples, config)      # classes that no training example had
    unknown.note("texts", "labelled with classes")     # 3 of 872 texts are labelled with classes that the model …
    gold = unknown.added_to(labels, known=2)           # class numbers 2, 3, … are the unknown ones

An annotated corpus has rare types in one part only (GUM, GermEval 2014). No model can give what it never saw, so such a
label is a wrong class, a wrong tag, or a span that is missed, as scorers that compare names count it (`seqeval`,
scikit-learn). It is left out where a probability is wanted of it: in losses, in calibration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Ints
from larvatus.core.errors import DataError

NAMED = 5
"""Labels that a note names; more are counted."""


@dataclass(frozen=True, eq=False)
class UnknownLabels:
    """The labels that the model lacks, and their places among `total` texts, words, spans or relations."""

    names: tuple[str, ...] = ()
    places: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # [U] number of the text or word
    labels: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # [U] which of the names
    total: int = 0
    first: str = ""
    """Place and name of the first one, for an error."""

    @classmethod
    def of(cls, unknown: Sequence[tuple[int, str]], *, total: int, first: str = "") -> UnknownLabels:
        """From places and names."""
        names = tuple(sorted({name for _, name in unknown}))
        number = {name: at for at, name in enumerate(names)}
        places = np.array([place for place, _ in unknown], np.int64)
        return cls(names, places, np.array([number[name] for _, name in unknown], np.int64), total, first)

    def __len__(self) -> int:
        return len(self.places)

    def added_to(self, labels: npt.NDArray[np.generic], *, known: int) -> npt.NDArray[np.generic]:
        """Gold labels with the unknown ones as numbers from `known` on; of tables of truth, as further columns."""
        if not self.names:
            return labels
        if labels.ndim == 2:
            more = np.zeros((len(labels), len(self.names)), labels.dtype)
            more[self.places, self.labels] = 1
            return np.concatenate([labels, more], axis=1)
        gold = labels.copy()
        gold[self.places] = known + self.labels
        return gold

    def note(self, items: str, what: str, *, fate: str = "count as wrong") -> str:
        """One line for people; empty where everything is known."""
        if not self.names:
            return ""
        counts = Counter(self.names[label] for label in self.labels.tolist()).most_common()
        named = ", ".join(f"{name} {count:,}" for name, count in counts[:NAMED])
        more = f", and {len(counts) - NAMED:,} more" if len(counts) > NAMED else ""
        return (
            f"{len(self):,} of {self.total:,} {items} are {what} that the model does not know ({named}{more}); "
            f"they {fate}, and --strict refuses them"
        )

    def check(self, *, strict: bool) -> None:
        """Refuse such labels where they are not to be passed over, and where there are no others: the data are of
        another task, or another column was read."""
        if self.names and strict:
            raise DataError(self.first)
        if self.names and len(self) == self.total:
            raise DataError(f"{self.first}, nor any other of these {self.total:,} labels; give data that have its own")
