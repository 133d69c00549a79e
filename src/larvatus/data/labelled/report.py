"""What a check of labelled data found: errors that stop training, warnings that spoil it, each with places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from larvatus.core.errors import DataError

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

    def raise_errors(self) -> None:
        """One line of what stops training, if anything does."""
        if self.errors:
            first = self.errors[0]
            place = f"{first.examples[0]} ({first.message})" if first.examples else first.message
            more = f"; {len(self.errors) - 1} more kinds of error: larvatus data check" if len(self.errors) > 1 else ""
            raise DataError(f"{place}{more}")

    def to_dict(self) -> dict[str, Any]:
        return {
            "sizes": self.sizes,
            "kind": self.kind,
            "balance": self.balance,
            "lengths": {**self.lengths, "unit": self.unit},
            "errors": [_as_dict(finding) for finding in self.errors],
            "warnings": [_as_dict(finding) for finding in self.warnings],
        }


def _listed(counts: Mapping[str, int]) -> str:
    """Labels with their counts, the commonest first."""
    shown = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:MOST_LABELS])
    return f"{shown}, and {len(counts) - MOST_LABELS:,} more" if len(counts) > MOST_LABELS else shown


def _as_dict(finding: Finding) -> dict[str, Any]:
    return {
        "name": finding.name,
        "count": finding.count,
        "message": finding.message,
        "examples": list(finding.examples),
    }
