"""Targets of pretraining, which corruption and packing give, as NumPy arrays or torch tensors.

    batch.targets[MaskedTokens].ids

Each can be `cut` to a run of sequences, `join`ed, and `filled` up to the fixed sizes of a compiled step. Some kinds
need no corruption: the loader makes the token after each token, and the one before, for the objectives that need them.
No prediction crosses the border of a sequence.

    >>> batch = TokenBatch.of([[7, 8, 9], [5, 6]])
    >>> NextTokens.of_text(batch).places.tolist(), NextTokens.of_text(batch).ids.tolist()
    ([0, 1, 3], [8, 9, 6])
    >>> PreviousTokens.of_text(batch).places.tolist(), PreviousTokens.of_text(batch).ids.tolist()
    ([1, 2, 4], [7, 8, 5])

`DenoisedText` is what a decoder writes for each sequence: the targets of denoising (T5), and of any text-to-text task.

    >>> targets = DenoisedText(ids=np.array([9, 5, 1, 7, 1]), lengths=np.array([3, 2]))
    >>> targets.cut(tokens=(4, 6), sequences=(1, 2)).ids.tolist()
    [7, 1]

B sequences, N tokens, M tokens to predict or write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from larvatus.core.arrays import Ints, TargetRecord, pad_array
from larvatus.core.batch import TokenBatch, TrainingBatch, edges
from larvatus.core.errors import UsageError

A = TypeVar("A")  # numpy.ndarray or torch.Tensor
IGNORE = -100
"""The label that no objective counts (as in `torch.nn.functional.cross_entropy`)."""


@dataclass(frozen=True, kw_only=True)
class PaddedSizes:
    """The fixed sizes that a batch is brought to for a compiled step (`models/nn/compiling.py`)."""

    tokens: int  # N
    sequences: int  # B
    targets: int  # M, words to predict


class Targets(Protocol):
    """What an objective is to predict. A kind of target is a class; objectives name the class they need."""

    what: ClassVar[str]
    """The kind in a user's words, for the error when nothing gives it."""

    @property
    def count(self) -> int:
        """How many predictions."""

    def map(self, function: Callable[[Any], Any]) -> Any: ...

    def cut(self, *, tokens: tuple[int, int], sequences: tuple[int, int]) -> Self:
        """The targets of a run of sequences, counted from its first token and sequence."""

    @classmethod
    def join(cls, parts: Sequence[tuple[Self, int, int]]) -> Self:
        """The opposite: each part with the number of tokens and of sequences that come before it."""

    def filled(self, totals: PaddedSizes) -> Self:
        """The targets of a batch that was filled up to these totals; those added are labelled `IGNORE`."""


def _refuse_more(count: int, totals: PaddedSizes) -> None:
    if count > totals.targets:
        raise UsageError(f"a batch of {count} predicted tokens does not fit {totals.targets}; raise targets")


@dataclass(frozen=True, eq=False)
class TokenTargets(TargetRecord, Generic[A]):
    """Tokens to predict: from which place in the flat batch (ascending), and what they are."""

    what: ClassVar[str] = "tokens to predict"
    places: A  # [M]
    ids: A  # [M]

    def cut(self, *, tokens: tuple[int, int], sequences: tuple[int, int]) -> Self:
        first, last = np.searchsorted(self.places, tokens)  # type: ignore[call-overload]
        return type(self)(places=self.places[first:last] - tokens[0], ids=self.ids[first:last])  # type: ignore[index]

    @classmethod
    def join(cls, parts: Sequence[tuple[Self, int, int]]) -> Self:
        return cls(
            places=np.concatenate([part.places + tokens for part, tokens, _ in parts]),  # type: ignore[arg-type, operator]
            ids=np.concatenate([part.ids for part, _, _ in parts]),  # type: ignore[arg-type]
        )

    def filled(self, totals: PaddedSizes) -> Self:
        _refuse_more(self.count, totals)
        return type(self)(
            places=pad_array(self.places, totals.targets, totals.tokens - 1),  # type: ignore[arg-type]
            ids=pad_array(self.ids, totals.targets, IGNORE),  # type: ignore[arg-type]
        )


class MaskedTokens(TokenTargets[A]):
    """Tokens that corruption hid: their places, and what they were."""

    what: ClassVar[str] = "hidden tokens"


@dataclass(frozen=True, eq=False)
class SequenceLabels(TargetRecord, Generic[A]):
    """One label for each sequence; what it says is up to the kinds below."""

    what: ClassVar[str] = "labels of sequences"
    labels: A  # [B]

    def filled(self, totals: PaddedSizes) -> Self:
        return type(self)(labels=pad_array(self.labels, totals.sequences, IGNORE))  # type: ignore[arg-type]


class PairLabels(SequenceLabels[A]):
    """For each sequence of two segments: 0 if the second really follows the first, 1 if it was sampled at random."""

    what: ClassVar[str] = "sentence pairs"


class OrderLabels(SequenceLabels[A]):
    """For each sequence of two neighbouring segments: 0 in the order of the text, 1 if swapped."""

    what: ClassVar[str] = "segments in and out of order"


