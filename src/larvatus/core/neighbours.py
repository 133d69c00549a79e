"""Targets that any text gives without being corrupted: the token after each token, and the one before.

    >>> batch = TokenBatch.of([[7, 8, 9], [5, 6]])
    >>> NextTokens.of_text(batch).places.tolist(), NextTokens.of_text(batch).ids.tolist()
    ([0, 1, 3], [8, 9, 6])
    >>> PreviousTokens.of_text(batch).places.tolist(), PreviousTokens.of_text(batch).ids.tolist()
    ([1, 2, 4], [7, 8, 5])

A left-to-right model predicts the first kind (Radford et al. 2018), a right-to-left model the second. The loader makes
them for the objectives that need them; no prediction crosses the border of a sequence.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch, edges
from larvatus.core.predicted import PlacedTokens

A = TypeVar("A")


@runtime_checkable
class FromText(Protocol):
    """A kind of target that is made from the tokens of a batch alone."""

    @classmethod
    def of_text(cls, tokens: TokenBatch[Ints]) -> Self: ...


class NextTokens(PlacedTokens[A]):
    """For each token but the last of its sequence: the one that follows."""

    what: ClassVar[str] = "the tokens that follow"

    @classmethod
    def of_text(cls, tokens: TokenBatch[Ints]) -> NextTokens[Ints]:
        inside = np.ones(tokens.size, np.bool_)
        inside[edges(tokens.lengths)[1:][tokens.lengths > 0] - 1] = False
        places = np.flatnonzero(inside)
        return NextTokens(places=places, ids=tokens.ids[places + 1])


class PreviousTokens(PlacedTokens[A]):
    """For each token but the first of its sequence: the one before it."""

    what: ClassVar[str] = "the tokens before"

    @classmethod
    def of_text(cls, tokens: TokenBatch[Ints]) -> PreviousTokens[Ints]:
        inside = np.ones(tokens.size, np.bool_)
        inside[edges(tokens.lengths)[:-1][tokens.lengths > 0]] = False
        places = np.flatnonzero(inside)
        return PreviousTokens(places=places, ids=tokens.ids[places - 1])


def from_text_of(objectives: Iterable[Any]) -> tuple[type[FromText], ...]:
    """What objectives (or their settings) need of this kind, each once."""
    return tuple(dict.fromkeys(objective.needs for objective in objectives if issubclass(objective.needs, FromText)))


def wants_lexicon(kinds: Iterable[Any]) -> bool:
    """Whether any kind of target is of whole words: its `of_text` takes a lexicon, which knows them."""
    return any(getattr(kind, "of_words", False) for kind in kinds)


def made_from_text(
    batch: TrainingBatch[Ints], kinds: tuple[type[FromText], ...], lexicon: Any = None
) -> TrainingBatch[Ints]:
    """The batch with these targets besides its own; `lexicon` is for those of whole words."""
    targets = {kind: kind.of_text(batch.tokens, *([lexicon] if wants_lexicon([kind]) else [])) for kind in kinds}
    return TrainingBatch(tokens=batch.tokens, targets={**batch.targets, **targets}) if kinds else batch
