"""Faults of labelled data: raised at once with their place, or collected and reported.

Every reader takes ``problems``. Without it the first fault is a `DataError`, ``train.conll:1042: 3 words but 2 tags``.
With it, what cannot be used is set aside and noted under its kind, and reading continues: nothing is dropped silently.

    problems = Problems()
    dataset = read_texts("train.csv", problems=problems)
    print(problems)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from larvatus.core.errors import DataError
from larvatus.data.bulk.skipped import skip_row
from larvatus.data.labelled.records import Place

Errors = Literal["refuse", "skip"]
"""How to handle rows that cannot be read, such as those without text or label."""
KEPT = 20
"""Faults of one kind whose places are kept; more are counted."""
SHOWN = 10
"""Faults of one kind whose places an error names; more are counted."""
SKIP = 'to skip such rows: --errors skip, in Python errors="skip"'


@dataclass(frozen=True, slots=True)
class Problem:
    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


@dataclass
class Problems:
    """What reading found wrong, by kind. It grows while reading continues."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Problem]] = field(default_factory=dict)

    def add(self, kind: str, place: Place, message: str) -> None:
        self.counts[kind] += 1
        kept = self.examples.setdefault(kind, [])
        if len(kept) < KEPT:
            kept.append(Problem(place, message))

    def take(self, other: Problems, renamed: Callable[[Place], Place]) -> None:
        """Add what another reading found, with other names for its places."""
        self.counts += other.counts
        for kind, problems in other.examples.items():
            kept = self.examples.setdefault(kind, [])
            kept += [Problem(renamed(each.place), each.message) for each in problems[: KEPT - len(kept)]]

    def __len__(self) -> int:
        return self.counts.total()

    def __str__(self) -> str:
        return " · ".join(f"{count:,} × {kind}" for kind, count in self.counts.most_common()) or "no problems"


def raise_problems(problems: Problems, *, way: str = "") -> None:
    """Raise one error that names all rows that cannot be used, up to a readable number; `way` ends it."""
    if not problems:
        return
    parts = [_of_kind(problems.examples[kind], count) for kind, count in problems.counts.items()]
    said = f"{len(problems):,} rows cannot be used: " if len(problems) > 1 else ""
    raise DataError(f"{said}{' · '.join(parts)}{f'; {way}' if way else ''}")


def _of_kind(kept: Sequence[Problem], count: int) -> str:
    """Faults of one kind: what they have in common once, and their places."""
    shown = kept[:SHOWN]
    more = f", and {count - len(shown):,} more" if count > len(shown) else ""
    if count == 1 or len({problem.message for problem in shown}) > 1:
        return " · ".join(map(str, shown)) + more
    first = shown[0].place
    places = ", ".join([str(first), *(problem.place.after(first) for problem in shown[1:])])
    return f"{places}{more}: {shown[0].message}"


def cause(problems: Problems | None) -> str:
    """Why nothing is left, to end an error with: the first fault that was set aside."""
    first = next((kept[0] for kept in problems.examples.values()), None) if problems is not None else None
    return f" ({first})" if first is not None else ""


def fault(problems: Problems | None, kind: str, place: Place, message: str) -> None:
    """Note a fault, or raise it where nobody collects; a long job may set bad rows aside (`data/bulk/skipped.py`)."""
    if problems is None:
        if skip_row(f"{place}: {message}"):
            return
        raise DataError(f"{place}: {message}")
    problems.add(kind, place, message)
