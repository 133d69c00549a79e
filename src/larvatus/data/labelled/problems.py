"""Faults of labelled data: raised at once with their place, or collected and reported; and the report of a check.

Every reader takes ``problems``. Without it the first fault is a `DataError`, ``train.conll:1042: 3 words but 2 tags``.
With it, rows that cannot be used are skipped and counted under their kind, and reading continues: nothing is dropped
silently.

    problems = Problems()
    dataset = read_texts("train.csv", problems=problems)
    print(problems)

`Report` is what a check of a whole dataset found: errors, which stop training, and warnings, each with places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from larvatus.core.errors import DataError
from larvatus.data.bulk.parts import skip_row
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
    """Why nothing is left, to end an error with: the first collected fault."""
    first = next((kept[0] for kept in problems.examples.values()), None) if problems is not None else None
    return f" ({first})" if first is not None else ""


def fault(problems: Problems | None, kind: str, place: Place, message: str) -> None:
    """Note a fault, or raise it where nobody collects; a long job may set bad rows aside (`data/bulk/parts.py`)."""
    if problems is None:
        if skip_row(f"{place}: {message}"):
            return
        raise DataError(f"{place}: {message}")
    problems.add(kind, place, message)


Level = Literal["error", "warning"]
MOST_LABELS = 20
"""Labels that are printed; the rest are counted."""


@dataclass(frozen=True)
class Finding:
    """One kind of trouble: how often, and where first."""

    name: str
    level: Level
    count: int
    message: str
    """For people: ``12 texts occur more than once``."""
    examples: tuple[str, ...] = ()
    """``train.tsv:17: …``"""

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "count": self.count, "message": self.message, "examples": list(self.examples)}


@dataclass
class Tally:
    """Counts what is found and keeps the first few places of it."""

    most: int
    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self) -> bool:
        """Count one more; True where its place is still wanted, for `examples`."""
        self.count += 1
        return self.count <= self.most


@dataclass
class Findings:
    """Findings as they come."""

    most: int
    """Places shown of each."""
    listed: list[Finding] = field(default_factory=list)

    def add(
        self, name: str, level: Level, message: str, examples: Sequence[str] = (), count: int | None = None
    ) -> None:
        number = len(examples) if count is None else count
        if number:
            self.listed.append(Finding(name, level, number, message, tuple(examples[: self.most])))

    def tally(self) -> Tally:
        return Tally(self.most)


def count_noun(count: int, single: str, several: str) -> str:
    """
    >>> count_noun(1, "text", "texts"), count_noun(2_000, "text", "texts")
    ('1 text', '2,000 texts')
    """
    return f"{count:,} {single if count == 1 else several}"


@dataclass(frozen=True, kw_only=True)
class Report:
    sizes: dict[str, int]
    """Examples of train and, where given, dev."""
    kind: str
    """multi-class, multi-label, regression; or the scheme of tags: BIO, none, …"""
    balance: dict[str, dict[str, int]]
    """How often each label occurs in train and dev: classes, or types of entities, or tags; empty of numbers."""
    lengths: dict[str, float]
    """Median, 95th percentile and maximum of the lengths of train, in `unit`."""
    unit: str
    """tokens or words."""
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level == "warning")

    @property
    def _lengths(self) -> str:
        median, high, longest = (self.lengths[name] for name in ("median", "p95", "longest"))
        return f"median {median:g} · 95% up to {high:g} · longest {longest:,}"

    def __str__(self) -> str:
        lines = [
            " · ".join(f"{name}: {count_noun(size, 'example', 'examples')}" for name, size in self.sizes.items()),
            f"length of train in {self.unit}: {self._lengths}",
            *(f"labels of {name}: {_listed(counts)}" for name, counts in self.balance.items() if counts),
        ]
        for finding in self.findings:
            lines.append(f"{finding.level}: {finding.name}: {finding.message}")
            lines += [f"    {example}" for example in finding.examples]
            if finding.examples and finding.count > len(finding.examples):
                lines.append(f"    … and {finding.count - len(finding.examples):,} more")
        return "\n".join(lines if self.findings else [*lines, "nothing wrong was found"])

    def to_dict(self) -> dict[str, Any]:
        return {
            "sizes": self.sizes,
            "kind": self.kind,
            "balance": self.balance,
            "lengths": {**self.lengths, "unit": self.unit},
            "errors": [finding.to_dict() for finding in self.errors],
            "warnings": [finding.to_dict() for finding in self.warnings],
        }


def _listed(counts: Mapping[str, int]) -> str:
    """Labels with their counts, the commonest first."""
    shown = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:MOST_LABELS])
    return f"{shown}, and {len(counts) - MOST_LABELS:,} more" if len(counts) > MOST_LABELS else shown
