"""Words and n-grams of many documents as 64-bit numbers, all at once: duplicates and overlaps are found by them.

    characters = ShingleCharacters.of(["The cat sat.", "the CAT sat!"])
    words = hashed_words(characters)
    words.hashes, words.counts                      # equal words have equal numbers, whatever their case
    n_grams(words, 3)                               # a number for each run of three words within a document

A word is a run of letters, marks and digits; in scripts without spaces, each character is one. The number of a word is
a polynomial of its characters modulo 2^64 (Karp and Rabin 1987), mixed by MurmurHash3's finaliser. It depends on
neither machine nor process, so a sketch can be queried years later.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import regex

from larvatus.core import files
from larvatus.core.arrays import Bits, Bits32, Bools, Bytes, Ints
from larvatus.core.batch import ranges
from larvatus.core.errors import DataError
from larvatus.core.regular_files import is_there, size_of

Word = TypeVar("Word", np.uint32, np.uint64)
SKETCH = "sketch.bloom"
WORDS = 8
"""Words of the stored runs; longer runs can be queried."""
HASHES = 6
CHANCE = 0.0216
"""False-positive rate: probability that a run absent from the corpus is reported as known, (1 − e^(−6/8))^6."""
_MAGIC = b"larvatus sketch of runs of 8 words, 6 hashes, 1\n"
_BASE = 0x9E3779B97F4A7C15
_MIXING: dict[type, tuple[tuple[int, int, int], tuple[int, int]]] = {
    np.uint64: ((33, 33, 33), (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)),
    np.uint32: ((16, 13, 16), (0x85EBCA6B, 0xC2B2AE35)),
}
_OTHER, _SPACE, _DAMAGED, _IN_WORD, _ALONE = range(5)
_KINDS = {
    _SPACE: regex.compile(r"\s"),
    _DAMAGED: regex.compile(r"[\p{Cc}\p{Cs}\p{Co}\p{Noncharacter_Code_Point}\uFFFD\uFEFF--\s]", regex.V1),
    _IN_WORD: regex.compile(r"[\p{L}\p{M}\p{N}]"),
    _ALONE: regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"),
}


class ShingleCharacters(NamedTuple):
    """The characters of D documents, folded, a space after each document."""

    codes: Bits32  # [C]
    kinds: Bytes  # [C]
    ends: Ints  # [D] where each document ends, its space included

    @classmethod
    def of(cls, texts: Sequence[str]) -> ShingleCharacters:
        folded = [text.lower() for text in texts]
        codes = np.frombuffer(" ".join([*folded, ""]).encode("utf-32-le", "surrogatepass"), np.uint32)
        ends = np.cumsum([len(text) + 1 for text in folded], dtype=np.int64)
        return cls(codes, _kinds()[codes], ends)

    def letters(self) -> Ints:
        """Letters, marks and digits of each document."""
        return self._counted(self.kinds >= _IN_WORD)

    def visible(self) -> Ints:
        return self._counted(self.kinds != _SPACE)

    def damaged(self) -> Ints:
        """Characters that no text has: controls, private use, marks of bytes that could not be read."""
        return self._counted(self.kinds == _DAMAGED)

    def _counted(self, chosen: Bools) -> Ints:
        starts = np.concatenate([[0], self.ends[:-1]])  # no document is without a character: its space
        return np.add.reduceat(chosen, starts, dtype=np.int64)


class HashedWords(NamedTuple):
    """The words of D documents, end to end."""

    hashes: Bits  # [W]
    counts: Ints  # [D] words of each document


def hashed_words(characters: ShingleCharacters) -> HashedWords:
    """The words of each document, in their order."""
    codes, kinds, document_ends = characters
    if not len(codes):
        return HashedWords(np.empty(0, np.uint64), np.zeros(len(document_ends), np.int64))
    begins = kinds >= _IN_WORD
    ends = begins.copy()  # the last character is a space: after a word there is always something
    begins[1:] &= (kinds[1:] == _ALONE) | (kinds[:-1] != _IN_WORD)
    ends[:-1] &= (kinds[1:] != _IN_WORD) | (kinds[:-1] == _ALONE)
    first, last = np.flatnonzero(begins), np.flatnonzero(ends) + 1
    sums = np.zeros(len(codes) + 1, np.uint64)
    np.cumsum((codes + np.uint64(1)) * _powers(len(codes), _BASE), out=sums[1:])
    inverse = pow(_BASE, -1, 1 << 64)
    hashes: Bits = mix_bits((sums[last] - sums[first]) * _powers(len(codes), inverse)[first])
    counts = np.diff(np.searchsorted(first, document_ends), prepend=0)
    return HashedWords(hashes, counts.astype(np.int64))


def n_grams(words: HashedWords, n: int) -> tuple[Bits, Ints]:
    """The n-grams within each document, end to end, and how many each has; none of one with fewer than n words."""
    counts = np.maximum(words.counts - n + 1, 0)
    if len(words.hashes) < n:
        return np.empty(0, np.uint64), counts
    whole = len(words.hashes) - n + 1
    sums = np.zeros(whole, np.uint64)
    for place in range(n):
        sums *= np.uint64(_BASE)
        sums += words.hashes[place : place + whole]
    document = np.repeat(np.arange(len(counts)), words.counts)[:whole]  # of the first word of each
    inside = np.arange(whole) + n <= np.cumsum(words.counts)[document]
    return mix_bits(sums[inside]), counts


def mix_bits(numbers: npt.NDArray[Word]) -> npt.NDArray[Word]:
    """MurmurHash3's finaliser of 32 or 64 bits: a bijection after which all bits depend on all."""
    word = numbers.dtype.type
    (first, second, third), (factor, other) = _MIXING[word]
    out = numbers ^ (numbers >> word(first))
    out *= word(factor)
    out ^= out >> word(second)
    out *= word(other)
    out ^= out >> word(third)
    return out


