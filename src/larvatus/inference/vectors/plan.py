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
from larvatus.data.text.template import SequenceTemplate
from larvatus.data.text.windows import Windows, windows
from larvatus.inference.vectors.encoded import Encoded
from larvatus.inference.vectors.units import Pool


@dataclass(frozen=True, eq=False)
class Plan:
    """S sequences of N tokens in all, P triples, U units."""

    ids: Ints  # [N] tokens of the sequences, shortest sequence first, each with its frame
    lengths: Ints  # [S] ascending
    rows: Ints  # [P] token of each triple, ascending
    units: Ints  # [P]
    weights: npt.NDArray[np.float32]  # [P]
    empty: Ints  # units that no token makes
    total: int  # U
    windows: Ints  # [texts] how many windows each was read in


def plan(texts: Sequence[Encoded], *, pool: Pool, size: int, overlap: int | None, template: SequenceTemplate) -> Plan:
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
    return Plan(
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
    texts: Sequence[Encoded], cuts: Sequence[Windows], begins: Ints, first_window: Ints, template: SequenceTemplate
) -> Ints:
    """For every place of every text, end to end: the row that its vector is taken from."""
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


def _framed(texts: Sequence[Encoded], cuts: Sequence[Windows], order: Ints, template: SequenceTemplate) -> Ints:
    """Tokens of all sequences in their order, each between its special tokens."""
    pieces = [
        text.ids[start:end]
        for text, cut in zip(texts, cuts, strict=True)
        for start, end in zip(cut.starts.tolist(), cut.ends.tolist(), strict=True)
    ]
    parts = [part for index in order.tolist() for part in template.interleave(pieces[index])]
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)
