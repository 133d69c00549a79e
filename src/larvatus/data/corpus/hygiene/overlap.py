"""Documents that repeat an earlier one, exactly or nearly, and text that a corpus shares with evaluation sets.

    repeats = exact_repeats(digests)                       # [D] number of the first document that is the same, or −1
    scheme = MinHashScheme.of(threshold=0.3, permutations=128)
    signatures = scheme.signatures(grams, counts)          # [D, 128]; row by row what `datasketch.MinHash` gives
    near = near_repeats(signatures, scheme, candidates)    # [D] number of an earlier one that it resembles, or −1
    sets = EvaluationSets.read(["test.jsonl", "squad.json"], n=13)
    sets.sets[0].hits(is_hit)                              # of each example, how many of its n-grams the corpus holds

**Repeats.** The share of equal numbers in two signatures estimates the Jaccard similarity of two sets of n-grams.
Permutations, and the number and width of bands, come from `datasketch` (Broder 1997; Leskovec et al., *Mining of
Massive Datasets*, ch. 3). The minima are computed here, over all documents of a block: ten times as fast as an object
for each, to the same bits.

As in `datatrove`, buckets are found by sorting the keys of a band, not by tables in memory: signatures stay on disk,
and memory holds a few numbers a document. Documents that meet in a bucket are compared by their whole signatures. A
document is a duplicate only if it resembles one that stays, so a chain of small changes is not cut down to its head.

**Evaluation sets.** A row of a table is an example, and so are a line of plain text and a paragraph of SQuAD's JSON.
All strings of a row count; an example none of which has n words is not judged. D documents.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np

from larvatus.core.arrays import Bits, Bits32, Bools, Ints
from larvatus.core.errors import DataError, UsageError
from larvatus.data.corpus.hygiene.shingles import ShingleCharacters, count_per_document, hashed_words, mix_bits, n_grams
from larvatus.data.labelled.tables import ENDINGS, ending, open_table
from larvatus.data.text.streams import numbered_lines

NOTHING = np.uint32(0xFFFFFFFF)
"""Each minimum of a document without n-grams."""

NEIGHBOURS = 32
"""Earlier documents in a crowded bucket that each document is compared with, in addition to the first."""
_KEYS = 1 << 25  # numbers in memory at once: several bands of few documents, one of many
_PAIRS = 1 << 12  # compared at once


@dataclass(frozen=True)
class MinHashScheme:
    factors: Bits32  # [P]
    offsets: Bits32  # [P]
    bands: int
    rows: int
    threshold: float

    @classmethod
    def of(cls, *, threshold: float, permutations: int) -> MinHashScheme:
        """Documents at the threshold are to meet in some band; those that meet are compared whole afterwards."""
        factors, offsets, bands, rows = _library_scheme(threshold, permutations)
        return cls(factors, offsets, bands, rows, threshold)

    def signatures(self, grams: Bits, counts: Ints) -> Bits32:
        """[G] n-grams of [D] documents, end to end → [D, P]."""
        low = mix_bits((grams >> np.uint64(32)).astype(np.uint32))  # as the library does first
        least = np.full((len(counts), len(self.factors)), NOTHING, np.uint32)
        some = np.flatnonzero(counts)
        starts = (np.cumsum(counts) - counts)[some]
        if not len(some):
            return least
        permuted = np.empty(len(low), np.uint32)
        for number, (factor, offset) in enumerate(zip(self.factors, self.offsets, strict=True)):
            np.multiply(low, factor, out=permuted)
            permuted += offset
            least[some, number] = np.minimum.reduceat(permuted, starts)
        return least

    def keys(self, signatures: Bits32, band: int) -> Bits:
        """A number for each document: equal where all rows of the band are."""
        key = np.full(len(signatures), band + 1, np.uint64)
        for row in range(band * self.rows, (band + 1) * self.rows):
            key *= np.uint64(0x9E3779B97F4A7C15)
            key += signatures[:, row]
        return mix_bits(key)


@functools.lru_cache(maxsize=8)
def _library_scheme(threshold: float, permutations: int) -> tuple[Bits32, Bits32, int, int]:
    if find_spec("datasketch") is None:
        raise UsageError('near duplicates need datasketch; pip install "larvatus[hygiene]"')
    from datasketch import MinHash, MinHashLSH  # scipy comes with it, which takes a second

    # a pair that is missed stays missed, one too many is thrown out when its whole signatures are compared
    index = MinHashLSH(threshold=threshold, num_perm=permutations, weights=(0.1, 0.9))
    factors, offsets = MinHash(num_perm=permutations, seed=1, scheme="affine32").permutations
    return factors, offsets, int(index.b), int(index.r)


class Signatures(Protocol):
    """[D, P] that may lie on the disk."""

    def __len__(self) -> int: ...
    def blocks(self) -> Iterator[Bits32]:
        """All, in their order."""

    def rows(self, numbers: Ints) -> Bits32:
        """Those of some documents."""


def exact_repeats(digests: Bits) -> Ints:
    """[D, 2] digests → the number of the first document with the same, or −1."""
    order = np.lexsort((digests[:, 1], digests[:, 0]))  # stable: equal ones stay in the order of the text
    same = np.zeros(len(order), bool)
    same[1:] = (digests[order[1:]] == digests[order[:-1]]).all(axis=1)
    head = np.maximum.accumulate(np.where(same, 0, np.arange(len(order))))
    first = np.full(len(order), -1, np.int64)
    first[order[same]] = order[head[same]]
    return first


def near_repeats(signatures: Signatures, scheme: MinHashScheme, candidates: Bools) -> Ints:
    """For each candidate, the first kept earlier document that it resembles, or −1."""
    later: list[Ints] = []
    earlier: list[Ints] = []
    for first, second in _meeting(signatures, scheme, candidates):
        for at in range(0, len(first), _PAIRS):
            a, b = first[at : at + _PAIRS], second[at : at + _PAIRS]
            alike = (signatures.rows(a) == signatures.rows(b)).mean(axis=1) >= scheme.threshold
            earlier.append(a[alike])
            later.append(b[alike])
    resembled = np.full(len(signatures), -1, np.int64)
    if not later:
        return resembled
    pairs = np.unique(np.stack([np.concatenate(later), np.concatenate(earlier)], axis=1), axis=0)
    for document, other in pairs.tolist():  # by document, then by the earlier one: what stays before it is decided
        if resembled[document] < 0 and resembled[other] < 0:
            resembled[document] = other
    return resembled


def _meeting(signatures: Signatures, scheme: MinHashScheme, candidates: Bools) -> Iterator[tuple[Ints, Ints]]:
    """Pairs of candidates, the earlier first, that share the key of a band; each pair once in a pass."""
    at_once = max(1, _KEYS // max(1, len(signatures)))
    for band in range(0, scheme.bands, at_once):
        bands = range(band, min(band + at_once, scheme.bands))
        keys = np.empty((len(bands), len(signatures)), np.uint64)
        empty = np.empty(len(signatures), bool)
        start = 0
        for block in signatures.blocks():
            stop = start + len(block)
            for row, number in enumerate(bands):
                keys[row, start:stop] = scheme.keys(block, number)
            empty[start:stop] = (block == NOTHING).all(axis=1)
            start = stop
        members = np.flatnonzero(candidates & ~empty)
        codes = [_bucket_pairs(keys[row, members], members) for row in range(len(bands))]
        pairs = np.unique(np.concatenate(codes), axis=0)
        if len(pairs):
            yield pairs[:, 0], pairs[:, 1]


def _bucket_pairs(keys: Bits, members: Ints) -> Ints:
    """[K, 2] members with equal keys."""
    order = np.argsort(keys, kind="stable")
    ordered, documents = keys[order], members[order]
    pairs = []
    for distance in range(1, NEIGHBOURS + 1):
        meets = np.flatnonzero(ordered[distance:] == ordered[:-distance])
        if not len(meets):
            break
        pairs.append(np.stack([documents[meets], documents[meets + distance]], axis=1))
    else:
        new = np.ones(len(ordered), bool)
        new[1:] = ordered[1:] != ordered[:-1]
        head = np.maximum.accumulate(np.where(new, np.arange(len(ordered)), 0))
        pairs.append(np.stack([documents[head[~new]], documents[~new]], axis=1))
    return np.concatenate(pairs) if pairs else np.empty((0, 2), np.int64)


# Evaluation sets.

_AT_ONCE = 1_024  # texts


@dataclass(frozen=True)
class EvaluationSet:
    """E examples, each of one text or several: T texts in all."""

    name: str
    texts: tuple[str, ...]
    """[E] The beginning of each example, to be shown."""
    grams: Bits
    """n-grams of all texts, end to end."""
    counts_of_texts: Ints
    """[T]"""
    owners: Ints
    """[T] The example of each text."""

    @classmethod
    def read(cls, path: str, *, n: int) -> EvaluationSet:
        """A set in which nothing has n words cannot be judged, and is refused."""
        grams: list[Bits] = []
        counts: list[Ints] = []
        owners: list[int] = []
        beginnings: list[str] = []
        waiting: list[str] = []

        def take() -> None:
            of_texts, count = n_grams(hashed_words(ShingleCharacters.of(waiting)), n)
            grams.append(of_texts)
            counts.append(count)
            waiting.clear()

        for number, texts in enumerate(example_texts(path)):
            waiting += texts
            owners += [number] * len(texts)
            beginnings.append(max(texts, key=len)[:160])
            if len(waiting) >= _AT_ONCE:
                take()
        take()
        if not beginnings:
            raise DataError(f"{path} holds no examples; give the evaluation set as a table, JSON or lines of text")
        if not sum(map(len, grams)):
            raise DataError(
                f"{path}: no text of it has {n} words; give the file with its texts, or ask for fewer words"
            )
        return cls(path, tuple(beginnings), np.concatenate(grams), np.concatenate(counts), np.array(owners, np.int64))

    @property
    def examples(self) -> int:
        return len(self.texts)

    @property
    def counts(self) -> Ints:
        """[E] n-grams of each example."""
        return self.of_examples(self.counts_of_texts)

    def hits(self, is_hit: Bools) -> Ints:
        """[E] How many n-grams of each example were hit."""
        return self.of_examples(count_per_document(is_hit, self.counts_of_texts))

    def of_examples(self, of_texts: Ints) -> Ints:
        """[T] → [E], added."""
        return np.bincount(self.owners, weights=of_texts, minlength=self.examples).astype(np.int64)


@dataclass(frozen=True)
class EvaluationSets:
    sets: tuple[EvaluationSet, ...]
    grams: Bits
    """n-grams of all sets, sorted, each once."""

    @classmethod
    def read(cls, paths: Sequence[str], *, n: int) -> EvaluationSets:
        sets = tuple(EvaluationSet.read(path, n=n) for path in paths)
        grams = np.unique(np.concatenate([each.grams for each in sets])) if sets else np.empty(0, np.uint64)
        return cls(sets, grams)

    def places(self, grams: Bits) -> Ints:
        """[G] n-grams of a corpus → the place of each in `grams`, −1 if it is absent."""
        if not len(self.grams):
            return np.full(len(grams), -1, np.int64)
        at = np.minimum(np.searchsorted(self.grams, grams), len(self.grams) - 1)
        return np.where(self.grams[at] == grams, at, -1)


def example_texts(path: str) -> Iterator[list[str]]:
    """The strings of each example."""
    if ending(path) not in ENDINGS:
        for _, line in numbered_lines(path):
            if line.strip():
                yield [line]
        return
    for _, row in open_table(path).rows:
        for record in _spread(dict(row)):
            if texts := list(_strings(record)):
                yield texts


def _spread(record: Any) -> Iterator[Any]:
    """SQuAD's JSON is one record with a list of articles, each with a list of paragraphs."""
    for key in ("data", "paragraphs"):
        inner = record.get(key) if isinstance(record, dict) else None
        if isinstance(inner, list) and inner and all(isinstance(each, dict) for each in inner):
            for each in inner:
                yield from _spread(each)
            return
    yield record


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if value.strip():
            yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _strings(each)
