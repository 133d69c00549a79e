"""What to compute and where it goes: sequences for the model, and the (token, unit, weight) triples that make units.

Every way of pooling but the maximum is a weighted sum over tokens, so one plan serves all of them:

    v_u = Σ_t w_tu z_t        mean: 1/n · sum: 1 · first, last: one token · cls: 1/K for the [CLS] of each of K windows

Long texts lie in several windows (`data/text/windows.py`); a place belongs to the window where its token sees most,
special
tokens before the text to the first and those after it to the last. The mean of a long text is thus over all its tokens,
each once. Sequences are sorted by length: batches of neighbours need no padding and little bookkeeping.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Ints
from larvatus.core.batch import edges, ranges
from larvatus.core.errors import DataError, UsageError
from larvatus.data.text.align import Alignment, join_words
from larvatus.data.text.template import Dress
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.windows import Windows, windows
from larvatus.inference.vectors.layers import Pool, Unit
from larvatus.inference.vectors.marks import read_marks

Text = str | Sequence[str]
"""A text, or its words already cut (they are joined by spaces)."""
Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class EncodedUnits:
    text: str
    ids: Ints  # [T]
    places: Ints  # [U, 2] first place of each unit, and the one after its last; empty where no token covers a unit
    spans: Ints  # [U, 2] characters of each unit


def encode_units(
    tokenizer: Tokenizer, texts: Sequence[Text], unit: Unit, spans: Sequence[Spans] | None = None, *, before: int = 0
) -> list[EncodedUnits]:
    """The tokens and units of texts. Spans are given in characters, or marked with stars in the texts.

    `before` is how many texts the user gave before these, for messages.
    """
    plain, cut = _plain(texts)
    if unit == "span" and spans is None:
        marked = [read_marks(text) for text in plain]
        plain, spans = [marks.text for marks in marked], [marks.spans for marks in marked]
        if any(words is not None for words in cut):
            raise UsageError("spans of texts that are cut into words are given by spans=…, not by stars")
    elif spans is not None:
        _check(plain, spans, unit, before)
    dress = tokenizer.frame.single
    if unit in ("sentence", "document"):
        return [_whole(text, ids, dress) for text, ids in zip(plain, tokenizer.encode_fast(plain), strict=True)]
    alignments = tokenizer.encode_many(plain, cut)
    if unit == "token":
        return [
            EncodedUnits(alignment.text, alignment.ids, _each(len(alignment)) + dress.opening, alignment.spans)
            for alignment in alignments
        ]
    if unit == "word":
        return [
            EncodedUnits(alignment.text, alignment.ids, alignment.word_tokens + dress.opening, alignment.word_spans)
            for alignment in alignments
        ]
    assert spans is not None
    return [_spans(alignment, wanted, dress) for alignment, wanted in zip(alignments, spans, strict=True)]


def check_texts(texts: Sequence[Text]) -> None:
    """Refuse what is no list of texts, by its place."""
    if isinstance(texts, str):
        raise UsageError("a list of texts is wanted, not one text; write [text]")
    for number, text in enumerate(texts, start=1):
        words = isinstance(text, Sequence) and all(isinstance(word, str) for word in text)
        if not (isinstance(text, str) or words):
            raise DataError(f"text {number} is {type(text).__name__}, not a string or a list of words")


def _plain(texts: Sequence[Text]) -> tuple[list[str], list[Ints | None]]:
    """Each text as a string, with the spans of its words where it came cut."""
    plain: list[str] = []
    cut: list[Ints | None] = []
    for text in texts:
        joined, words = (text, None) if isinstance(text, str) else join_words(text)
        plain.append(joined)
        cut.append(words)
    return plain, cut


def _whole(text: str, ids: npt.NDArray[np.int32], dress: Dress) -> EncodedUnits:
    ends = np.array([[0, len(ids) + dress.specials]]), np.array([[0, len(text)]])
    return EncodedUnits(text, ids.astype(np.int64), *ends)


def _each(count: int) -> Ints:
    return np.arange(count, dtype=np.int64)[:, None] + np.arange(2)


def _spans(alignment: Alignment, wanted: Spans, dress: Dress) -> EncodedUnits:
    ranges = [alignment.tokens_of_chars(start, end) for start, end in wanted]
    places = np.array([[tokens.start, tokens.stop] for tokens in ranges], dtype=np.int64).reshape(-1, 2) + dress.opening
    return EncodedUnits(alignment.text, alignment.ids, places, np.array(wanted, dtype=np.int64).reshape(-1, 2))


def _check(texts: Sequence[str], spans: Sequence[Spans], unit: Unit, before: int) -> None:
    if unit != "span":
        raise UsageError(f'spans are given, but the unit is {unit}; say unit="span"')
    for number, (text, spans_of_text) in enumerate(zip(texts, spans, strict=True), start=before + 1):
        for span in spans_of_text:
            if len(span) != 2 or not 0 <= span[0] < span[1] <= len(text):
                raise UsageError(
                    f"text {number} has no span {tuple(span)}: spans are (start, end) in its {len(text)} characters"
                )


@dataclass(frozen=True, eq=False)
class PoolingPlan:
    """S sequences of N tokens in all, P triples, U units."""

    ids: Ints  # [N] tokens of the sequences, shortest sequence first, each with its frame
    lengths: Ints  # [S] ascending
    rows: Ints  # [P] token of each triple, ascending
    units: Ints  # [P]
    weights: npt.NDArray[np.float32]  # [P]
    empty: Ints  # units that no token makes
    total: int  # U
    windows: Ints  # [texts] how many windows each was read in


def make_plan(
    texts: Sequence[EncodedUnits], *, pool: Pool, size: int, overlap: int | None, dress: Dress
) -> PoolingPlan:
    """`size` is the longest sequence of the model, `dress` the special tokens around a text."""
    cuts = [windows(len(text.ids), size=dress.room(size), overlap=overlap) for text in texts]
    counts = np.array([len(cut) for cut in cuts], dtype=np.int64)
    lengths = np.concatenate([np.empty(0, np.int64), *(cut.ends - cut.starts for cut in cuts)]) + dress.specials
    order = np.argsort(lengths, kind="stable")
    begins = np.empty_like(lengths)  # first row of each window
    begins[order] = edges(lengths[order])[:-1]
    first_window = edges(counts)
    rows_of_places = _rows_of_places(texts, cuts, begins, first_window, dress)
    place_edges = edges(np.array([len(text.ids) + dress.specials for text in texts], dtype=np.int64))
    unit_counts = np.array([len(text.places) for text in texts], dtype=np.int64)
    if pool == "cls":
        rows = begins + dress.summary_places(lengths)
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
        ids=_framed(texts, cuts, order, dress),
        lengths=lengths[order],
        rows=rows[by_row],
        units=units[by_row],
        weights=weights[by_row].astype(np.float32),
        empty=empty,
        total=int(unit_counts.sum()),
        windows=counts,
    )


def _rows_of_places(
    texts: Sequence[EncodedUnits], cuts: Sequence[Windows], begins: Ints, first_window: Ints, dress: Dress
) -> Ints:
    """For every place of every text, end to end: the row that its vector is taken from."""
    opening, closing = (np.arange(len(gap)) for gap in dress.gaps)
    parts = []
    for number, (text, cut) in enumerate(zip(texts, cuts, strict=True)):
        window_begins = begins[first_window[number] : first_window[number + 1]]
        if len(cut) == 1:
            parts.append(window_begins[0] + np.arange(len(text.ids) + dress.specials))
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


def _framed(texts: Sequence[EncodedUnits], cuts: Sequence[Windows], order: Ints, dress: Dress) -> Ints:
    """Tokens of all sequences in their order, each between its special tokens."""
    pieces = [
        text.ids[start:end]
        for text, cut in zip(texts, cuts, strict=True)
        for start, end in zip(cut.starts.tolist(), cut.ends.tolist(), strict=True)
    ]
    parts = [part for index in order.tolist() for part in dress.woven(pieces[index])]
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)
