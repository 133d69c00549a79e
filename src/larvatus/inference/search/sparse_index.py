"""Search by sparse vectors: an inverted index of the weights that a model gives to tokens (SPLADE, Formal et al. 2021).

    write_postings(folder, records, vocabulary)
    SparseIndex.open(folder, vocabulary, count).search([(tokens, weights)], top=10)

The score of a passage is the dot product Σ_j w_j(q) w_j(d): the postings of the question's tokens are added up, as BM25
does it (`lexical.py`). The files of an index:

    tokens.starts.npy      [V + 1] where the postings of each token begin
    tokens.rows.npy        [P] passages, ascending for each token
    tokens.weights.npy     [P] weights

N passages, V tokens of the vocabulary, P weights above 0 in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from larvatus.core.arrays import Bools, Doubles, Floats, Integers, Ints, Records
from larvatus.core.errors import ArtefactError
from larvatus.inference.search.nearest import Matches, first_of_largest, ranked
from larvatus.inference.search.storage import AGAIN, WEIGHT, RaggedRecords, write_header

STARTS, ROWS, WEIGHTS = "tokens.starts.npy", "tokens.rows.npy", "tokens.weights.npy"
BLOCK = 1 << 21
"""Postings that are sorted at once: 48 MiB."""


def encode_weights(tokens: Ints, weights: Floats) -> bytes:
    """The weights of a passage as they are stored."""
    records = np.zeros(len(tokens), WEIGHT)
    records["token"], records["weight"] = tokens, weights
    return records.tobytes()


def write_postings(folder: Path, records: RaggedRecords, vocabulary: int) -> None:
    """Write the inverted index: tokens in groups that fit into memory, one pass over all passages for each group."""
    counts_V = np.zeros(vocabulary, np.int64)
    for run in records.blocks(BLOCK):
        counts_V += np.bincount(run.records["token"], minlength=vocabulary)
    starts = np.concatenate([[0], np.cumsum(counts_V)])
    np.save(folder / STARTS, starts.astype(np.int64))
    write_pairs(folder / ROWS, folder / WEIGHTS, int(starts[-1]), _by_token(records, starts))


def write_pairs(rows_path: Path, weights_path: Path, total: int, blocks: Iterable[tuple[Records, Records]]) -> None:
    """The passages of all postings and their weights, as two arrays."""
    with rows_path.open("wb") as rows_file, weights_path.open("wb") as weights_file:
        write_header(rows_file, np.dtype(np.int32), (total,))
        write_header(weights_file, np.dtype(np.float32), (total,))
        for rows, weights in blocks:
            rows_file.write(rows.astype(np.int32).tobytes())
            weights_file.write(weights.astype(np.float32).tobytes())


def groups(starts: Ints, most: int) -> Iterator[tuple[int, int]]:
    """Consecutive tokens, first to last, that have at most `most` postings, or one token that has more."""
    first = 0
    while first < len(starts) - 1:
        last = int(np.searchsorted(starts, starts[first] + most, side="right")) - 1
        last = max(first + 1, min(last, len(starts) - 1))
        yield first, last
        first = last


def _by_token(records: RaggedRecords, starts: Ints) -> Iterator[tuple[Ints, Records]]:
    """Passages and weights of all postings, by token and then by passage."""
    for first, last in groups(starts, BLOCK):
        chosen: list[Records] = [np.zeros(0, WEIGHT)]
        rows: list[Ints] = [np.zeros(0, np.int64)]
        for run in records.blocks(BLOCK):
            inside = (run.records["token"] >= first) & (run.records["token"] < last)
            chosen.append(run.records[inside])
            rows.append(np.repeat(run.passages, run.counts)[inside])
        group = np.concatenate(chosen)
        order = np.argsort(group["token"], kind="stable")
        yield np.concatenate(rows)[order], group["weight"][order]


class SparseIndex:
    """The postings of N passages, mapped from the disk."""

    def __init__(self, starts: Ints, rows: Integers, weights: Floats, count: int) -> None:
        self._starts, self._rows, self._weights, self._count = starts, rows, weights, count

    @classmethod
    def open(cls, folder: Path, vocabulary: int, count: int) -> SparseIndex:
        """Map the postings of an index of `count` passages; files that do not fit each other are refused."""
        try:
            starts, rows, weights = (np.load(folder / name, mmap_mode="r") for name in (STARTS, ROWS, WEIGHTS))
        except (OSError, ValueError) as fault:
            raise ArtefactError(f"the postings of {folder} cannot be read ({fault}); {AGAIN}") from fault
        fits = starts.shape == (vocabulary + 1,) and starts[0] == 0 and not (np.diff(starts) < 0).any()
        if not fits or rows.shape != (int(starts[-1]),) or weights.shape != rows.shape:
            raise ArtefactError(f"{folder / STARTS} does not fit the postings; {AGAIN}")
        if (rows.dtype, weights.dtype) != (np.int32, np.float32):
            raise ArtefactError(f"{folder / ROWS} and {WEIGHTS} hold other numbers than an index does; {AGAIN}")
        return cls(np.asarray(starts), rows, weights, count)

    def scores(self, tokens: Ints, weights: Floats | Ints) -> Doubles:
        """The dot product of a query with every passage: [N]."""
        scores_N: Doubles = np.zeros(self._count, np.float64)
        for token, weight in zip(tokens.tolist(), weights.tolist(), strict=True):
            run = slice(int(self._starts[token]), int(self._starts[token + 1]))
            scores_N[self._rows[run]] += weight * self._weights[run].astype(np.float64)
        return scores_N

    def search(
        self, queries: Sequence[tuple[Ints, Floats | Ints]], *, top: int, allowed: Bools | None = None
    ) -> list[Matches]:
        """Passages that share a token with each query, best first; equal scores in the order of the index."""
        matches = []
        for tokens, weights in queries:
            scores_N = self.scores(tokens, weights)
            if allowed is not None:
                scores_N[~allowed] = 0.0
            rows = np.flatnonzero(scores_N)
            kept = rows[first_of_largest(scores_N[rows], top)]
            matches.append(ranked(kept, scores_N[kept], top))
        return matches
