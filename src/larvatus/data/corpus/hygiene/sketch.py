"""A sketch of a corpus: which runs of eight words it holds, so that contamination can be asked later without the text.

    sketch = Sketch.begin(corpus / SKETCH, capacity); sketch.add(texts); sketch.finish()
    sketch = Sketch.open(corpus / SKETCH)
    sketch.holds(grams)                       # whether each 8-gram is there

A Bloom filter (Bloom 1970): a byte for each run, in which six bits are set. It forgets nothing that it was given,
and takes 2% of what it was not given for known. A run of thirteen words is six runs of eight, all of them known, so
that chance plays no part any more. The file is mapped into memory, never read whole.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from larvatus.core import files
from larvatus.core.arrays import Bits, Bools, Bytes, Ints
from larvatus.core.batch import ranges
from larvatus.core.errors import DataError
from larvatus.core.regular_files import is_there, size_of
from larvatus.data.corpus.hygiene.shingles import ShingleCharacters, hashed_words, mix_bits, n_grams

SKETCH = "sketch.bloom"
WORDS = 8
"""Words of the stored runs; longer runs can be queried."""
HASHES = 6
CHANCE = 0.0216
"""False-positive rate: probability that a run absent from the corpus is reported as known, (1 − e^(−6/8))^6."""
_MAGIC = b"larvatus sketch of runs of 8 words, 6 hashes, 1\n"


@dataclass(frozen=True)
class Sketch:
    path: Path
    bytes_: Bytes
    """The bits, eight in each; those of a file that grows are written through."""

    @classmethod
    def begin(cls, path: Path, capacity: int) -> Sketch:
        """A new one, in a file aside, for so many runs of words."""
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
