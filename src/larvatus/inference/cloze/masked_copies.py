"""Masked copies of texts: for each token the text with that token masked, ready for the encoder.

    original (Salazar et al. 2020)    [MASK] ##ven ##ir    sou [MASK] ##ir       sou ##ven [MASK]
    word-l2r (Kauf & Ivanova 2023)    [MASK] [MASK] [MASK]    sou [MASK] [MASK]    sou ##ven [MASK]

The first mask of a copy is the token to predict. So a copy that two texts share (they differ only in that word, as
minimal pairs do, or are the same text) is read once and answers both questions.

A text longer than the model's window: each copy is the window around its own token, as much before it as after, where
the text allows. That is the most context a token can have, and costs no more than any other window.

C copies of one length L, with special tokens; T tokens of a text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, edges, ranges, runs
from larvatus.data.text.align import Alignment
from larvatus.data.text.tokenizer import Tokenizer

Method = Literal["original", "word-l2r"]

BLOCK = 1 << 20
"""Tokens of the copies that are held and compared at once."""


@dataclass(frozen=True, eq=False)
class MaskedCopies:
    """Different sequences, shortest first, and the questions they answer, in the order of the sequences."""

    ids: Ints  # [N] tokens of all copies, end to end
    lengths: Ints  # [C] ascending
    places: Ints  # [C] position of the token to predict within its copy
    copies: Ints  # [Q] the copy of each question
    wanted: Ints  # [Q] the token that the text has there
    questions: Ints  # [Q] the number of each question

    def batches(self, budget: int) -> Iterator[CopyBatch]:
        """Runs of whole copies within a budget of tokens, with their questions."""
        borders = edges(self.lengths)
        for first, last in runs(self.lengths, budget):
            lengths = self.lengths[first:last]
            positions = ranges(lengths)
            nothing = np.zeros_like(positions)
            chosen = slice(*np.searchsorted(self.copies, [first, last]).tolist())
            yield CopyBatch(
                tokens=TokenBatch(
                    ids=self.ids[borders[first] : borders[last]],
                    lengths=lengths,
                    positions=positions,
                    segments=nothing,
                    words=nothing - 1,
                ),
                places=borders[first:last] - borders[first] + self.places[first:last],
                copies=self.copies[chosen] - first,
                wanted=self.wanted[chosen],
                questions=self.questions[chosen],
            )


@dataclass(frozen=True, eq=False)
class CopyBatch:
    tokens: TokenBatch[Ints]
    places: Ints  # [C] in the flat batch
    copies: Ints  # [Q]
    wanted: Ints  # [Q]
    questions: Ints  # [Q]


def masked_copies(
    texts: Sequence[Alignment], tokenizer: Tokenizer, *, method: Method, longest: int
) -> Iterator[MaskedCopies]:
    """Copies for every token of every text, in blocks; `longest` is the number of tokens between the special tokens.

    Questions are numbered through all texts: token t of a text after N tokens is question N + t.
    """
    counts = np.array([len(text) for text in texts], dtype=np.int64)
    before = edges(counts)
    by_length = np.argsort(np.minimum(counts, longest), kind="stable")
    counts_sorted = counts[by_length]
    text_of = np.repeat(by_length, counts_sorted)
    token_of = ranges(counts_sorted)
    lengths = np.minimum(counts[text_of], longest) + tokenizer.template.single.special_count
    for first, last in runs(lengths, BLOCK):
        rows: dict[int, list[_Rows]] = {}  # by length, shortest first
        for text, start, end in _spans(text_of[first:last], token_of[first:last]):
            tokens = np.arange(start, end)
            made = _rows(texts[text], tokens, tokenizer, method=method, longest=longest)
            rows.setdefault(made.ids.shape[1], []).append(made.numbered(before[text] + tokens))
        yield _without_repetition([_Rows.join(parts) for parts in rows.values()])


def _spans(text_of: Ints, token_of: Ints) -> Iterator[tuple[int, int, int]]:
    """Runs of tokens of one text: text, first token, the token after the last."""
    begins = np.flatnonzero(np.diff(text_of, prepend=-1))
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(text_of)], strict=True):
        yield int(text_of[begin]), int(token_of[begin]), int(token_of[end - 1]) + 1


@dataclass(frozen=True, eq=False)
class _Rows:
    """Copies before deduplication, one for each question."""

    ids: npt.NDArray[np.int32]  # [Q, L]
    places: Ints  # [Q]
    wanted: Ints  # [Q]
    questions: Ints  # [Q]

    def numbered(self, questions: Ints) -> _Rows:
        return _Rows(self.ids, self.places, self.wanted, questions)

    @classmethod
    def join(cls, parts: Sequence[_Rows]) -> _Rows:
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__))


def _rows(text: Alignment, tokens: Ints, tokenizer: Tokenizer, *, method: Method, longest: int) -> _Rows:
    """The copies for some tokens [Q] of a text."""
    total, length = len(text), min(len(text), longest)
    starts = np.clip(tokens - (longest - 1) // 2, 0, total - length)
    index = starts[:, None] + np.arange(length)  # [Q, tokens of text] index of each token in the text
    hidden = index == tokens[:, None]
    if method == "word-l2r":
        word = text.words[tokens][:, None]
        hidden |= (index > tokens[:, None]) & (text.words[index] == word) & (word >= 0)
    template = tokenizer.template.single
    before, after = (np.tile(np.array(gap, np.int64), (len(tokens), 1)) for gap in template.gaps)
    shown = np.where(hidden, tokenizer.mask_id, text.ids[index])
    ids = np.concatenate([before, shown, after], axis=1).astype(np.int32)
    return _Rows(ids, tokens - starts + template.opening, text.ids[tokens], tokens)


def _without_repetition(groups: Sequence[_Rows]) -> MaskedCopies:
    """Each copy once, in the order of its first question."""
    ids, lengths, places, copies, wanted, questions = [], [], [], [], [], []
    before = 0
    for rows in groups:
        whole = np.ascontiguousarray(rows.ids).view(np.dtype((np.void, rows.ids.itemsize * rows.ids.shape[1])))[:, 0]
        _, firsts, sorted_of = np.unique(whole, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        copy_of = rank[sorted_of]
        by_copy = np.argsort(copy_of, kind="stable")
        kept = firsts[order]
        ids.append(rows.ids[kept].astype(np.int64).reshape(-1))
        lengths.append(np.full(len(kept), rows.ids.shape[1], dtype=np.int64))
        places.append(rows.places[kept])
        copies.append(copy_of[by_copy] + before)
        wanted.append(rows.wanted[by_copy])
        questions.append(rows.questions[by_copy])
        before += len(kept)
    return MaskedCopies(*map(np.concatenate, (ids, lengths, places, copies, wanted, questions)))
