"""What packings of two segments share: whole sentences are gathered up to a limit, and a random border parts them.

    [CLS] A [SEP] B [SEP]

Neither the punctuation and the capitals at the ends of A and B nor their lengths may tell the label, or the model
learns those instead of the text. `exchange.py` sees to that for next-sentence pairs, `sentence_order.py` for the order.
Places are tokens of the block; sentence i (or piece i of long ones) starts at `edge[i]`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.errors import DataError
from larvatus.core.pretraining_targets import SequenceLabels
from larvatus.data.corpus.format import CorpusCounts
from larvatus.data.corpus.packing.pieces import Pieces

_DRAWS = 4096


def gather(edge: Sequence[int], unit: int, at: int, last: int, *, target: int, room: int) -> int:
    """The end of the units from `at` that reach `target` tokens and fit into `room`: two or more units if two fit."""
    reach = bisect_left(edge, at + target, unit + 1, last)
    fits = bisect_right(edge, at + room, unit + 1, last + 1) - 1
    return max(min(max(reach, unit + 2), fits), unit + 1)


def aim(room: int, short: float, draws: tuple[float, float]) -> int:
    """How long a pair is to be: the limit, or in a share `short` of the cases a random length below it."""
    return room if draws[0] >= short else 2 + int(draws[1] * (room - 1))


def draws(random: np.random.Generator, count: int) -> Iterator[list[float]]:
    """So many uniform numbers for each pair, drawn many at a time."""
    while True:
        yield from random.random((_DRAWS, count)).tolist()


def pair_pieces(a: Ints, b: Ints, labels: Ints, kind: type[SequenceLabels[Any]]) -> Pieces:
    """The plan of pairs [B, 2] and [B, 2] (where A and B start and end), with their labels [B]."""
    flat = np.stack([a, b], axis=1).reshape(-1, 2)  # [2B, 2]: A, B, A, B …
    piece = np.arange(len(flat), dtype=np.int64)
    return Pieces(flat[:, 0], flat[:, 1], piece // 2, piece % 2, {kind: kind(labels=labels)})


def check_sentences(counts: CorpusCounts) -> None:
    """Refuse a corpus whose documents were not split into sentences."""
    if counts.sentences <= counts.documents:
        raise DataError(
            "a sentence pair task without sentences: every document of the corpus is one sentence; rebuild it with "
            '--sentences library (or newline), or set packing.type = "single-segment"'
        )
