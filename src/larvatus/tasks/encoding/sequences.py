"""Examples as the model reads them: in a template, cut into windows where they are long, end to end in arrays.

    sequences = text_sequences(tokenizer, ["One text.", ("A premise.", "A hypothesis.")], limit=512)
    sequences.pick([1, 0])                 # a batch of the second example and the first

A text or pair that fits is one sequence with the special tokens of its tokenizer (`data/text/template.py`). A longer
one is several that overlap (`data/text/windows.py`), so that all of it is read; `truncate` reads only the first, and
`read` is how much that is. The longer text of a pair is cut, and the shorter is in every window, unless both are
long: then windows of one are paired with windows of the other. With `both_orders` each window of a pair is two
sequences, in the given order and in the other.

`PairLists` holds pairs in lists that no step separates: a context with its endings, a query with its passages. The
sequences of a list are one group of a batch.

E examples, S sequences, N tokens, W words; P pairs.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Ints
from larvatus.core.batch import NO_WORD, TokenBatch, TrainingBatch, WordTokens, edges, ranges
from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.records import LabelledExample
from larvatus.data.text.align import Alignment
from larvatus.data.text.template import Template
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.windows import windows
from larvatus.models.bundle.directory import Bundle

TextOrPair = str | tuple[str, str]


@dataclass(frozen=True, eq=False)
class SequenceWords:
    """The words of each sequence; those that several windows hold are scored in the one where they see most."""

    counts: Ints  # [S] words of each sequence
    starts: Ints  # [S] how many of these, the first, are scored there
    pairs: Ints  # [S] (token, word) pairs of each sequence
    rows: Ints  # [P] the pair's token, counted from the first of its sequence
    words: Ints  # [P] the pair's word, counted from the first of its sequence


@dataclass(frozen=True, eq=False)
class Sequences:
    """S sequences of E examples; those of one example are adjacent, and within it those of one window."""

    ids: Ints  # [N]
    segments: Ints  # [N]
    lengths: Ints  # [S]
    parts: Ints  # [E] windows of each example, each of one sequence, or of `orders`
    tokens: Ints  # [E] tokens of each example, special ones aside
    read: Ints  # [E] how many of them the model reads
    words: SequenceWords | None = None
    orders: int = 1
    """Sequences of each window: 2 where pairs are read in both orders. They are of one length."""

    def __len__(self) -> int:
        return len(self.parts)

    def check_tokens(self, examples: Sequence[LabelledExample]) -> None:
        """Refuse examples of which the vocabulary leaves nothing."""
        empty = np.flatnonzero(self.tokens == 0)
        if len(empty):
            place = examples[empty[0]].place
            raise DataError(f"{place} has no tokens: the vocabulary deletes all its characters; leave it out")

    @property
    def owners(self) -> Ints:
        """[S] the example of each sequence."""
        return np.repeat(np.arange(len(self.parts)), self.parts * self.orders)

    def of(self, examples: Ints | Sequence[int]) -> Ints:
        """The sequences of some examples, in their order."""
        chosen = np.asarray(examples, dtype=np.int64)
        counts = self.parts * self.orders
        return run_indices(edges(counts)[:-1][chosen], counts[chosen])

    def batch(self, sequences: Ints) -> TokenBatch[Ints]:
        """Some sequences, end to end, with their words where there are any."""
        lengths = self.lengths[sequences]
        at = run_indices(edges(self.lengths)[:-1][sequences], lengths)
        positions = ranges(lengths)
        words = np.full_like(positions, NO_WORD)
        pieces = self._pieces(sequences)
        if pieces is not None:  # of a token that serves two words, the first
            before = np.repeat(edges(pieces.counts)[:-1], pieces.counts)
            words[pieces.rows[::-1]] = (pieces.words - before[pieces.words])[::-1]
        return TokenBatch(
            ids=self.ids[at],
            lengths=lengths,
            positions=positions,
            segments=self.segments[at],
            words=words,
            word_tokens=pieces,
            groups=np.full(len(sequences) // self.orders, self.orders) if self.orders > 1 else None,
        )

    def _pieces(self, sequences: Ints) -> WordTokens[Ints] | None:
        if (pieces := self.words) is None:
            return None
        counts, pairs = pieces.counts[sequences], pieces.pairs[sequences]
        at = run_indices(edges(pieces.pairs)[:-1][sequences], pairs)
        return WordTokens(
            rows=pieces.rows[at] + np.repeat(edges(self.lengths[sequences])[:-1], pairs),
            words=pieces.words[at] + np.repeat(edges(counts)[:-1], pairs),
            counts=counts,
            starts=pieces.starts[sequences],
            total=int(counts.sum()),
        )

    def inputs(self, sequences: Ints) -> TrainingBatch[Ints]:
        """Inputs of a head for scoring: tokens with their words, without targets."""
        return TrainingBatch(tokens=self.batch(sequences), targets={})

    def of_words(self, sequences: Ints, values: Ints) -> Ints:
        """Select, from values [W] for all words of all sequences, those of the words of some sequences."""
        assert self.words is not None
        counts = self.words.counts
        return values[run_indices(edges(counts)[:-1][sequences], counts[sequences])]


def run_indices(starts: Ints, lengths: Ints) -> Ints:
    """Indices of several runs, end to end.

    >>> run_indices(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    return np.repeat(starts, lengths) + ranges(lengths)


def text_sequences(
    tokenizer: Tokenizer,
    texts: Sequence[TextOrPair],
    *,
    limit: int,
    truncate: bool = False,
    overlap: int | None = None,
    both_orders: bool = False,
) -> Sequences:
    """Texts and pairs in sequences of at most `limit` tokens; a single text has one order."""
    _check_limit(limit)
    firsts = tokenizer.encode_fast([text if isinstance(text, str) else text[0] for text in texts])
    seconds = iter(tokenizer.encode_fast([text[1] for text in texts if not isinstance(text, str)]))
    template = tokenizer.template
    made = _SequenceBuilder(template, orders=2 if both_orders else 1)
    room = (
        template.pair.text_length(limit) // made.orders * made.orders
    )  # even, so that windows do not depend on the order
    for text, first in zip(texts, firsts, strict=True):
        if isinstance(text, str):
            cut = windows(len(first), size=template.single.text_length(limit), overlap=overlap)
            pieces: list[list[npt.NDArray[np.int32]]] = [
                [first[start:end]] for start, end in zip(cut.starts, cut.ends, strict=True)
            ]
            total = len(first)
        else:
            second = next(seconds)
            pieces = list(_pair_windows(first, second, room, overlap))
            total = len(first) + len(second)
        made.add(pieces[:1] if truncate else pieces, total, whole=len(pieces) == 1 or not truncate)
    return made.sequences()


def _check_limit(limit: int) -> None:
    if limit < 8:
        raise UsageError(f"a sequence of {limit} tokens is too short to read anything in; give at least 8")


class _SequenceBuilder:
    """Sequences under way."""

    def __init__(self, template: Template, *, orders: int = 1) -> None:
        self.template, self.orders = template, orders
        self.ids: list[npt.NDArray[np.integer]] = []
        self.segments: list[Ints] = []
        self.lengths: list[int] = []
        self.parts: list[int] = []
        self.tokens: list[int] = []
        self.read: list[int] = []

    def add(self, pieces: Sequence[Sequence[npt.NDArray[np.integer]]], total: int, *, whole: bool) -> None:
        """An example: the one or two texts of each of its windows."""
        for piece in (order for window in pieces for order in (window, window[::-1])[: self.orders]):
            template, sizes = self.template.for_texts(len(piece)), [len(part) for part in piece]
            self.ids += template.interleave(*piece)
            self.segments.append(template.segments(*sizes))
            self.lengths.append(sum(sizes) + template.special_count)
        self.parts.append(len(pieces))
        self.tokens.append(total)
        self.read.append(total if whole else sum(map(len, pieces[0])))

    def sequences(self, words: SequenceWords | None = None) -> Sequences:
        def ints(values: Sequence[int]) -> Ints:
            return np.asarray(values, dtype=np.int64)

        return Sequences(
            ids=np.concatenate([*self.ids, np.empty(0, np.int64)]).astype(np.int64),
            segments=np.concatenate([*self.segments, np.empty(0, np.int64)]).astype(np.int64),
            lengths=ints(self.lengths),
            parts=ints(self.parts),
            tokens=ints(self.tokens),
            read=ints(self.read),
            words=words,
            orders=self.orders,
        )


def _pair_windows(
    first: npt.NDArray[np.int32], second: npt.NDArray[np.int32], room: int, overlap: int | None
) -> Iterator[list[npt.NDArray[np.int32]]]:
    """Windows over a pair of texts, `room` tokens in each."""
    if len(first) + len(second) <= room:
        yield [first, second]
        return
    half = room // 2
    if len(first) <= half:
        sizes = len(first), room - len(first)
    elif len(second) <= half:
        sizes = room - len(second), len(second)
    else:
        sizes = half, room - half
    cuts = [list(_windows(len(text), max(1, size), overlap)) for text, size in zip((first, second), sizes, strict=True)]
    count = max(map(len, cuts))
    for number in range(count):
        (a, b), (c, d) = (spans[number * len(spans) // count] for spans in cuts)
        yield [first[a:b], second[c:d]]


def _windows(total: int, size: int, overlap: int | None) -> Iterator[tuple[int, int]]:
    """First token of each window, and the one after its last."""
    cut = windows(total, size=size, overlap=None if overlap is None else min(overlap, size - 1))
    yield from zip(cut.starts.tolist(), cut.ends.tolist(), strict=True)


def word_sequences(
    tokenizer: Tokenizer,
    aligned: Sequence[Alignment],
    *,
    limit: int,
    truncate: bool = False,
    overlap: int | None = None,
) -> Sequences:
    """Texts that are aligned with their words. Truncated ones lose the words whose tokens are not read."""
    _check_limit(limit)
    template = tokenizer.template.single
    made = _SequenceBuilder(tokenizer.template)
    counts: list[int] = []
    pairs: list[int] = []
    rows: list[Ints] = []
    words: list[Ints] = []
    for text in aligned:
        cut = windows(len(text.ids), size=template.text_length(limit), overlap=overlap)
        spans = list(zip(cut.starts.tolist(), cut.ends.tolist(), strict=True))[: 1 if truncate else None]
        made.add([[text.ids[start:end]] for start, end in spans], len(text.ids), whole=len(spans) == len(cut))
        first_tokens = np.minimum(text.word_tokens[:, 0], max(0, len(text.ids) - 1))
        if len(spans) < len(cut):  # a word that begins within the window is read, if only its beginning
            owners = np.where(first_tokens < spans[0][1], 0, 1)
        else:
            owners = cut.chosen[first_tokens] if len(text.ids) else np.zeros_like(first_tokens)
        borders = np.searchsorted(owners, np.arange(len(spans) + 1)).tolist()
        for (start, end), (low, high) in zip(spans, pairwise(borders), strict=True):
            places = np.clip(text.word_tokens[low:high], start, end)
            sizes = places[:, 1] - places[:, 0]
            rows.append(run_indices(places[:, 0], sizes) - start + template.opening)
            words.append(np.repeat(np.arange(high - low), sizes))
            counts.append(high - low)
            pairs.append(int(sizes.sum()))
    nothing = np.empty(0, np.int64)
    return made.sequences(
        SequenceWords(
            counts=np.asarray(counts, dtype=np.int64),
            starts=np.asarray(counts, dtype=np.int64),
            pairs=np.asarray(pairs, dtype=np.int64),
            rows=np.concatenate([*rows, nothing]),
            words=np.concatenate([*words, nothing]),
        )
    )


# Lists of pairs.


@dataclass(frozen=True, eq=False)
class PairLists(ABC):
    """P pairs in E lists."""

    sequences: Sequences
    """Sequences of the pairs; those of a list follow each other."""

    @property
    @abstractmethod
    def sizes(self) -> Ints:
        """[E] pairs of each list."""

    @abstractmethod
    def targets(self, examples: Ints) -> Any:
        """The targets of some lists, with the `windows` of their pairs."""

    def __len__(self) -> int:
        return len(self.sizes)

    def pairs_of(self, examples: Ints) -> Ints:
        """The pairs of some lists, in their order."""
        chosen = np.asarray(examples, np.int64)
        return run_indices(edges(self.sizes)[:-1][chosen], self.sizes[chosen])

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        targets = self.targets(examples)
        tokens = self.sequences.batch(self.sequences.of(self.pairs_of(examples)))
        groups = np.add.reduceat(targets.windows, edges(self.sizes[examples])[:-1]) if len(examples) else None
        return TrainingBatch(tokens=dataclasses.replace(tokens, groups=groups), targets={type(targets): targets})


@dataclass(frozen=True, kw_only=True)
class WindowOptions:
    limit: int
    """Tokens of a window, special ones included."""
    truncate: bool = False
    """Read only the first window of a long text."""
    overlap: int | None = None
    """Tokens that windows share; None: a quarter of a window."""

    @classmethod
    def of(
        cls, bundle: Bundle, *, length: int | None = None, truncate: bool = False, overlap: int | None = None
    ) -> WindowOptions:
        """Windows of the given length, or of as many tokens as the model has positions."""
        most = bundle.model.max_positions
        if length is not None and length > most:
            raise UsageError(f"--length {length} is more than the model's {most} positions")
        return cls(limit=length or most, truncate=truncate, overlap=overlap)
