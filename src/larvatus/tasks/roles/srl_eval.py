"""Scores of arguments as srl-eval.pl of CoNLL-2005 counts them.

    counts = compare_frames(gold.arguments, predicted.arguments)      # right, excess, missed, by role
    counts.total.right, counts.by_role["ARG0"].missed, counts.verbs

The rules, one predicate at a time:

- An argument is right if its role and all its words are. One in pieces (ARG1 … C-ARG1) is a single argument, right if
  role and pieces are; it counts under the role of its first piece. C-ARG1 continues the last ARG1 before it; where none
  came before, it is an ARG1 by itself.
- R-ARG1 is a role like any other.
- V is not among the arguments. It is counted by itself.
- Of two gold arguments from the same first to the same last word only the later could be found; arguments of one
  predicate share no word here, so there are none.
- Arguments of a gold predicate that was not found are missed; those of a predicate that is none are not counted by the
  script, which is given the predicates. Scores with found predicates count them as excess.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from larvatus.tasks.roles.examples import CONTINUED, VERB, RoleSpan, in_order

Pieces = tuple[tuple[int, int], ...]


class WholeArgument(NamedTuple):
    """An argument with all its pieces, first and last word of each."""

    role: str
    pieces: Pieces


def whole_arguments(spans: Iterable[RoleSpan]) -> list[WholeArgument]:
    """Arguments with their continuations.

    >>> whole_arguments([RoleSpan("A1", 0, 1), RoleSpan("C-A1", 4, 5), RoleSpan("C-A2", 6, 6)])
    [WholeArgument(role='A1', pieces=((0, 1), (4, 5))), WholeArgument(role='A2', pieces=((6, 6),))]
    """
    arguments: list[tuple[str, list[tuple[int, int]]]] = []
    last: dict[str, list[tuple[int, int]]] = {}
    for role, begin, end in in_order(spans):
        base = role.removeprefix(CONTINUED)
        if role.startswith(CONTINUED) and base in last:
            last[base].append((begin, end))
            continue
        arguments.append((base, [(begin, end)]))
        last[base] = arguments[-1][1]
    return [WholeArgument(role, tuple(pieces)) for role, pieces in arguments]


@dataclass
class RoleCount:
    """Arguments of one role, or of all."""

    right: int = 0
    excess: int = 0
    missed: int = 0

    def add(self, other: RoleCount) -> None:
        self.right += other.right
        self.excess += other.excess
        self.missed += other.missed


@dataclass
class FrameCounts:
    """Arguments of a predicate, a sentence or a file."""

    by_role: dict[str, RoleCount] = field(default_factory=dict)
    """Counts of all roles but V."""
    verbs: RoleCount = field(default_factory=RoleCount)
    perfect: int = 0
    """Predicates all of whose arguments are right, and no others were given."""
    frames: int = 0

    @property
    def total(self) -> RoleCount:
        """All arguments but V."""
        total = RoleCount()
        for count in self.by_role.values():
            total.add(count)
        return total

    def role(self, name: str) -> RoleCount:
        return self.verbs if name == VERB else self.by_role.setdefault(name, RoleCount())

    def add(self, other: FrameCounts) -> None:
        for name, count in other.by_role.items():
            self.role(name).add(count)
        self.verbs.add(other.verbs)
        self.perfect += other.perfect
        self.frames += other.frames


def compare_frames(gold: Iterable[RoleSpan], predicted: Iterable[RoleSpan]) -> FrameCounts:
    """Arguments of one predicate, predicted against gold."""
    wanted, given = Counter(whole_arguments(gold)), Counter(whole_arguments(predicted))
    counts = FrameCounts(frames=1)
    for (role, _), count in (wanted & given).items():
        counts.role(role).right += count
    for (role, _), count in (given - wanted).items():
        counts.role(role).excess += count
    for (role, _), count in (wanted - given).items():
        counts.role(role).missed += count
    total = counts.total
    counts.perfect = int(total.excess == total.missed == 0)
    return counts


Arguments = Mapping[int, Sequence[RoleSpan]]
"""Arguments of each predicate of a sentence, by its word."""


def compare_sentence(gold: Arguments, predicted: Arguments, *, invented: bool = False) -> FrameCounts:
    """Arguments of the predicates of a sentence; with `invented`, those of predicates that are none are excess."""
    counts = FrameCounts()
    for predicate, arguments in gold.items():
        counts.add(compare_frames(arguments, predicted.get(predicate, ())))
    if invented:
        for predicate in predicted.keys() - gold.keys():
            excess = compare_frames((), predicted[predicate])
            excess.frames = excess.perfect = 0
            counts.add(excess)
    return counts
