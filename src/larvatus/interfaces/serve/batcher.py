"""The server's scheduler: it collects requests, and the batches they compute, into as few forward passes as possible.

    batcher = Batcher(threads=16, queue=256, budget=2_048)
    encoder = batched_encoder(network.encoder, batcher)       # of `served_models.py`: its passes go through the batcher
    future = batcher.submit(request)                          # a dict or an exception for each item
    batcher.close()

A request takes two steps, both scheduled here under one lock:

1. A worker thread takes a unit of work and runs its operation. Waiting requests for the same operation and model with
   the same options share one call; two such calls run at once, one in the encoder and one being prepared.
2. When an operation calls the encoder, its batch waits. The encoder thread takes whole sequences of all waiting batches
   up to a budget of tokens, and runs the encoder once for them (`requests.py`).

Small work goes first, and waiting counts in favour of both: a short text waits for the pass that runs, never for all of
a long one, and long work is not postponed for ever. Units that a request has already had count against its next one,
and no request holds more than half of the threads. Large requests (over `SMALL` characters) run by themselves on at
most half of the threads. Batches of more than a quarter of the budget share a quarter of it in each pass.

Errors stay with their item: a failed call is repeated on halves of its items, a failed pass on each batch by itself.
The batches of a cancelled request are never read.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from larvatus.core.batch import TokenBatch
from larvatus.core.threads import reset_after_fork
from larvatus.interfaces.serve.requests import (
    BatchPart,
    EncoderJob,
    OperationRequest,
    RequestFuture,
    ResponseRate,
    WorkUnit,
    joined_states,
    run_items,
)
from larvatus.interfaces.serve.responses import Cancelled, Closing, QueueFull
from larvatus.models.nn.encoder import Encoder

SMALL = 8_192
"""Characters that requests which share a call have together at most; a request with more is large."""
TURN = 8_192
"""Characters that each unit a request has had counts against its next one."""
UNIT_AGEING = 50_000
"""Characters by which a second of waiting reduces the cost of a unit in the queue."""
SAME_CALLS = 2
"""Calls with the same options that run at once."""
LONG = 4
"""A batch is long if it has more than 1/LONG of the budget; all long batches together get 1/LONG of a pass."""
BATCH_AGEING = 20_000
"""Tokens by which a second of waiting reduces the cost of a batch in the queue."""
RATE_DECAY = 0.9
"""Weight of the previous rate after each pass: about the last ten passes count."""
CLOSE_S = 3.0
"""Seconds that the running pass has to end when the server closes."""
SHUTTING_DOWN = "the server is shutting down; try again later"

_thread = threading.local()


@contextmanager
def cancel_when(cancelled: Callable[[], bool]) -> Iterator[None]:
    """Within it, batches that this thread computes are dropped as soon as `cancelled()` is true."""
    before, _thread.cancelled = getattr(_thread, "cancelled", None), cancelled
    try:
        yield
    finally:
        _thread.cancelled = before


@dataclass
class PassCounts:
    """Counters of a batcher, for metrics and tests."""

    passes: int = 0
    parts: int = 0
    """Batches, or parts of them, that the passes consisted of."""
    tokens: int = 0
    faults: int = 0
    """Passes that failed."""
    cancelled: int = 0


@dataclass(frozen=True)
class TokenRate:
    """Tokens and seconds of passes, the latest weighted most."""

    tokens: float = 0.0
    seconds: float = 0.0


class Batcher:
    """A bounded queue of requests, the threads that run their operations, and the thread that runs the encoders."""

    def __init__(self, *, threads: int, queue: int, budget: int) -> None:
        """`budget` is the number of tokens of a pass; a longer sequence is read by itself."""
        self.threads, self.queue, self.budget = threads, queue, budget
        self.long_budget = max(1, budget // LONG)
        self.counts = PassCounts()
        self.token_rate = TokenRate()
        self.last_error: BaseException | None = None
        """Error of the last pass; None if it succeeded."""
        self.on_pass: Callable[..., None] = lambda **sizes: None
        """Called after each pass that succeeded, with its tokens, sequences and seconds."""
        self.on_error: Callable[[], None] = lambda: None
        """Called after each pass that failed."""
        self._closed = False
        self.reset_in_child()
        reset_after_fork(self)

    def reset_in_child(self) -> None:
        """Empty the queue. Threads start with the first request: a forked child has none of its parent's."""
        self.requests = 0
        """Requests that run or wait."""
        self.response_rate = ResponseRate()
        self._units: list[WorkUnit] = []
        self._running: Counter[Hashable] = Counter()
        self._running_large = 0
        self._batches: list[EncoderJob] = []
        lock = threading.Lock()
        self._unit_ready, self._batch_ready = threading.Condition(lock), threading.Condition(lock)
        self._workers: list[threading.Thread] = []
        self._encoder_thread: threading.Thread | None = None

    def close(self) -> None:
        """End all threads after the pass that runs. Requests that wait fail with `Closing`."""
        with self._unit_ready:
            self._closed = True
            units, self._units = self._units, []
            self._unit_ready.notify_all()
            self._batch_ready.notify_all()
        for unit in units:
            unit.future.fail(Closing(SHUTTING_DOWN))
        if self._encoder_thread is not None:
            self._encoder_thread.join(CLOSE_S)
        for job in self._batches:
            job.finish(Closing(SHUTTING_DOWN))
        self._batches.clear()

    # ---- requests: from the queue to the worker threads

    def submit(self, request: OperationRequest) -> RequestFuture:
        """Queue a request, or refuse it at once."""
        future = RequestFuture(len(request.items))
        units = request.units(future)
        with self._unit_ready:
            if self._closed:
                raise Closing(SHUTTING_DOWN)
            if self.requests >= self.queue:
                retry = self.response_rate.seconds_for(self.requests)
                raise QueueFull(f"{self.requests:,} requests wait already; try again in {retry} s", retry_after=retry)
            self._start_workers()
            self.requests += 1
            self._units += units
            self._unit_ready.notify(len(units))
        future.add_done_callback(lambda _: self._request_done())
        return future

    def _request_done(self) -> None:
        with self._unit_ready:
            self.requests -= 1
            self.response_rate.response_sent()
            self._unit_ready.notify_all()

    def _start_workers(self) -> None:
        if not self._workers:
            names = [f"larvatus request {number}" for number in range(self.threads)]
            self._workers = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
            for thread in self._workers:
                thread.start()

    def _work(self) -> None:
        """The loop of a worker thread."""
        while True:
            with self._unit_ready:
                units = self._take_units()
                while not units:
                    if self._closed and not self._units:
                        return
                    self._unit_ready.wait()
                    units = self._take_units()
            try:
                _answer(units)
            except Exception as fault:  # the thread survives, and no client waits for ever
                for unit in units:
                    unit.future.fail(fault)
            finally:
                self._release(units)

    def _take_units(self) -> list[WorkUnit]:
        """The unit with the highest priority, with others that the same call can answer."""
        self._units = [unit for unit in self._units if not unit.future.abandoned]
        if not self._units:
            return []
        now = time.monotonic()
        self._units.sort(
            key=lambda unit: unit.size + TURN * unit.future.started_units - UNIT_AGEING * (now - unit.arrived)
        )
        first = next((unit for unit in self._units if self._may_start(unit)), None)
        if first is None:
            return []
        units, size = [first], first.size
        if first.request.operation.together and size <= SMALL:
            for unit in self._units:
                if unit is not first and unit.key == first.key and size + unit.size <= SMALL:
                    units.append(unit)
                    size += unit.size
        chosen = set(map(id, units))
        self._units = [unit for unit in self._units if id(unit) not in chosen]
        self._running[first.key] += 1
        self._running_large += first.size > SMALL
        for unit in units:
            unit.future.running_units += 1
            unit.future.started_units += 1
        return units

    def _may_start(self, unit: WorkUnit) -> bool:
        half = max(1, self.threads // 2)
        if unit.future.running_units >= half:
            return False
        if unit.size > SMALL:
            return self._running_large < half
        return not unit.request.operation.together or self._running[unit.key] < SAME_CALLS

    def _release(self, units: Sequence[WorkUnit]) -> None:
        """Give back what `_take_units` took."""
        key = units[0].key
        with self._unit_ready:
            self._running[key] -= 1
            if not self._running[key]:
                del self._running[key]
            self._running_large -= units[0].size > SMALL
            for unit in units:
                unit.future.running_units -= 1
            if self._units:
                self._unit_ready.notify()

    # ---- batches: from the worker threads to the encoder thread

    @property
    def waiting_batches(self) -> int:
        return len(self._batches)

    def seconds_for(self, tokens: int) -> float:
        """Seconds for this many tokens at the rate of the last full passes; 0 before the first of them."""
        return tokens * self.token_rate.seconds / self.token_rate.tokens if self.token_rate.tokens else 0.0

    def forward(
        self, encoder: Encoder, batch: TokenBatch[Tensor], layers: Sequence[int] | None = None
    ) -> Tensor | list[Tensor]:
        """Like `encoder(batch, layers=layers)`, in a pass that other batches share."""
        wanted = (encoder.depth,) if layers is None else tuple(layers)
        job = self._run(EncoderJob(encoder, batch, layers=wanted))
        states = [torch.cat(parts) if len(parts) > 1 else parts[0] for parts in zip(*job.states, strict=True)]
        return states[0] if layers is None else states

    def at(self, encoder: Encoder, batch: TokenBatch[Tensor], places_B: Tensor) -> Tensor:
        """Like `encoder.at(batch, places_B)` for one token of each sequence, in the order of the sequences."""
        job = self._run(EncoderJob(encoder, batch, layers=(encoder.depth,), places=places_B))
        return torch.cat([part[0] for part in job.states])

    def run_alone(self, encoder: Encoder, call: Callable[[], Any]) -> Any:
        """Run a call on the encoder thread, without other batches."""
        return self._run(EncoderJob(encoder, None, call=call)).value

    def _run(self, job: EncoderJob) -> EncoderJob:
        """Queue a job, and wait until the encoder thread has done it."""
        job.cancelled = getattr(_thread, "cancelled", None) or job.cancelled
        if job.batch is not None and not job.batch.count:
            job.states = job.empty_states()
            return job
        with self._batch_ready:
            if self._closed:
                raise Closing(SHUTTING_DOWN)
            if self._encoder_thread is None:
                self._encoder_thread = threading.Thread(target=self._run_passes, name="larvatus encoder", daemon=True)
                self._encoder_thread.start()
            self._batches.append(job)
            self._batch_ready.notify()
        job.done.wait()
        if job.error is not None:
            raise job.error
        return job

    def _run_passes(self) -> None:
        """The loop of the encoder thread."""
        with torch.inference_mode():
            while True:
                with self._batch_ready:
                    self._batch_ready.wait_for(lambda: self._batches or self._closed)
                    if self._closed:
                        return
                    parts = self._take_batches()
                if parts:
                    self._pass_or_retry(parts)

    def _take_batches(self) -> list[BatchPart]:
        """Sequences of one encoder, by priority, up to the budget."""
        for job in [job for job in self._batches if job.cancelled()]:
            self._batches.remove(job)
            self.counts.cancelled += 1
            job.finish(Cancelled("the client is gone"))
        if not self._batches:
            return []
        now = time.monotonic()
        self._batches.sort(key=lambda job: job.left - BATCH_AGEING * (now - job.arrived))
        first = self._batches[0]
        if first.call is not None:
            del self._batches[0]
            return [BatchPart(first, (0, 0), (0, 0))]
        left, left_for_long, parts = self.budget, self.long_budget, list[BatchPart]()
        for job in self._batches:
            if job.encoder is first.encoder and job.call is None and left > 0:
                is_long = job.size > self.long_budget
                part = job.cut(min(left, left_for_long) if is_long else left, force=not parts)
                if part is not None:
                    parts.append(part)
                    left -= part.size
                    left_for_long -= part.size if is_long else 0
        self._batches = [job for job in self._batches if job.left or job.call is not None]
        return parts

    def _pass_or_retry(self, parts: Sequence[BatchPart]) -> None:
        """Run a pass. If it fails, run each part by itself, so that the error reaches only the job it belongs to."""
        try:
            self._pass(parts)
        except Exception as fault:
            self.counts.faults += 1
            self.last_error = fault
            self.on_error()
            if len(parts) > 1:
                for part in parts:
                    self._pass_or_retry([part])
                return
            job = parts[0].job
            with self._batch_ready:
                if job in self._batches:  # the rest of the job need not be read
                    self._batches.remove(job)
            job.finish(fault)

    def _pass(self, parts: Sequence[BatchPart]) -> None:
        job = parts[0].job
        began = time.monotonic()
        if job.call is not None:
            job.value = job.call()
        else:
            for part, states in zip(parts, joined_states(job.encoder, parts), strict=True):
                part.job.states.append(states)
        self.last_error = None
        self.counts.passes += 1
        self.counts.parts += len(parts)
        tokens, seconds = sum(part.size for part in parts), time.monotonic() - began
        self.counts.tokens += tokens
        if tokens >= self.long_budget:  # the time per token of a smaller pass says little about long work
            rate = self.token_rate
            self.token_rate = TokenRate(RATE_DECAY * rate.tokens + tokens, RATE_DECAY * rate.seconds + seconds)
        sequences = sum(part.sequences[1] - part.sequences[0] for part in parts)
        self.on_pass(tokens=tokens, sequences=sequences, seconds=seconds)
        for part in parts:
            if not part.job.left:
                part.job.done.set()


def _answer(units: Sequence[WorkUnit]) -> None:
    """Run the items of all units in one call, and give each request its results."""
    units = [unit for unit in units if not (unit.future.abandoned or unit.future.done())]
    if not units:
        return
    items = [item for unit in units for item in unit.items]
    with cancel_when(lambda: all(unit.future.abandoned for unit in units)):
        results = run_items(units[0].request, items)
    start = 0
    for unit in units:
        unit.future.add_results(unit.places, results[start : start + len(unit.items)])
        start += len(unit.items)
