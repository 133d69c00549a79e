"""`TokenBatch`: the tokens of all sequences of a batch, end to end, without padding.

`TrainingBatch` adds the targets of the objectives (`core/targets.py`, `core/pretraining_targets.py`). Both hold NumPy
arrays while they are built (corpus, corruption) and torch tensors in the model (nn, objectives);
`batch.map(torch.from_numpy)` converts one into the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from larvatus.core.arrays import ArrayRecord, Ints, concatenate_arrays, even_runs

A = TypeVar("A")  # numpy.ndarray or torch.Tensor
NO_WORD = -1


@dataclass(frozen=True, eq=False)
class WordTokens(ArrayRecord, Generic[A]):
    """The words of each sequence, with the tokens that each is made of: as (token, word) pairs.

    A word that several windows hold is scored in the one where it sees most. A token may serve two words, and a word
    that normalisation deletes has no token.
    """

    rows: A  # [P] token of each pair: its place in the flat batch, ascending
    words: A  # [P] the pair's word, 0 … W − 1, ascending
    counts: A  # [B] words of each sequence
    starts: A  # [B] how many of them, the first, are scored here; the others are here for spans to end at
    total: int
    """Words in all (W): known on the host wherever the arrays are."""

    def map(self, function: Callable[[Any], Any]) -> WordTokens[Any]:
        arrays = {name: function(getattr(self, name)) for name in ("rows", "words", "counts", "starts")}
        return WordTokens(**arrays, total=self.total)

    def cut(self, *, tokens: tuple[int, int], sequences: tuple[int, int]) -> WordTokens[A]:
        """The words of a run of sequences, counted from its first token and word."""
        border = edges(self.counts)  # type: ignore[arg-type]
        first, last = int(border[sequences[0]]), int(border[sequences[1]])
        low, high = np.searchsorted(self.words, [first, last])  # type: ignore[call-overload]
        return WordTokens(
            rows=self.rows[low:high] - tokens[0],  # type: ignore[index]
            words=self.words[low:high] - first,  # type: ignore[index]
            counts=self.counts[slice(*sequences)],  # type: ignore[index]
            starts=self.starts[slice(*sequences)],  # type: ignore[index]
            total=last - first,
        )

    @classmethod
    def join(cls, parts: Sequence[tuple[WordTokens[Ints], int]]) -> WordTokens[Ints]:
        """Each part with the number of tokens that come before it."""
        before = edges(np.array([part.total for part, _ in parts])).tolist()
        return WordTokens(
            rows=np.concatenate([part.rows + tokens for part, tokens in parts]),
            words=np.concatenate([part.words + n for (part, _), n in zip(parts, before, strict=False)]),
            counts=np.concatenate([part.counts for part, _ in parts]),
            starts=np.concatenate([part.starts for part, _ in parts]),
            total=before[-1],
        )


@dataclass(frozen=True, eq=False)
class TokenBatch(ArrayRecord, Generic[A]):
    """The tokens of B sequences laid end to end, N in all; nothing is padded.

    Args:
        ids: Token ids, [N].
        lengths: Tokens of each sequence, [B], so that N = lengths.sum().
        positions: The place of each token in its sequence, [N].
        segments: 0 for tokens of the first text, 1 for those of the second, [N].
        words: The word within its sequence to which a token belongs, [N]; -1 for special tokens.
        word_tokens: The words that a head scores, with their tokens; None where it scores none.
        groups: Sequences of each group that is scored together (a question with each of its choices), and so never cut
            apart, [G]; None: each is separate.

    Example:
        >>> batch = TokenBatch.of([[2, 7, 8, 3], [2, 9, 3]])
        >>> batch.size, batch.count, batch.positions.tolist()
        (7, 2, [0, 1, 2, 3, 0, 1, 2])
    """

    ids: A
    lengths: A
    positions: A
    segments: A
    words: A
    word_tokens: WordTokens[A] | None = None
    groups: A | None = None

    @property
    def size(self) -> int:
        """Tokens in all (N)."""
        return len(self.ids)  # type: ignore[arg-type]

    @property
    def count(self) -> int:
        """Sequences (B)."""
        return len(self.lengths)  # type: ignore[arg-type]

    @classmethod
    def of(
        cls,
        sequences: Sequence[Sequence[int]],
        *,
        segments: Sequence[Sequence[int]] | None = None,
        words: Sequence[Sequence[int]] | None = None,
    ) -> TokenBatch[Ints]:
        """A batch of NumPy arrays, from lists, one per sequence.

        Args:
            sequences: Token ids.
            segments: Which text each token is of; all 0 by default.
            words: The word of each token; by default every token is one by itself.
        """
        lengths = np.array([len(s) for s in sequences], dtype=np.int64)
        positions = ranges(lengths)
        return TokenBatch(
            ids=_flat(sequences),
            lengths=lengths,
            positions=positions,
            segments=np.zeros_like(positions) if segments is None else _flat(segments),
            words=positions.copy() if words is None else _flat(words),
        )


def _flat(rows: Sequence[Sequence[int]]) -> Ints:
    return np.concatenate([np.asarray(row, dtype=np.int64) for row in rows]) if rows else np.empty(0, np.int64)


def ranges(lengths: Ints) -> Ints:
    """0 … n−1 for each length n, end to end: [B] → [N]."""
    starts = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(starts, lengths)


def edges(lengths: Ints) -> Ints:
    """Where each sequence begins in the flat batch, and where the last one ends: [B] → [B + 1]."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


