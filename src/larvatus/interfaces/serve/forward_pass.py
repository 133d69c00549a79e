"""One forward pass over the batches of several requests, laid end to end.

    jobs = [EncoderJob.of(encoder, batch, layers=(12,)), …]
    parts = [part for job in jobs if (part := job.cut(2_048))]
    states = joined_states(encoder, parts)              # for each part, the states of its layers

Nothing is padded, and sequences do not attend to each other: a text gets the same numbers whatever else is in the pass,
up to the rounding of matrix products of another size.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from larvatus.core.batch import TokenBatch
from larvatus.models.nn.encoder import Encoder


@dataclass(eq=False)
class EncoderJob:
    """A batch that waits for the encoder, or a call that the encoder thread runs by itself."""

    encoder: Encoder
    batch: TokenBatch[Tensor] | None
    layers: tuple[int, ...] = ()
    places: Tensor | None = None
    """Rows of the requested tokens, one in each sequence; None for all tokens."""
    call: Callable[[], Any] | None = None
    cancelled: Callable[[], bool] = lambda: False
    lengths: list[int] = field(default_factory=list)
    size: int = 0
    """Tokens of the batch."""
    left: int = 0
    """Tokens that no pass has read yet."""
    next: int = 0
    """First sequence that no pass has read yet, …"""
    row: int = 0
    """… and its first token."""
    arrived: float = field(default_factory=time.monotonic)
    done: threading.Event = field(default_factory=threading.Event)
    states: list[list[Tensor]] = field(default_factory=list)
    """For each part that was read, the states of each requested layer."""
    value: Any = None
    """What `call` returned."""
    error: BaseException | None = None

    def __post_init__(self) -> None:
        if self.batch is not None and self.batch.count:
            self.lengths = self.batch.lengths.tolist()
            self.size = self.left = self.batch.size

    def cut(self, limit: int, *, force: bool = False) -> BatchPart | None:
        """Take the next sequences with at most `limit` tokens; None if none fits.

        With `force`, one sequence is taken even if it is longer.
        """
        last, tokens = self.next, 0
        while last < len(self.lengths) and tokens + self.lengths[last] <= limit:
            tokens += self.lengths[last]
            last += 1
        if last == self.next:
            if not force:
                return None
            tokens, last = self.lengths[last], last + 1
        part = BatchPart(self, (self.next, last), (self.row, self.row + tokens))
        self.next, self.row, self.left = last, self.row + tokens, self.left - tokens
        return part

    def finish(self, error: BaseException | None = None) -> None:
        """Wake the thread that waits for the job."""
        self.error = error
        self.done.set()

    def empty_states(self) -> list[list[Tensor]]:
        """The states of a batch without sequences."""
        nothing = self.encoder.word_vectors.new_zeros(0, self.encoder.width)
        return [[nothing] * len(self.layers)]


@dataclass(frozen=True, eq=False)
class BatchPart:
    """Whole sequences of a job that one pass reads."""

    job: EncoderJob
    sequences: tuple[int, int]
    rows: tuple[int, int]

    @property
    def size(self) -> int:
        return self.rows[1] - self.rows[0]

    @property
    def places(self) -> Tensor | None:
        """Requested rows, counted within the part."""
        wanted = self.job.places
        return None if wanted is None else wanted[slice(*self.sequences)] - self.rows[0]

    def array(self, name: str) -> Tensor:
        whole: Tensor = getattr(self.job.batch, name)
        return whole[slice(*(self.sequences if name == "lengths" else self.rows))]


def joined_states(encoder: Encoder, parts: Sequence[BatchPart]) -> list[list[Tensor]]:
    """Run the encoder once for all parts. Each gets the states of its layers, or of its places in the last layer."""

    def joined(name: str) -> Tensor:
        return torch.cat([part.array(name) for part in parts])

    batch = TokenBatch(
        ids=joined("ids"),
        lengths=joined("lengths"),
        positions=joined("positions"),
        segments=joined("segments"),
        words=joined("words"),
    )
    limit = max(max(part.job.lengths[slice(*part.sequences)]) for part in parts)
    if all(part.job.places is not None for part in parts):  # the last layer is computed for these tokens only
        start, places = 0, list[Tensor]()
        for part in parts:
            wanted = part.places
            assert wanted is not None
            places.append(wanted + start)
            start += part.size
        rows = encoder.at(batch, torch.cat(places), limit=limit)
        return [[states] for states in rows.split([len(each) for each in places])]
    layers = sorted({layer for part in parts for layer in part.job.layers})
    sizes = [part.size for part in parts]
    by_layer = dict(
        zip(layers, (states.split(sizes) for states in encoder(batch, layers=layers, limit=limit)), strict=True)
    )
    results = []
    for number, part in enumerate(parts):
        states = [by_layer[layer][number] for layer in part.job.layers]
        results.append(states if part.places is None else [states[0].index_select(0, part.places)])
    return results
