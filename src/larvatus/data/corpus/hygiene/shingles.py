"""Words and n-grams of many documents as 64-bit numbers, all at once: what duplicates and overlaps are found by.

    characters = Characters.of(["The cat sat.", "the CAT sat!"])
    words = hashed_words(characters)
    words.hashes, words.counts                      # equal words have equal numbers, whatever their case
    n_grams(words, 3)                               # a number for each run of three words within a document

A word is a run of letters, marks and digits; in scripts without spaces, each character is one. The number of a word is
a polynomial of its characters modulo 2^64 (Karp and Rabin 1987), mixed by MurmurHash3's finaliser. It depends on
neither machine nor process, so that a sketch can be asked years later.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import regex

from larvatus.core.arrays import Bits, Bits32, Bools, Bytes, Ints

_BASE = 0x9E3779B97F4A7C15
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
        """Characters that no text has: controls, private use, what stands for bytes that could not be read."""
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
    hashes = mix_bits((sums[last] - sums[first]) * _powers(len(codes), inverse)[first])
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


def mix_bits(numbers: Bits) -> Bits:
    """MurmurHash3's finaliser: a bijection after which all bits depend on all."""
    out = numbers ^ (numbers >> np.uint64(33))
    out *= np.uint64(0xFF51AFD7ED558CCD)
    out ^= out >> np.uint64(33)
    out *= np.uint64(0xC4CEB9FE1A85EC53)
    out ^= out >> np.uint64(33)
    return out


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
