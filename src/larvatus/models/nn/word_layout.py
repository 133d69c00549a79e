"""Where words stand in a flat batch of characters: what an encoder of words needs to know, made on the host at once.

    layout = WordLayout.of(batch)
    layout.symbols          # the characters of every different word once, between a begin and an end: [S]
    layout.forward          # in which order an LSTM that reads to the right takes the words: [W]

Words are read off the token ids (`data/text/vocabularies/characters.py`). Nothing is padded: the words of all
sequences are sorted by their place in the sentence, first words of all sentences, then second words, …, longest
sentence first, as a packed sequence wants them; the same from the end for the LSTM that reads to the left.
N tokens, W words, U different words, S symbols of these, B sequences, T words of the longest sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, edges, ranges
from larvatus.data.text.vocabularies.characters import INSIDE, word_starts
from larvatus.models.nn.uncompiled import uncompiled

BEGIN_WORD, END_WORD = INSIDE, INSIDE + 1
SYMBOLS = INSIDE + 2
"""Special tokens, bytes, begin and end of a word: 262, as published."""


@dataclass(frozen=True, eq=False)
class Direction:
    """The order in which an LSTM takes the words of a batch."""

    rows: Tensor  # [W] which of the different words comes at each place
    tokens: Tensor  # [N] at which place the word of each token comes
    words: Tensor  # [W] at which place each word comes


@dataclass(frozen=True, eq=False)
class WordLayout:
    symbols: Tensor  # [S] rows of a table of symbols
    left: Tensor  # [S] how many symbols its word has from this one on
    letters: Tensor  # [U] how many symbols each word has
    sizes: Tensor  # [T] on the CPU: how many sentences have an i-th word
    forward: Direction
    backward: Direction

    @classmethod
    @uncompiled
    def of(cls, batch: TokenBatch[Tensor]) -> WordLayout:
        """Of a batch of characters. On a GPU this waits for the batch: an LSTM wants its steps counted on the host."""
        ids, lengths = batch.ids.cpu().numpy(), batch.lengths.cpu().numpy()
        starts = word_starts(ids, lengths)
        owners_N = np.cumsum(starts) - 1
        first = np.flatnonzero(starts)
        letters = np.diff(np.append(first, len(ids)))  # [W]
        sentences = np.repeat(np.arange(len(lengths)), lengths)[first]
        counts = np.bincount(sentences, minlength=len(lengths))  # [B] words
        sizes, forward, backward = _orders(counts)
        plain_N = np.where(ids < INSIDE, ids, ids - 256)
        kinds, chosen = _different(plain_N.astype(np.uint16), first, letters)
        letters_U = letters[chosen]
        sizes_U, within = letters_U + 2, ranges(letters_U)
        symbols = np.full(int(sizes_U.sum()), BEGIN_WORD)
        symbols[within + np.repeat(edges(sizes_U)[:-1] + 1, letters_U)] = plain_N[
            within + np.repeat(first[chosen], letters_U)
        ]
        symbols[np.cumsum(sizes_U) - 1] = END_WORD
        left = np.repeat(sizes_U, sizes_U) - ranges(sizes_U)

        def moved(array: Ints) -> Tensor:
            tensor = torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64))
            target = batch.ids.device
            return tensor.pin_memory().to(target, non_blocking=True) if target.type == "cuda" else tensor.to(target)

        def direction(rows: Ints) -> Direction:
            places = np.empty_like(rows)
            places[rows] = np.arange(len(rows))
            return Direction(moved(kinds[rows]), moved(places[owners_N]), moved(places))

        return cls(
            symbols=moved(symbols),
            left=moved(left),
            letters=moved(sizes_U),
            sizes=torch.from_numpy(sizes),
            forward=direction(forward),
            backward=direction(backward),
        )


def _different(symbols: npt.NDArray[np.uint16], first: Ints, letters: Ints) -> tuple[Ints, Ints]:
    """Which of the different words each is [W], and one word of each kind [U]: equal words have equal vectors.

    >>> symbols = np.array([7, 8, 9, 7, 8], np.uint16)  # three words, the first and the last alike
    >>> [each.tolist() for each in _different(symbols, np.array([0, 2, 3]), np.array([2, 1, 2]))]
    [[0, 1, 0], [0, 1]]
    """
    spelt, size = symbols.tobytes(), symbols.itemsize
    known: dict[bytes, int] = {}
    bounds = zip((first * size).tolist(), ((first + letters) * size).tolist(), strict=True)
    kinds = np.fromiter((known.setdefault(spelt[a:b], len(known)) for a, b in bounds), np.int64, len(first))
    return kinds, np.unique(kinds, return_index=True)[1]


def _orders(counts: Ints) -> tuple[Ints, Ints, Ints]:
    """How many sentences have an i-th word [T], and the words in that order, from the start and from the end: [W].

    >>> [order.tolist() for order in _orders(np.array([1, 3, 2]))]
    [[3, 2, 1], [1, 4, 0, 2, 5, 3], [3, 5, 0, 2, 4, 1]]
    """
    order = np.argsort(-counts, kind="stable")
    begins = edges(counts)[:-1][order]
    steps = np.arange(counts.max(initial=0))[:, None]
    there = counts[order][None, :] > steps
    forward = (begins[None, :] + steps)[there]
    backward = (begins[None, :] + counts[order][None, :] - 1 - steps)[there]
    return there.sum(1), forward, backward
