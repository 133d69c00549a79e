"""Counter-based randomness: every random choice is f(seed, purpose, epoch, item), never hidden state.

Two views of the same idea (Salmon et al. 2011, *Parallel random numbers: as easy as 1, 2, 3*):

    stream(seed, "pairs", epoch, item)           a NumPy generator for one item, for choices made one after another
    random_bits(seed, "mask", epoch, items=…)    one 32-bit number per (item, draw), for a whole flat batch at once

So masks, pair choices and order do not depend on workers, ranks, batch grouping or where a run was resumed.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
from numpy.random.bit_generator import ISeedSequence

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_WORD = (1 << 64) - 1
_AT_ONCE = 1 << 14  # counters: with all that is computed of them they stay in the caches


class _PhiloxKey(ISeedSequence):
    """Both words of a key. A bit generator that gets its key as a number collects entropy from the system first."""

    __slots__ = ("words",)

    def __init__(self, words: npt.NDArray[np.uint64]) -> None:
        self.words = words

    def generate_state(self, n_words: int, dtype: object = np.uint64) -> npt.NDArray[np.uint64]:
        assert n_words == len(self.words)
        return self.words


def _digest(seed: int, purpose: str, epoch: int, size: int) -> bytes:
    return hashlib.blake2b(f"{seed}\x00{purpose}\x00{epoch}".encode(), digest_size=size).digest()


def _key(seed: int, purpose: str, epoch: int, size: int) -> int:
    return int.from_bytes(_digest(seed, purpose, epoch, size), "little")


def stream(seed: int, purpose: str, epoch: int = 0, item: int = 0) -> np.random.Generator:
    """The generator of one item: Philox keyed by seed, purpose and epoch, its counter set by the item.

    >>> int(stream(7, "pairs", 0, 3).integers(100)) == int(stream(7, "pairs", 0, 3).integers(100))
    True
    """
    key = _PhiloxKey(np.frombuffer(_digest(seed, purpose, epoch, 16), "<u8"))
    number = int(item)  # numpy's integers would overflow here
    # the low half counts draws, so items never overlap
    counter = np.array([0, 0, number & _WORD, number >> 64], np.uint64)
    philox = np.random.Philox(key, counter=counter)  # type: ignore[arg-type]  # numpy's stub lacks ISeedSequence
    return np.random.Generator(philox)


def derive(seed: int, purpose: str, epoch: int = 0, item: int = 0) -> int:
    """A 63-bit seed for something that keeps its own generator (torch's dropout), renewed at every item."""
    return _key(seed, f"{purpose}\x00{item}", epoch, 8) >> 1


def philox(counter: npt.NDArray[np.uint64], key: tuple[int, int]) -> npt.NDArray[np.uint64]:
    """Philox4x32-10 over many counters: [4, N] words in, [4, N] words out (each below 2^32)."""
    words = counter.copy()
    _in_parts(words, key)
    return words


def _in_parts(words: npt.NDArray[np.uint64], key: tuple[int, int]) -> None:
    """In place: [4, N]."""
    work = np.empty((2, min(_AT_ONCE, words.shape[1])), np.uint64)
    for first in range(0, words.shape[1], _AT_ONCE):
        part = words[:, first : first + _AT_ONCE]
        _ten_rounds(part, work[:, : part.shape[1]], key)


def _ten_rounds(words: npt.NDArray[np.uint64], work: npt.NDArray[np.uint64], key: tuple[int, int]) -> None:
    """In place, and nothing is allocated."""
    c0, c1, c2, c3 = words
    left, right = work
    k0, k1 = key
    for _ in range(10):
        np.multiply(c0, _MULTIPLIERS[0], out=left)  # 32 × 32 → 64 bits, so nothing wraps
        np.multiply(c2, _MULTIPLIERS[1], out=right)
        np.right_shift(right, _SHIFT, out=c0)
        np.bitwise_xor(c0, c1, out=c0)
        np.bitwise_xor(c0, np.uint64(k0), out=c0)
        np.bitwise_and(right, _LOW, out=c1)
        np.right_shift(left, _SHIFT, out=c2)
        np.bitwise_xor(c2, c3, out=c2)
        np.bitwise_xor(c2, np.uint64(k1), out=c2)
        np.bitwise_and(left, _LOW, out=c3)
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF


def random_bits(
    seed: int,
    purpose: str,
    epoch: int = 0,
    *,
    items: npt.NDArray[np.int64],
    draws: npt.NDArray[np.int64],
) -> npt.NDArray[np.uint64]:
    """One 32-bit random number for each (item, draw): [N] and [N] → [4, N], four independent numbers each.

    `items` names what the choice is about (a sequence), `draws` which choice it is (a token of it).
    """
    key = _key(seed, purpose, epoch, 8)
    counter = np.empty((4, len(items)), np.uint64)
    for names, (low, high) in ((items, counter[:2]), (draws, counter[2:])):
        low[:] = names
        np.right_shift(low, _SHIFT, out=high)
        np.bitwise_and(low, _LOW, out=low)
    _in_parts(counter, (key & 0xFFFFFFFF, key >> 32))
    return counter