@dataclass(frozen=True, eq=False)
class TrainingBatch(ArrayRecord, Generic[A]):
    """Tokens, and targets by kind: ``batch.targets[MaskedTokens]``."""

    tokens: TokenBatch[A]
    targets: dict[type, Any]

    def map(self, function: Callable[[Any], Any]) -> TrainingBatch[Any]:
        return TrainingBatch(
            tokens=self.tokens.map(function), targets={kind: t.map(function) for kind, t in self.targets.items()}
        )

    def cut(self, first: int, last: int) -> TrainingBatch[A]:
        """Sequences first … last − 1 (NumPy only)."""
        t = self.tokens
        edge = edges(t.lengths)  # type: ignore[arg-type]
        start, end = int(edge[first]), int(edge[last])

        def tokens(array: Any) -> Any:
            return array[start:end]

        cut = TokenBatch(
            ids=tokens(t.ids),
            lengths=t.lengths[first:last],  # type: ignore[index]
            positions=tokens(t.positions),
            segments=tokens(t.segments),
            words=tokens(t.words),
            word_tokens=None
            if t.word_tokens is None
            else t.word_tokens.cut(tokens=(start, end), sequences=(first, last)),
            groups=None if t.groups is None else t.groups[slice(*np.searchsorted(self._stops(), [first, last]))],  # type: ignore[index]
        )
        targets = {k: v.cut(tokens=(start, end), sequences=(first, last)) for k, v in self.targets.items()}
        return TrainingBatch(tokens=cut, targets=targets)

    def cuts(self, budget: int) -> Iterator[TrainingBatch[A]]:
        """Runs of whole sequences of at most `budget` tokens each (a longer sequence comes by itself)."""
        stops = self._stops()
        edge = edges(self.tokens.lengths)[stops]  # type: ignore[arg-type]
        for first, last in runs(edge[1:] - edge[:-1], budget):
            yield self.cut(int(stops[first]), int(stops[last]))

    def _stops(self) -> Ints:
        """The numbers of sequences before which it may be cut, and their count: not within a group."""
        groups = self.tokens.groups
        return np.arange(self.tokens.count + 1) if groups is None else edges(groups)  # type: ignore[arg-type]

    def split(self, budget: int, multiple: int = 1) -> Iterator[TrainingBatch[A]]:
        """Even runs of whole sequences: as few as have at most `budget` tokens each, give or take one sequence.

        As many as a `multiple` of something, where there are sequences enough: so that ranks have equal shares.
        """
        stops = self._stops()
        edge = edges(self.tokens.lengths)[stops]  # type: ignore[arg-type]
        for first, last in even_runs(edge, budget, multiple):
            yield self.cut(int(stops[first]), int(stops[last]))

    @classmethod
    def join(cls, parts: Sequence[TrainingBatch[Ints]]) -> TrainingBatch[Ints]:
        """Several batches end to end (NumPy only)."""
        if len(parts) == 1:
            return parts[0]

        def end_to_end(name: str) -> Ints:
            return concatenate_arrays([getattr(part.tokens, name) for part in parts])

        tokens_before = edges(np.array([part.tokens.size for part in parts])).tolist()
        sequences_before = edges(np.array([part.tokens.count for part in parts])).tolist()
        targets: dict[Any, Any] = {}
        for kind in parts[0].targets:
            values = [part.targets[kind] for part in parts]
            targets[kind] = kind.join(list(zip(values, tokens_before, sequences_before, strict=False)))  # type: ignore[attr-defined]
        names = ("ids", "lengths", "positions", "segments", "words")
        words = [
            (part.tokens.word_tokens, n)
            for part, n in zip(parts, tokens_before, strict=False)
            if part.tokens.word_tokens
        ]
        word_tokens = WordTokens.join(words) if words else None
        groups = end_to_end("groups") if parts[0].tokens.groups is not None else None
        tokens = TokenBatch(**{name: end_to_end(name) for name in names}, word_tokens=word_tokens, groups=groups)
        return TrainingBatch(tokens=tokens, targets=targets)


def runs(lengths: Ints, budget: int) -> Iterator[tuple[int, int]]:
    """Cut a row of lengths into runs (first, last) whose sum stays within the budget.

    >>> list(runs(np.array([4, 4, 3, 9, 1]), 8))
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    edge = edges(lengths)
    first = 0
    while first < len(lengths):
        last = int(np.searchsorted(edge, edge[first] + budget, side="right")) - 1
        last = max(last, first + 1)
        yield first, last
        first = last