@dataclass(frozen=True, eq=False)
class SpanTargets(TargetRecord, Generic[A]):
    """Hidden tokens as parts of hidden spans, in the order of the text.

    A span s … e has a token on either side, s − 1 and e + 1: special tokens frame every sequence.
    """

    what: ClassVar[str] = "hidden spans"
    left: A  # [M] place of the token before its span in the flat batch; ascending
    right: A  # [M] place of the token after its span
    place: A  # [M] which token of the span it is, from 0
    ids: A  # [M] what it was

    def cut(self, *, tokens: tuple[int, int], sequences: tuple[int, int]) -> SpanTargets[A]:
        first, last = np.searchsorted(self.left, tokens)  # type: ignore[call-overload]
        part: SpanTargets[Any] = self.map(lambda array: array[first:last])
        return SpanTargets(left=part.left - tokens[0], right=part.right - tokens[0], place=part.place, ids=part.ids)

    @classmethod
    def join(cls, parts: Sequence[tuple[SpanTargets[Ints], int, int]]) -> SpanTargets[Ints]:
        return SpanTargets(
            left=np.concatenate([part.left + tokens for part, tokens, _ in parts]),
            right=np.concatenate([part.right + tokens for part, tokens, _ in parts]),
            place=np.concatenate([part.place for part, _, _ in parts]),
            ids=np.concatenate([part.ids for part, _, _ in parts]),
        )

    def filled(self: SpanTargets[Ints], totals: PaddedSizes) -> SpanTargets[Ints]:
        _refuse_more(self.count, totals)
        last, more = totals.tokens - 1, totals.targets
        left, right, place = (
            pad_array(self.left, more, last),
            pad_array(self.right, more, last),
            pad_array(self.place, more, 0),
        )
        return SpanTargets(left=left, right=right, place=place, ids=pad_array(self.ids, more, IGNORE))


@dataclass(frozen=True, eq=False)
class ReplacedTokens(TargetRecord, Generic[A]):
    """For each token: does it differ from the original one? And what decides the generator's sample."""

    what: ClassVar[str] = "replaced tokens"
    per_token: ClassVar[bool] = True
    labels: A  # [N] 1 for a token that was replaced, 0 for the original: all 0 until a generator has replaced some
    draws: A  # [N] 32 random bits of each hidden token, 0 of the others

    def filled(self: ReplacedTokens[Ints], totals: PaddedSizes) -> ReplacedTokens[Ints]:
        return ReplacedTokens(
            labels=pad_array(self.labels, totals.tokens, IGNORE), draws=pad_array(self.draws, totals.tokens, 0)
        )


@runtime_checkable
class TextTargets(Protocol):
    """A kind of target that is made only from the tokens of a batch."""

    @classmethod
    def of_text(cls, tokens: TokenBatch[Ints]) -> Self: ...


class NextTokens(TokenTargets[A]):
    """For each token but the last of its sequence: the one that follows."""

    what: ClassVar[str] = "the tokens that follow"

    @classmethod
    def of_text(cls, tokens: TokenBatch[Ints]) -> NextTokens[Ints]:
        inside = np.ones(tokens.size, np.bool_)
        inside[edges(tokens.lengths)[1:][tokens.lengths > 0] - 1] = False
        places = np.flatnonzero(inside)
        return NextTokens(places=places, ids=tokens.ids[places + 1])


class PreviousTokens(TokenTargets[A]):
    """For each token but the first of its sequence: the one before it."""

    what: ClassVar[str] = "the tokens before"

    @classmethod
    def of_text(cls, tokens: TokenBatch[Ints]) -> PreviousTokens[Ints]:
        inside = np.ones(tokens.size, np.bool_)
        inside[edges(tokens.lengths)[:-1][tokens.lengths > 0]] = False
        places = np.flatnonzero(inside)
        return PreviousTokens(places=places, ids=tokens.ids[places - 1])


def text_target_kinds(objectives: Iterable[Any]) -> tuple[type[TextTargets], ...]:
    """What objectives (or their settings) need of this kind, each once."""
    return tuple(dict.fromkeys(objective.needs for objective in objectives if issubclass(objective.needs, TextTargets)))


def needs_lexicon(kinds: Iterable[Any]) -> bool:
    """Whether any kind of target is of whole words: its `of_text` takes a lexicon, which knows them."""
    return any(getattr(kind, "of_words", False) for kind in kinds)


def add_text_targets(
    batch: TrainingBatch[Ints], kinds: tuple[type[TextTargets], ...], lexicon: Any = None
) -> TrainingBatch[Ints]:
    """The batch with these targets added; `lexicon` is for those of whole words."""
    targets = {kind: kind.of_text(batch.tokens, *([lexicon] if needs_lexicon([kind]) else [])) for kind in kinds}
    return TrainingBatch(tokens=batch.tokens, targets={**batch.targets, **targets}) if kinds else batch


@dataclass(frozen=True, eq=False)
class DenoisedText(TargetRecord, Generic[A]):
    """The tokens to write of all sequences, laid end to end, each with what closes it."""

    what: ClassVar[str] = "spans behind sentinels"
    ids: A  # [M]
    lengths: A  # [B] of each sequence

    def cut(self, *, tokens: tuple[int, int], sequences: tuple[int, int]) -> DenoisedText[A]:
        border = edges(self.lengths)  # type: ignore[arg-type]
        first, last = int(border[sequences[0]]), int(border[sequences[1]])
        return DenoisedText(ids=self.ids[first:last], lengths=self.lengths[slice(*sequences)])  # type: ignore[index]

    def filled(self: DenoisedText[Ints], totals: PaddedSizes) -> DenoisedText[Ints]:
        """Filler tokens are written by the filler sequences, all as many."""
        missing, fillers = totals.targets - self.count, totals.sequences - len(self.lengths)
        if missing < 0 or (missing and not fillers):
            raise UsageError(f"a batch of {self.count} predicted tokens does not fit {totals.targets}; raise targets")
        ends = np.arange(1, fillers + 1) * missing // max(fillers, 1)
        return DenoisedText(
            ids=pad_array(self.ids, totals.targets, IGNORE),
            lengths=np.concatenate([self.lengths, np.diff(ends, prepend=0).astype(np.int64)]),
        )
