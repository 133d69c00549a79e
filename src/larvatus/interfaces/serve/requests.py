"""Requests on their way through the server, and the forward pass that several of them share.

    request = OperationRequest(OPERATIONS["embed"], served_model, options, items)
    future = batcher.submit(request)
    future.result()                           # a dict or an exception for each item
    future.cancel()                           # nothing that is not computed yet will be

A request is cut into work units that threads take. When an operation fails on several items, `run_items` splits them in
half until only the bad items fail.

The batches of several requests, laid end to end, go through the encoder in one pass (`joined_states`). Nothing is
padded, and sequences do not attend to each other: a text gets the same numbers whatever else is in the pass, up to the
rounding of matrix products of another size.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from larvatus.core.batch import TokenBatch
from larvatus.interfaces.serve.operations.operation import Item, Operation, ServedModel, is_empty
from larvatus.interfaces.serve.responses import BadRequest, Cancelled
from larvatus.models.nn.encoder import Encoder

ItemResult = dict[str, Any] | BaseException
LONGEST_RETRY_S = 120
RATE_DECAY = 0.9
"""Weight of the previous average when a response leaves: about the last ten responses count."""
IDLE_S = 5.0
"""A longer gap between two responses means that no requests arrived, not that responses are slow."""


@dataclass(frozen=True, eq=False)
class OperationRequest:
    """An operation of a served model, with its options and items."""

    operation: Operation[Any]
    subject: ServedModel
    options: Any
    items: Sequence[Item]

    @property
    def key(self) -> Hashable:
        """Equal for requests that one call of the operation can answer."""
        return (self.operation.name, self.subject.name, self.options)

    def units(self, future: RequestFuture) -> list[WorkUnit]:
        """The work of the request: one unit for all items, or one for each where the operation runs them singly."""
        count = len(self.items)
        groups: list[Sequence[int]] = [range(count)] if self.operation.together else [(n,) for n in range(count)]
        return [self._unit(places, future) for places in groups]

    def _unit(self, places: Sequence[int], future: RequestFuture) -> WorkUnit:
        items = [self.items[place] for place in places]
        size = sum(self.operation.size(item) for item in items)
        return WorkUnit(self, items, places, future, self.key, size)


class RequestFuture(Future[list[ItemResult]]):
    """The results of a request. `cancel` also stops running work: it ends when it next waits for the encoder."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.abandoned = False
        """Whether the client no longer waits."""
        self.running_units = 0
        """Units that threads work on now; the batcher counts them under its lock."""
        self.started_units = 0
        """Units that threads have started so far."""
        self._results: list[ItemResult | None] = [None] * count
        self._left = count
        self._lock = threading.Lock()

    def cancel(self) -> bool:
        self.abandoned = True
        return super().cancel()

    def add_results(self, places: Sequence[int], results: Sequence[ItemResult]) -> None:
        """Store the results of some items; the last ones complete the future."""
        with self._lock:
            for place, result in zip(places, results, strict=True):
                self._results[place] = result
            self._left -= len(results)
            last = self._left == 0
        if last and self.set_running_or_notify_cancel():
            complete: Any = self._results
            self.set_result(complete)

    def fail(self, fault: BaseException) -> None:
        """Fail a request that has no results yet."""
        with self._lock:
            if self.done() or not self.set_running_or_notify_cancel():
                return
        self.set_exception(fault)


@dataclass(eq=False)
class WorkUnit:
    """What a thread takes: all items of a request, or one of them."""

    request: OperationRequest
    items: Sequence[Item]
    places: Sequence[int]
    future: RequestFuture
    key: Hashable
    size: int
    """Characters."""
    arrived: float = field(default_factory=time.monotonic)


class ResponseRate:
    """Mean gap between responses, the latest weighted most. It sets `Retry-After` when the queue is full.

    >>> rate = ResponseRate(clock=iter([0.0, 0.5, 1.0]).__next__)
    >>> rate.response_sent(); rate.response_sent(); rate.response_sent()
    >>> rate.seconds_for(9)
    5
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._gap: float | None = None
        self._last: float | None = None
        self._lock = threading.Lock()

    def response_sent(self) -> None:
        with self._lock:
            now = self._clock()
            if self._last is not None and now - self._last <= IDLE_S:
                gap = now - self._last
                self._gap = gap if self._gap is None else RATE_DECAY * self._gap + (1 - RATE_DECAY) * gap
            self._last = now

    def seconds_for(self, waiting: int) -> int:
        """Whole seconds, at least one, until `waiting` requests have their response."""
        return min(LONGEST_RETRY_S, max(1, math.ceil(waiting * (self._gap or 0.0))))


def run_items(request: OperationRequest, items: Sequence[Item]) -> list[ItemResult]:
    """Results of all items in one call, without empty items. When the call fails, each half is run by itself."""
    empty = [is_empty(item) for item in items]
    if any(empty):
        rest = iter(run_items(request, [item for item, nothing in zip(items, empty, strict=True) if not nothing]))
        return [BadRequest("the text is empty; leave it out") if nothing else next(rest) for nothing in empty]
    try:
        return list(request.operation.run(request.subject, items, request.options)) if items else []
    except Cancelled as fault:
        return [fault] * len(items)
    except Exception as fault:
        if len(items) == 1:
            return [fault]
    middle = len(items) // 2
    return run_items(request, items[:middle]) + run_items(request, items[middle:])


# Shared forward passes.


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
