"""From texts to a pooling plan: the sequences that the model reads, and which tokens make each unit.

A text of T tokens is read between special tokens, mostly `[CLS] tokens [SEP]`. It has T + 2 *places*, and token t is at
place t + 1. Units (words, spans, sentences) are ranges of places, so that a sentence (0 … T + 2) includes the special
tokens, as sentence encoders are trained. Every way of pooling except the maximum is a weighted sum over tokens, so
(token, unit, weight) triples describe all of them:

    v_u = Σ_t w_tu z_t        mean: 1/n · sum: 1 · first, last: one token · cls: 1/K for the [CLS] of each of K windows

A long text is read in several windows (`data/text/windows.py`). A place is taken from the window where its token has
the most context; special tokens before the text from the first window, those after it from the last. The mean of a long
text is thus over all its tokens, each once. Sequences are sorted by length: batches of neighbours need no padding.
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


@dataclass(frozen=True, eq=False)
class EncodedUnits:
    text: str
    ids: Ints  # [T]
    places: Ints  # [U, 2] first place of each unit, and the one after its last; empty if no token covers a unit
    spans: Ints  # [U, 2] characters of each unit


def encode_units(
    tokenizer: Tokenizer, texts: Sequence[Text], unit: Unit, spans: Sequence[Spans] | None = None, *, before: int = 0
) -> list[EncodedUnits]:
    """Tokens and units of texts. Spans are given in characters, or marked with stars in the texts.

    `before` is the number of texts before these, for messages.
    """
    plain, cut = _plain(texts)
    if unit == "span" and spans is None:
        marked = [read_marks(text) for text in plain]
        plain, spans = [marks.text for marks in marked], [marks.spans for marks in marked]
        if any(words is not None for words in cut):
            raise UsageError("for texts given as words, pass spans=… instead of stars")
    elif spans is not None:
        _check(plain, spans, unit, before)
    template = tokenizer.template.single
    if unit in ("sentence", "document"):
        return [_whole(text, ids, template) for text, ids in zip(plain, tokenizer.encode_fast(plain), strict=True)]
    alignments = tokenizer.encode_many(plain, cut)
    if unit == "token":
        return [
            EncodedUnits(alignment.text, alignment.ids, _each(len(alignment)) + template.opening, alignment.spans)
            for alignment in alignments
        ]
    if unit == "word":
        return [
            EncodedUnits(alignment.text, alignment.ids, alignment.word_tokens + template.opening, alignment.word_spans)
            for alignment in alignments
        ]
    assert spans is not None
    return [_spans(alignment, wanted, template) for alignment, wanted in zip(alignments, spans, strict=True)]


def check_texts(texts: Sequence[Text]) -> None:
    """Refuse inputs that are not texts, by their number."""
    if isinstance(texts, str):
        raise UsageError("expected a list of texts, not one text; write [text]")
    for number, text in enumerate(texts, start=1):
        words = isinstance(text, Sequence) and all(isinstance(word, str) for word in text)
        if not (isinstance(text, str) or words):
            raise DataError(f"text {number} is {type(text).__name__}, not a string or a list of words")


def _plain(texts: Sequence[Text]) -> tuple[list[str], list[Ints | None]]:
    """Each text as a string, with the spans of its words if it was given as words."""
    plain: list[str] = []
    cut: list[Ints | None] = []
    for text in texts:
        joined, words = (text, None) if isinstance(text, str) else join_words(text)
        plain.append(joined)
        cut.append(words)
    return plain, cut


def _whole(text: str, ids: npt.NDArray[np.int32], template: SequenceTemplate) -> EncodedUnits:
    ends = np.array([[0, len(ids) + template.special_count]]), np.array([[0, len(text)]])
    return EncodedUnits(text, ids.astype(np.int64), *ends)


def _each(count: int) -> Ints:
    return np.arange(count, dtype=np.int64)[:, None] + np.arange(2)


def _spans(alignment: Alignment, wanted: Spans, template: SequenceTemplate) -> EncodedUnits:
    ranges = [alignment.tokens_of_chars(start, end) for start, end in wanted]
    places = (
        np.array([[tokens.start, tokens.stop] for tokens in ranges], dtype=np.int64).reshape(-1, 2) + template.opening
    )
    return EncodedUnits(alignment.text, alignment.ids, places, np.array(wanted, dtype=np.int64).reshape(-1, 2))


def _check(texts: Sequence[str], spans: Sequence[Spans], unit: Unit, before: int) -> None:
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
    """S sequences of N tokens in all, P triples, U units."""

    ids: Ints  # [N] tokens of the sequences, shortest sequence first, each with its special tokens
    lengths: Ints  # [S] ascending
    rows: Ints  # [P] token of each triple, ascending
    units: Ints  # [P]
    weights: npt.NDArray[np.float32]  # [P]
    empty: Ints  # units without a token
    total: int  # U
    windows: Ints  # [texts] number of windows of each text


def make_plan(
    texts: Sequence[EncodedUnits], *, pool: Pool, size: int, overlap: int | None, template: SequenceTemplate
) -> PoolingPlan:
    """`size` is the longest sequence of the model, `template` the special tokens around a text."""
    cuts = [windows(len(text.ids), size=template.text_length(size), overlap=overlap) for text in texts]
    counts = np.array([len(cut) for cut in cuts], dtype=np.int64)
    lengths = np.concatenate([np.empty(0, np.int64), *(cut.ends - cut.starts for cut in cuts)]) + template.special_count
    order = np.argsort(lengths, kind="stable")
    begins = np.empty_like(lengths)  # first row of each window
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
        at, units, weights = _triples(places, pool)
        rows = rows_of_places[at]
        empty = np.flatnonzero(places[:, 0] >= places[:, 1])
    by_row = np.argsort(rows, kind="stable")
    return PoolingPlan(
        ids=_framed(texts, cuts, order, template),
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
    """For every place of every text, end to end: the row of its vector."""
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
    """From the places [U, 2] of units: places, units and weights of all triples."""
    sizes = places[:, 1] - places[:, 0]
    units = np.arange(len(places))
    if pool in ("first", "last"):
        units = units[sizes > 0]
        at = places[units, 0] if pool == "first" else places[units, 1] - 1
        return at, units, np.ones(len(units))
    at = np.repeat(places[:, 0], sizes) + ranges(sizes)
    weights = np.repeat(1.0 / np.maximum(sizes, 1), sizes) if pool == "mean" else np.ones(len(at))
    return at, np.repeat(units, sizes), weights


def _framed(texts: Sequence[EncodedUnits], cuts: Sequence[Windows], order: Ints, template: SequenceTemplate) -> Ints:
    """Tokens of all sequences in order, each between its special tokens."""
    pieces = [
        text.ids[start:end]
        for text, cut in zip(texts, cuts, strict=True)
        for start, end in zip(cut.starts.tolist(), cut.ends.tolist(), strict=True)
    ]
    parts = [part for index in order.tolist() for part in template.interleave(pieces[index])]
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)


_STAR = re.compile(r"\\\*|\*")
_SHOWN = 60


@dataclass(frozen=True)
class MarkedText:
    r"""A text without its marks, and the characters of the marked words: `*…*` selects a word, `\*` is a star.

    >>> read_marks("the *bank* of the river")
    MarkedText(text='the bank of the river', spans=((4, 8),))
    """

    text: str
    spans: tuple[tuple[int, int], ...]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.text[start:end] for start, end in self.spans)


def read_marks(text: str) -> MarkedText:
    """All marked words of a text; at least one."""
    pieces: list[str] = []
    borders: list[int] = []
    size = place = 0
    for star in _STAR.finditer(text):
        piece = text[place : star.start()] + ("*" if star[0] == r"\*" else "")
        pieces.append(piece)
        size += len(piece)
        place = star.end()
        if star[0] == "*":
            borders.append(size)
    plain = "".join([*pieces, text[place:]])
    if not borders:
        raise UsageError(f"no word is marked in {_short(text)}; put stars around it: the *bank* of the river")
    if len(borders) % 2:
        raise UsageError(f"a mark is not closed in {_short(text)}; put a star on both sides, or write \\* for a star")
    spans = tuple(_trimmed(plain, start, end) for start, end in zip(borders[::2], borders[1::2], strict=True))
    if any(start == end for start, end in spans):
        raise UsageError(f"there is nothing between two stars in {_short(text)}; mark a word: the *bank* of the river")
    return MarkedText(plain, spans)


def read_mark(text: str) -> MarkedText:
    """The one marked word of a text; none or several are refused."""
    marked = read_marks(text)
    if len(marked.spans) > 1:
        words = ", ".join(marked.words)
        raise UsageError(f"{len(marked.spans)} words are marked in {_short(text)} ({words}); mark one")
    return marked


def mark_word(text: str, word: str) -> MarkedText:
    """A word that is named instead of marked: it must occur in the text, as a word, exactly once.

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
    part = text[start:end]
    return (start + len(part) - len(part.lstrip()), start + len(part.rstrip())) if part.strip() else (start, start)


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
