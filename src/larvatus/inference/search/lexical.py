"""BM25 (Robertson & Zaragoza 2009): rank passages by the words that they share with a query.

    write_lexical(folder, texts)                            # one pass over the passages, memory bounded
    LexicalIndex.open(folder).search("appeal decision", top=10)

A passage d scores Σ_w idf(w) · tf / (tf + k₁ (1 − b + b |d| / mean length)) over the words w of the query, with
idf(w) = ln(1 + (N − n + 0.5) / (n + 0.5)) for n of N passages that contain w (Lucene's form). Words are those of
`data/text/words.py` in small letters, so that scripts without spaces work; there is no stemming and no stop list.

Each word's passages and their weights are a run of two arrays that are mapped from the disk. `bm25s` computes the same
scores, but holds the words of all passages in memory while it builds; this takes 12 bytes for each distinct word of a
passage on the disk, and a vocabulary in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

import numpy as np

from larvatus.core.arrays import Bools, Doubles, Floats, Integers, Ints, Records
from larvatus.core.errors import ArtefactError
from larvatus.data.text.words import segment_words
from larvatus.inference.search.generation import map_array
from larvatus.inference.search.nearest import Matches
from larvatus.inference.search.sparse_index import SparseIndex, groups, write_pairs
from larvatus.inference.search.storage import AGAIN

WORDS, STARTS, POSTINGS, WEIGHTS = "words.txt", "postings.starts.npy", "postings.rows.npy", "postings.weights.npy"
FILES = (WORDS, STARTS, POSTINGS, WEIGHTS)
K1, B = 1.2, 0.75
"""Lucene's parameters."""
BLOCK = 1 << 22
"""Postings that are sorted at once: 48 MiB."""


def words_of(text: str) -> list[str]:
    """Words of a text that have a letter or a digit, in small letters.

    >>> words_of("The R.A.F. flew 3 sorties.")
    ['the', 'r', 'a', 'f', 'flew', '3', 'sorties']
    """
    spans = segment_words(text).tolist()
    return [text[start:end].casefold() for start, end in spans if any(map(str.isalnum, text[start:end]))]


@dataclass(frozen=True, eq=False)
class _Counts:
    """First pass over the passages."""

    ids: dict[str, int]
    """Words, in the order in which they first occur."""
    passages: Ints
    """Passages that contain each word."""
    lengths: Ints
    """Words of each passage."""


def write_lexical(folder: Path, texts: Iterable[str]) -> None:
    """Write the index of passages, which are read once and in order."""
    raw = folder / "postings.raw"
    with raw.open("wb") as stream:
        counts = _write_counts(stream, texts)
    starts = np.concatenate([[0], np.cumsum(counts.passages)])
    total = int(starts[-1])
    np.save(folder / STARTS, starts.astype(np.int64))
    (folder / WORDS).write_text("".join(f"{word}\n" for word in counts.ids), encoding="utf-8")
    postings = np.fromfile(raw, dtype=_POSTING) if total <= BLOCK else np.memmap(raw, dtype=_POSTING, mode="r")
    mean = max(1e-9, float(counts.lengths.mean())) if len(counts.lengths) else 1.0
    norms = K1 * (1.0 - B + B * counts.lengths / mean)
    idf = np.log1p((len(counts.lengths) - counts.passages + 0.5) / (counts.passages + 0.5))

    def weighted(block: Records) -> tuple[Records, Doubles]:
        frequency = block["count"].astype(np.float64)
        return block["row"], idf[block["word"]] * frequency / (frequency + norms[block["row"]])

    write_pairs(folder / POSTINGS, folder / WEIGHTS, total, map(weighted, _by_word(postings, starts)))
    del postings
    raw.unlink()


_POSTING = np.dtype([("word", np.int32), ("row", np.int32), ("count", np.int32)])


def _write_counts(stream: IO[bytes], texts: Iterable[str]) -> _Counts:
    """Write (word, row, count) for each distinct word of each passage, in the order of the passages."""
    ids: dict[str, int] = {}
    seen: list[int] = []
    lengths: list[int] = []
    for row, text in enumerate(texts):
        words = Counter(words_of(text))
        lengths.append(words.total())
        for word in words:
            if word not in ids:
                ids[word] = len(ids)
                seen.append(0)
            seen[ids[word]] += 1
        listed = [(ids[word], row, count) for word, count in words.items()]
        stream.write(np.array(listed, dtype=_POSTING).tobytes())
    return _Counts(ids, np.array(seen, dtype=np.int64), np.array(lengths, dtype=np.int64))


def _by_word(postings: Records, starts: Ints) -> Iterator[Records]:
    """All postings sorted by word, then by passage: words in groups that fit into memory, one pass for each group."""
    for first, last in groups(starts, BLOCK):
        chosen = []
        for low in range(0, len(postings), BLOCK):
            part = postings[low : low + BLOCK]
            chosen.append(part[(part["word"] >= first) & (part["word"] < last)])
        group = np.concatenate(chosen)
        yield group[np.argsort(group["word"], kind="stable")]


class LexicalIndex:
    """The words of N passages, mapped from the disk."""

    def __init__(self, listed: str, starts: Ints, rows: Integers, weights: Floats, count: int) -> None:
        self._listed, self._starts, self._count = listed, starts, count
        self._postings = SparseIndex(starts, rows, weights, count)

    @cached_property
    def _words(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self._listed.split("\n")[:-1])}

    @classmethod
    def open(cls, folder: Path, count: int) -> LexicalIndex:
        try:
            listed = (folder / WORDS).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as fault:
            raise ArtefactError(f"{folder / WORDS} cannot be read ({fault}); {AGAIN}") from fault
        starts: Ints = np.asarray(map_array(folder / STARTS, (listed.count("\n") + 1,), np.dtype(np.int64)))
        total = int(starts[-1])
        if starts[0] != 0 or (np.diff(starts) < 0).any():
            raise ArtefactError(f"{folder / STARTS} does not fit {WORDS}; {AGAIN}")
        rows = map_array(folder / POSTINGS, (total,), np.dtype(np.int32))
        weights = map_array(folder / WEIGHTS, (total,), np.dtype(np.float32))
        return cls(listed, starts, rows, weights, count)

    def idf(self, word: str) -> float:
        """ln(1 + (N − n + 0.5) / (n + 0.5)) for n of N passages with a word."""
        parts = [self._words.get(part) for part in words_of(word)]
        counts = [0 if number is None else int(self._starts[number + 1] - self._starts[number]) for number in parts]
        n = min(counts, default=0)
        return float(np.log1p((self._count - n + 0.5) / (n + 0.5)))

    def scores(self, query: str) -> Doubles:
        """BM25 of every passage: [N]. A word that the query repeats counts again."""
        return self._postings.scores(*self._counted(query))

    def search(self, query: str, *, top: int, allowed: Bools | None = None) -> Matches:
        """Passages with a word of the query, best first; equal scores in the order of the index."""
        return self._postings.search([self._counted(query)], top=top, allowed=allowed)[0]

    def _counted(self, query: str) -> tuple[Ints, Ints]:
        """The words of the index that a query has, and how often."""
        counted = Counter(self._words[word] for word in words_of(query) if word in self._words)
        return np.array(list(counted), np.int64), np.array(list(counted.values()), np.int64)