def count_per_document(chosen: Bools, counts: Ints) -> Ints:
    """How many of the items of each document are chosen: [all items], and [D] items of each → [D]."""
    sums = np.concatenate([[0], np.cumsum(chosen, dtype=np.int64)])
    ends = np.cumsum(counts)
    return np.asarray(sums[ends] - sums[ends - counts], np.int64)


@functools.cache
def _kinds() -> Bytes:
    """What each code point is."""
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    kinds = np.full(len(every), _OTHER, np.uint8)
    for kind, pattern in _KINDS.items():
        kinds[[match.start() for match in pattern.finditer(every)]] = kind
    return kinds


_kept: dict[int, Bits] = {}


def _powers(count: int, base: int) -> Bits:
    """The first powers of a base; kept, as every block needs them."""
    kept = _kept.get(base)
    if kept is None or len(kept) < count:
        kept = np.full(max(count, 1 << 20), base, np.uint64)
        kept[0] = 1
        _kept[base] = kept = np.multiply.accumulate(kept)
    return kept[:count]


@dataclass(frozen=True)
class Sketch:
    """The runs of eight words of a corpus, so that contamination can be checked later without the text.

        sketch = Sketch.begin(corpus / SKETCH, capacity); sketch.add(texts); sketch.finish()
        sketch = Sketch.open(corpus / SKETCH)
        sketch.holds(grams)                       # whether each 8-gram is there

    A Bloom filter (Bloom 1970): a byte for each run, in which six bits are set. It reports every run that was added,
    and 2% of those that were not. A run of thirteen words is six runs of eight, all of which must be known, so
    chance plays no part any more. The file is mapped into memory, never read whole.
    """

    path: Path
    bytes_: Bytes
    """The bits, eight in each; those of a file that grows are written through."""

    @classmethod
    def begin(cls, path: Path, capacity: int) -> Sketch:
        """A new sketch, in a temporary file, for `capacity` runs of words."""
        aside = files.aside_of(path)
        size = max(64, capacity)
        with files.saying_what_is_full(path, size):
            files.remove(aside)
            with aside.open("xb") as file:
                file.write(_MAGIC)
                file.truncate(len(_MAGIC) + size)
        return cls(path, np.memmap(aside, np.uint8, "r+", offset=len(_MAGIC)))

    @classmethod
    def open(cls, path: Path) -> Sketch:
        if not is_there(path, DataError):
            way = "build it with: larvatus corpus build … --sketch"
            raise DataError(f"{path.parent} has no sketch of its text ({path.name}); {way}")
        if size_of(path, DataError) <= len(_MAGIC):
            raise DataError(f"{path} is cut short; build the corpus again")
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise DataError(f"{path} is no sketch of this version; build the corpus again")
        return cls(path, np.memmap(path, np.uint8, "r", offset=len(_MAGIC)))

    def add(self, texts: Sequence[str]) -> None:
        grams, _ = n_grams(hashed_words(ShingleCharacters.of(texts)), WORDS)
        for bits in self._bits(grams):
            np.bitwise_or.at(self.bytes_, bits >> 3, (1 << (bits & 7)).astype(np.uint8))

    def finish(self) -> str:
        """It appears whole; its checksum."""
        assert isinstance(self.bytes_, np.memmap)
        self.bytes_.flush()
        aside = files.aside_of(self.path)
        files.fsync(aside)
        os.replace(aside, self.path)
        files.fsync(self.path.parent)
        return files.sha256(self.path)

    def abandon(self) -> None:
        files.aside_of(self.path).unlink(missing_ok=True)

    def holds(self, grams: Bits) -> Bools:
        """[G] runs of eight words → whether each is known."""
        known = np.ones(len(grams), bool)
        for bits in self._bits(grams):
            known &= (self.bytes_[bits >> 3] >> (bits & 7).astype(np.uint8)) & 1 == 1
        return known

    def holds_runs(self, grams: Bits, counts: Ints, words: int) -> tuple[Bools, Ints]:
        """Runs of more words: [G] 8-grams of texts → whether each longer run is known, and how many each text has."""
        more = words - WORDS  # of further 8-grams
        known = self.holds(grams)
        left = np.maximum(counts - more, 0)
        if not more or not len(known):
            return known, left
        sums = np.concatenate([[0], np.cumsum(known)])
        starts = np.repeat(np.cumsum(counts) - counts, left) + ranges(left)
        return sums[starts + more + 1] - sums[starts] == more + 1, left

    def _bits(self, grams: Bits) -> Sequence[Ints]:
        size = np.uint64(len(self.bytes_) * 8)
        step = mix_bits(grams ^ np.uint64(0x5851F42D4C957F2D)) | np.uint64(1)
        return [((grams + np.uint64(number) * step) % size).astype(np.int64) for number in range(HASHES)]
