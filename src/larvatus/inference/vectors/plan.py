"""Pooling plans: which sequences the encoder reads, and which token vectors are pooled into the vector of each unit.

    texts = encode_units(tokenizer, ["The bank of the river."], "word")          # token ids and units of each text
    plan = make_plan(texts, pool="mean", size=512, overlap=None, template=tokenizer.template.single)

A *unit* is what gets one vector: a token, a word, a span, or a whole text (sentence or document). The template adds
special tokens around the T tokens of a text, for BERT `[CLS] tokens [SEP]`. Positions in that longer sequence are
*places*: for BERT there are T + 2, and token t is at place t + 1. A unit is a range of places. The unit of a whole text
is 0 … T + 2, special tokens included, because sentence encoders are trained that way.

Every kind of pooling except the maximum is a weighted sum of token vectors z, so (token, unit, weight) triples describe
all of them (the maximum uses the tokens and units of the triples and ignores the weights):

    v_u = Σ_t w_tu z_t        w_tu: mean 1/n for n tokens · sum 1 · first, last 1 for one token
                                    cls 1/K for the [CLS] token of each of the text's K windows

A text longer than the model's limit is read in several overlapping windows (`data/text/windows.py`). Each token is
taken from the window in which it has the most context, special tokens before the text from the first window, and those
after it from the last. So the mean of a long text counts each token once. Sequences are sorted by length, so that
sequences of one length are next to each other and batches need no padding. A *row* is the index of a token in these
sequences, end to end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Ints
from larvatus.core.batch import edges, ranges
from larvatus.core.errors import DataError, UsageError
from larvatus.data.text.align import Alignment, join_words
from larvatus.data.text.template import SequenceTemplate
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.windows import Windows, windows
from larvatus.inference.vectors.layers import Pool, Unit

Text = str | Sequence[str]
"""A text, or a list of its words (they are joined by spaces)."""
Spans = Sequence[tuple[int, int]]
"""(start, end) of each span of a text, in characters; the end is exclusive."""


@dataclass(frozen=True, eq=False)
class EncodedUnits:
    """One text with its T tokens and U units."""

    text: str
    ids: Ints  # [T] token ids, without special tokens
    places: Ints  # [U, 2] first place of each unit, and the one after its last; the two are equal if it has no token
    spans: Ints  # [U, 2] start and end of each unit in characters


def encode_units(
    tokenizer: Tokenizer, texts: Sequence[Text], unit: Unit, spans: Sequence[Spans] | None = None, *, before: int = 0
) -> list[EncodedUnits]:
    """Tokenize texts and find their units.

    Args:
        tokenizer: The model's tokenizer.
        texts: Strings, or lists of words.
        unit: What gets a vector.
        spans: For unit "span", the spans of each text in characters; None if they are marked with stars in the texts.
        before: Number of texts in earlier batches, so that errors count texts from the first batch on.
    """
    plain, word_spans = _plain(texts)
    if unit == "span" and spans is None:
        marked = [read_marks(text) for text in plain]
        plain, spans = [marks.text for marks in marked], [marks.spans for marks in marked]
        if any(words is not None for words in word_spans):
            raise UsageError("for texts given as words, pass spans=… instead of stars")
    elif spans is not None:
        _check_spans(plain, spans, unit, before)
    template = tokenizer.template.single
    if unit in ("sentence", "document"):
        return [_whole_text(text, ids, template) for text, ids in zip(plain, tokenizer.encode_fast(plain), strict=True)]
    alignments = tokenizer.encode_many(plain, word_spans)
    if unit == "token":
        return [
            EncodedUnits(
                alignment.text, alignment.ids, _single_tokens(len(alignment)) + template.opening, alignment.spans
            )
            for alignment in alignments
        ]
    if unit == "word":
        return [
            EncodedUnits(alignment.text, alignment.ids, alignment.word_tokens + template.opening, alignment.word_spans)
            for alignment in alignments
        ]
    assert spans is not None
    return [_spans(alignment, requested, template) for alignment, requested in zip(alignments, spans, strict=True)]


def check_texts(texts: Sequence[Text]) -> None:
    """Raise an error that names the first input that is not a text, counted from 1."""
    if isinstance(texts, str):
        raise UsageError("expected a list of texts, not one text; write [text]")
    if set(map(type, texts)) <= {str}:
        return
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str) and not (isinstance(text, Sequence) and all(isinstance(w, str) for w in text)):
            raise DataError(f"text {number} is {type(text).__name__}, not a string or a list of words")


def _plain(texts: Sequence[Text]) -> tuple[list[str], list[Ints | None]]:
    """Each text as a string, and the character spans [words, 2] of its words if it was given as words, else None."""
    plain: list[str] = []
    word_spans: list[Ints | None] = []
    for text in texts:
        joined, words = (text, None) if isinstance(text, str) else join_words(text)
        plain.append(joined)
        word_spans.append(words)
    return plain, word_spans


def _whole_text(text: str, ids: npt.NDArray[np.int32], template: SequenceTemplate) -> EncodedUnits:
    """The text as one unit, special tokens included."""
    places, spans = np.array([[0, len(ids) + template.special_count]]), np.array([[0, len(text)]])
    return EncodedUnits(text, ids.astype(np.int64), places, spans)


def _single_tokens(count: int) -> Ints:
    """The range (t, t + 1) of each token: [count, 2]."""
    return np.arange(count, dtype=np.int64)[:, None] + np.arange(2)


def _spans(alignment: Alignment, spans: Spans, template: SequenceTemplate) -> EncodedUnits:
    """The spans of a text as units: each has the tokens that overlap its characters."""
    token_ranges = [alignment.tokens_of_chars(start, end) for start, end in spans]
    tokens = np.array([[tokens.start, tokens.stop] for tokens in token_ranges], dtype=np.int64).reshape(-1, 2)
    span_array = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return EncodedUnits(alignment.text, alignment.ids, tokens + template.opening, span_array)


def _check_spans(texts: Sequence[str], spans: Sequence[Spans], unit: Unit, before: int) -> None:
    if unit != "span":
        raise UsageError(f'spans are given, but the unit is {unit}; use unit="span"')
    for number, (text, spans_of_text) in enumerate(zip(texts, spans, strict=True), start=before + 1):
        for span in spans_of_text:
            if len(span) != 2 or not 0 <= span[0] < span[1] <= len(text):
                raise UsageError(
                    f"text {number} has no span {tuple(span)}: spans are (start, end) in its {len(text)} characters"
                )


@dataclass(frozen=True, eq=False)
class PoolingPlan:
    """S sequences of N tokens in all, and P (token, unit, weight) triples for U units."""

    ids: Ints  # [N] token ids of the sequences, shortest sequence first, with special tokens
    lengths: Ints  # [S] tokens of each sequence, ascending
    rows: Ints  # [P] token of each triple, as an index from 0 to N − 1, ascending
    units: Ints  # [P] unit of each triple, as an index from 0 to U − 1; units are numbered in the order of the texts
    weights: npt.NDArray[np.float32]  # [P] weight of each triple
    empty: Ints  # indices of units without a token
    total: int  # U
    windows: Ints  # [texts] number of windows of each text


def make_plan(
    texts: Sequence[EncodedUnits], *, pool: Pool, size: int, overlap: int | None, template: SequenceTemplate
) -> PoolingPlan:
    """Plan the sequences and the pooling of texts.

    Args:
        texts: From `encode_units`.
        pool: Kind of pooling.
        size: The model's longest sequence in tokens, special tokens included.
        overlap: Tokens that neighbouring windows of a long text share; None for a quarter of a window.
        template: The special tokens around a text.
    """
    cuts = [windows(len(text.ids), size=template.text_length(size), overlap=overlap) for text in texts]
    counts = np.array([len(cut) for cut in cuts], dtype=np.int64)
    lengths = np.concatenate([np.empty(0, np.int64), *(cut.ends - cut.starts for cut in cuts)]) + template.special_count
    order = np.argsort(lengths, kind="stable")
    begins = np.empty_like(lengths)  # first row of each window, windows in the order of the texts
    begins[order] = edges(lengths[order])[:-1]
    first_window = edges(counts)
    rows_of_places = _rows_of_places(texts, cuts, begins, first_window, template)
    place_edges = edges(np.array([len(text.ids) + template.special_count for text in texts], dtype=np.int64))
    unit_counts = np.array([len(text.places) for text in texts], dtype=np.int64)
    if pool == "cls":
        rows = begins + template.summary_places(lengths)
        units = np.repeat(np.arange(len(texts)), counts)
        weights = np.repeat(1.0 / np.maximum(counts, 1), counts)
        empty = np.empty(0, np.int64)
    else:
        places = np.concatenate([text.places for text in texts]) if texts else np.empty((0, 2), np.int64)
        places = places + np.repeat(place_edges[:-1], unit_counts)[:, None]
        place_of_triple, units, weights = _triples(places, pool)
        rows = rows_of_places[place_of_triple]
        empty = np.flatnonzero(places[:, 0] >= places[:, 1])
    by_row = np.argsort(rows, kind="stable")
    return PoolingPlan(
        ids=_sequence_ids(texts, cuts, order, template),
        lengths=lengths[order],
        rows=rows[by_row],
        units=units[by_row],
        weights=weights[by_row].astype(np.float32),
        empty=empty,
        total=int(unit_counts.sum()),
        windows=counts,
    )


def _rows_of_places(
    texts: Sequence[EncodedUnits], cuts: Sequence[Windows], begins: Ints, first_window: Ints, template: SequenceTemplate
) -> Ints:
    """The row of each place of each text, texts end to end: [places of all texts]."""
    opening, closing = (np.arange(len(gap)) for gap in template.gaps)
    parts = []
    for number, (text, cut) in enumerate(zip(texts, cuts, strict=True)):
        window_begins = begins[first_window[number] : first_window[number + 1]]
        if len(cut) == 1:
            parts.append(window_begins[0] + np.arange(len(text.ids) + template.special_count))
            continue
        tokens = window_begins[cut.chosen] + np.arange(len(text.ids)) - cut.starts[cut.chosen] + len(opening)
        last = window_begins[-1] + (cut.ends[-1] - cut.starts[-1]) + len(opening)
        parts.append(np.concatenate([window_begins[0] + opening, tokens, last + closing]))
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _triples(places: Ints, pool: Pool) -> tuple[Ints, Ints, npt.NDArray[np.float64]]:
    """From the places [U, 2] of units: the place, the unit and the weight of each triple, all [P]."""
    sizes = places[:, 1] - places[:, 0]
    units = np.arange(len(places))
    if pool in ("first", "last"):
        units = units[sizes > 0]
        place_of_triple = places[units, 0] if pool == "first" else places[units, 1] - 1
        return place_of_triple, units, np.ones(len(units))
    place_of_triple = np.repeat(places[:, 0], sizes) + ranges(sizes)
    weights = np.repeat(1.0 / np.maximum(sizes, 1), sizes) if pool == "mean" else np.ones(len(place_of_triple))
    return place_of_triple, np.repeat(units, sizes), weights


def _sequence_ids(
    texts: Sequence[EncodedUnits], cuts: Sequence[Windows], order: Ints, template: SequenceTemplate
) -> Ints:
    """Token ids of all windows in this order, each with its special tokens, end to end: [N]."""
    window_ids = [
        text.ids[start:end]
        for text, cut in zip(texts, cuts, strict=True)
        for start, end in zip(cut.starts.tolist(), cut.ends.tolist(), strict=True)
    ]
    parts = [part for index in order.tolist() for part in template.interleave(window_ids[index])]
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)


_STAR = re.compile(r"\\\*|\*")
_MESSAGE_CHARACTERS = 60
"""Longest text that an error message quotes in full."""


@dataclass(frozen=True)
class MarkedText:
    r"""A text without its marks, and the character spans of the marked words: `*…*` marks a word, `\*` is a star.

    >>> read_marks("the *bank* of the river")
    MarkedText(text='the bank of the river', spans=((4, 8),))
    """

    text: str
    spans: tuple[tuple[int, int], ...]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.text[start:end] for start, end in self.spans)


def read_marks(text: str) -> MarkedText:
    """Find all marked words of a text; raise an error if there is none."""
    parts: list[str] = []
    borders: list[int] = []  # offset of each mark in the text without marks
    size = position = 0  # characters of `parts`, and characters of `text` that have been read
    for star in _STAR.finditer(text):
        part = text[position : star.start()] + ("*" if star[0] == r"\*" else "")
        parts.append(part)
        size += len(part)
        position = star.end()
        if star[0] == "*":
            borders.append(size)
    plain = "".join([*parts, text[position:]])
    if not borders:
        raise UsageError(f"no word is marked in {_short(text)}; put stars around it: the *bank* of the river")
    if len(borders) % 2:
        raise UsageError(f"a mark is not closed in {_short(text)}; put a star on both sides, or write \\* for a star")
    spans = tuple(_trimmed(plain, start, end) for start, end in zip(borders[::2], borders[1::2], strict=True))
    if any(start == end for start, end in spans):
        raise UsageError(f"there is nothing between two stars in {_short(text)}; mark a word: the *bank* of the river")
    return MarkedText(plain, spans)


def read_mark(text: str) -> MarkedText:
    """Find the one marked word of a text; raise an error if there are none or several."""
    marked = read_marks(text)
    if len(marked.spans) > 1:
        words = ", ".join(marked.words)
        raise UsageError(f"{len(marked.spans)} words are marked in {_short(text)} ({words}); mark one")
    return marked


def mark_word(text: str, word: str) -> MarkedText:
    """Mark a word in a text without stars; it must occur in the text as a whole word, exactly once.

    >>> mark_word("the bank of the river", "bank").spans
    ((4, 8),)
    """
    spans = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", text)] if word else []
    if not spans:
        raise UsageError(f"{word!r} is not in {_short(text)}; check the spelling, or mark it with stars")
    if len(spans) > 1:
        raise UsageError(f"{word!r} occurs {len(spans)} times in {_short(text)}; mark one of them with stars")
    return MarkedText(text, (spans[0],))


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without spaces at its ends; empty if it has only spaces."""
    part = text[start:end]
    return (start + len(part) - len(part.lstrip()), start + len(part.rstrip())) if part.strip() else (start, start)


def _short(text: str) -> str:
    """The text as error messages quote it."""
    return repr(text if len(text) <= _MESSAGE_CHARACTERS else text[: _MESSAGE_CHARACTERS - 1] + "…")
