"""One pass for all: flat batches of whoever waits are laid end to end, and the encoder runs once for them.

    passes = Passes(budget=4_096)
    states = passes.states(encoder, batch, layers=[2, 6])      # waits; gives what encoder(batch, layers=[2, 6]) gives
    passes.close()

A request that needs the encoder hands in its batch and waits. A single thread takes sequences of those who wait, up
to a budget of tokens, and runs the encoder that they share. Nothing is padded, and sequences do not see each other: a
text gets the same numbers whatever it is read with (to the rounding of matrix products of another size).

Who comes first: who has the fewest tokens left to read, less `AGEING` tokens for every second of waiting. So a short
text waits for the pass that runs, never for all of a long one, and a long one is not put off for ever. Batches of more
than a quarter of the budget are long: all of them together get a quarter of it in each pass, whole sequences of them,
so that the pass which a short text waits for, and the one that it is read in, are short, too.

Where a pass of several fails, the part of each is run again alone: the error goes to whom it belongs. Who is cancelled
while waiting is never read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from larvatus.core.batch import TokenBatch
from larvatus.core.threads import reset_after_fork
from larvatus.interfaces.serve.refusals import Cancelled, Closing
from larvatus.models.nn.encoder import Encoder

LONG = 4
"""A batch is long that has more than this part of the budget, and long ones get this part of a pass."""
AGEING = 20_000
"""Tokens that a second of waiting is worth."""

KEPT = 0.9
"""How much of the pace so far stays with each pass: about the last ten count."""
CLOSE_S = 3.0
"""For the pass that runs to end, when the server does."""

_asking = threading.local()


@contextmanager
def asking(cancelled: Callable[[], bool]) -> Iterator[None]:
    """Within it, what this thread hands in is dropped as soon as `cancelled()` is true."""
    before, _asking.cancelled = getattr(_asking, "cancelled", None), cancelled
    try:
        yield
    finally:
        _asking.cancelled = before


@dataclass
class Counts:
    """What was done; it grows. Read by metrics and tests."""

    passes: int = 0
    parts: int = 0
    """Batches, or parts of them, that passes were made of."""
    tokens: int = 0
    seconds: float = 0.0
    faults: int = 0
    """Passes that failed."""
    cancelled: int = 0


@dataclass(frozen=True)
class ReadingPace:
    """Tokens and seconds of passes, the last ones counting most."""

    tokens: float = 0.0
    seconds: float = 0.0


@dataclass(eq=False)
class _Job:
    """A batch that waits, or something to be called alone."""

    encoder: Encoder
    batch: TokenBatch[Tensor] | None
    layers: tuple[int, ...] = ()
    places: Tensor | None = None
    """Of the tokens that are wanted, one of each sequence; None: all tokens."""
    call: Callable[[], Any] | None = None
    lengths: list[int] = field(default_factory=list)
    size: int = 0
    """Tokens of the batch."""
    left: int = 0
    """Tokens not read yet."""
    next: int = 0
    """The first sequence not read yet, …"""
    row: int = 0
    """… and its first token."""
    arrived: float = field(default_factory=time.monotonic)
    cancelled: Callable[[], bool] = lambda: False
    done: threading.Event = field(default_factory=threading.Event)
    states: list[list[Tensor]] = field(default_factory=list)
    """For each part that was read, those of each layer asked for."""
    value: Any = None
    fault: BaseException | None = None


@dataclass(frozen=True, eq=False)
class _Part:
    """Whole sequences of a job: those of a pass."""

    job: _Job
    sequences: tuple[int, int]
    rows: tuple[int, int]

    @property
    def size(self) -> int:
        return self.rows[1] - self.rows[0]

    @property
    def places(self) -> Tensor | None:
        """Within the part."""
        wanted = self.job.places
        return None if wanted is None else wanted[slice(*self.sequences)] - self.rows[0]

    def array(self, name: str) -> Tensor:
        whole: Tensor = getattr(self.job.batch, name)
        return whole[slice(*(self.sequences if name == "lengths" else self.rows))]


class Passes:
    """The thread that runs encoders, and those who wait for it."""

    def __init__(self, *, budget: int) -> None:
        """`budget` is how many tokens a pass may have; a longer sequence is read alone."""
        self.budget = budget
        self.slice = max(1, budget // LONG)
        self.counts = Counts()
        self.pace = ReadingPace()
        self.last_fault: BaseException | None = None
        """Of the last pass, where it failed: a server whose last pass failed is not well."""
        self.on_pass: Callable[..., None] = lambda **sizes: None
        """Told of each pass that succeeded: its tokens, sequences and seconds."""
        self.on_fault: Callable[[], None] = lambda: None
        """Told of each that failed."""
        self._closed = False
        self.reset_in_child()
        reset_after_fork(self)

    def reset_in_child(self) -> None:
        """Nobody waits, and the thread is started by the first who does: a forked child has none of its parent's."""
        self._waiting: list[_Job] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="larvatus passes", daemon=True)
            self._thread.start()

    # ---- those who wait

    def states(
        self, encoder: Encoder, batch: TokenBatch[Tensor], layers: Sequence[int] | None = None
    ) -> Tensor | list[Tensor]:
        """As `encoder(batch, layers=layers)`."""
        wanted = (encoder.depth,) if layers is None else tuple(layers)
        job = self._wait(_Job(encoder, batch, layers=wanted))
        states = [torch.cat(parts) if len(parts) > 1 else parts[0] for parts in zip(*job.states, strict=True)]
        return states[0] if layers is None else states

    def at(self, encoder: Encoder, batch: TokenBatch[Tensor], places_B: Tensor) -> Tensor:
        """As `encoder.at(batch, places_B)`, of one token of each sequence, in their order."""
        job = self._wait(_Job(encoder, batch, layers=(encoder.depth,), places=places_B))
        return torch.cat([part[0] for part in job.states])

    def alone(self, encoder: Encoder, call: Callable[[], Any]) -> Any:
        """Something that no batch is joined with, run by the thread that runs encoders."""
        return self._wait(_Job(encoder, None, call=call)).value

    def _wait(self, job: _Job) -> _Job:
        job.cancelled = getattr(_asking, "cancelled", None) or job.cancelled
        if job.batch is not None:
            if not job.batch.count:
                return _read_nothing(job)
            job.lengths = job.batch.lengths.tolist()
            job.size = job.left = job.batch.size
        with self._changed:
            if self._closed:
                raise Closing("the server is shutting down; ask again later")
            self._start()
            self._waiting.append(job)
            self._changed.notify()
        job.done.wait()
        if job.fault is not None:
            raise job.fault
        return job

    def seconds_for(self, tokens: int) -> float:
        """How long this many tokens will take at the pace of the last full passes; 0 where none has told it yet."""
        return tokens * self.pace.seconds / self.pace.tokens if self.pace.tokens else 0.0

    @property
    def waiting(self) -> int:
        """Batches that wait."""
        return len(self._waiting)

    def close(self) -> None:
        """End the thread after the pass that runs; who still waits is told so."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        for job in self._waiting:
            _end(job, Closing("the server is shutting down; ask again later"))
        self._waiting.clear()

    # ---- the thread

    def _run(self) -> None:
        with torch.inference_mode():
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting or self._closed)
                    if self._closed:
                        return
                    parts = self._take()
                if parts:
                    self._read(parts)

    def _take(self) -> list[_Part]:
        """Sequences of one encoder, of those who come first, as many as the budget holds."""
        for job in [job for job in self._waiting if job.cancelled()]:
            self._waiting.remove(job)
            self.counts.cancelled += 1
            _end(job, Cancelled("the client is gone"))
        if not self._waiting:
            return []
        now = time.monotonic()
        self._waiting.sort(key=lambda job: job.left - AGEING * (now - job.arrived))
        first = self._waiting[0]
        if first.call is not None:
            del self._waiting[0]
            return [_Part(first, (0, 0), (0, 0))]
        room, for_long, parts = self.budget, self.slice, list[_Part]()
        for job in self._waiting:
            if job.encoder is first.encoder and job.call is None and room > 0:
                is_long = job.size > self.slice
                part = _cut(job, min(room, for_long) if is_long else room, force=not parts)
                if part is not None:
                    parts.append(part)
                    room -= part.size
                    for_long -= part.size if is_long else 0
        self._waiting = [job for job in self._waiting if job.left or job.call is not None]
        return parts

    def _read(self, parts: Sequence[_Part]) -> None:
        try:
            self._pass(parts)
        except Exception as fault:
            self.counts.faults += 1
            self.last_fault = fault
            self.on_fault()
            if len(parts) == 1:
                self._fail(parts[0].job, fault)
                return
            for part in parts:  # the fault may be of one of them alone
                self._read([part])

    def _pass(self, parts: Sequence[_Part]) -> None:
        job = parts[0].job
        began = time.monotonic()
        if job.call is not None:
            job.value = job.call()
        else:
            for part, states in zip(parts, _states(job.encoder, parts), strict=True):
                part.job.states.append(states)
        self.last_fault = None
        self.counts.passes += 1
        self.counts.parts += len(parts)
        tokens, seconds = sum(part.size for part in parts), time.monotonic() - began
        self.counts.tokens += tokens
        self.counts.seconds += seconds
        if tokens >= self.slice:  # what a token takes in a smaller pass says little about long work
            self.pace = ReadingPace(KEPT * self.pace.tokens + tokens, KEPT * self.pace.seconds + seconds)
        sequences = sum(part.sequences[1] - part.sequences[0] for part in parts)
        self.on_pass(tokens=tokens, sequences=sequences, seconds=seconds)
        for part in parts:
            if not part.job.left:
                part.job.done.set()

    def _fail(self, job: _Job, fault: BaseException) -> None:
        with self._changed:
            if job in self._waiting:  # the rest of it need not be read
                self._waiting.remove(job)
        _end(job, fault)


def _end(job: _Job, fault: BaseException) -> None:
    job.fault = fault
    job.done.set()


def _read_nothing(job: _Job) -> _Job:
    """What an encoder gives for no sequence."""
    nothing = job.encoder.word_vectors.new_zeros(0, job.encoder.width)
    job.states = [[nothing] * len(job.layers)]
    return job


def _cut(job: _Job, room: int, *, force: bool) -> _Part | None:
    """The next sequences of a job that fit, or the next one alone where it must go; None where none fits."""
    last, tokens = job.next, 0
    while last < len(job.lengths) and tokens + job.lengths[last] <= room:
        tokens += job.lengths[last]
        last += 1
    if last == job.next:
        if not force:
            return None
        tokens, last = job.lengths[last], last + 1
    part = _Part(job, (job.next, last), (job.row, job.row + tokens))
    job.next, job.row, job.left = last, job.row + tokens, job.left - tokens
    return part


def _states(encoder: Encoder, parts: Sequence[_Part]) -> list[list[Tensor]]:
    """What one pass gives each part: the states of its layers, or of its places in the last."""

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
    if all(part.job.places is not None for part in parts):  # the last layer is computed for these alone
        starts, places = 0, list[Tensor]()
        for part in parts:
            wanted = part.places
            assert wanted is not None
            places.append(wanted + starts)
            starts += part.rows[1] - part.rows[0]
        rows = encoder.at(batch, torch.cat(places), limit=limit)
        return [[states] for states in rows.split([len(each) for each in places])]
    layers = sorted({layer for part in parts for layer in part.job.layers})
    sizes = [part.rows[1] - part.rows[0] for part in parts]
    by_layer = dict(
        zip(layers, (states.split(sizes) for states in encoder(batch, layers=layers, limit=limit)), strict=True)
    )
    given = []
    for number, part in enumerate(parts):
        states = [by_layer[layer][number] for layer in part.job.layers]
        given.append(states if part.places is None else [states[0].index_select(0, part.places)])
    return given
