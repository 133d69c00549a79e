"""Who does what when: a bounded queue of requests, threads that work on it, and errors that stay with their item.

    work = Work(threads=16, queue=256)
    ticket = work.submit(Call(OPERATIONS["embed"], served, options, items))
    results = ticket.result()                 # a dict or an exception for each item
    ticket.cancel()                           # nobody waits any more: what is not computed yet never will be

Requests for the same operation of the same model with the same options that wait at the same time are put together: one
call of the library answers them all. Two such calls are under way at once, one in the encoder, one being prepared; what
arrives meanwhile gathers for the next. Where a call fails, its items are run by halves, so that a bad one fails alone.

Requests take turns: what a request of many items has had counts against its next one, and no request holds more than
half of the threads. Large ones are never put together with others, and together hold at most half of the threads.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from larvatus.core.threads import reset_after_fork
from larvatus.interfaces.serve.operations.operation import Item, Operation, Subject, is_empty
from larvatus.interfaces.serve.pace import Pace
from larvatus.interfaces.serve.passes import asking
from larvatus.interfaces.serve.refusals import BadRequest, Cancelled, Closing, QueueFull

SMALL = 8_192
"""Characters: what is put together in one call, and what a large request has more of."""
TURN = 8_192
"""Characters that each unit which a request has had counts against its next."""
AGEING = 50_000
"""Characters that a second of waiting is worth, where the small come first."""
UNDER_WAY = 2
"""Calls with equal options at once."""

Result = dict[str, Any] | BaseException


@dataclass(frozen=True, eq=False)
class Call:
    """What a request asks for."""

    operation: Operation[Any]
    subject: Subject
    options: Any
    items: Sequence[Item]


class Ticket(Future[list[Result]]):
    """The answer to come. `cancel` also reaches what is under way: it ends when it next waits for the encoder."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.gone = False
        """Whether nobody waits any more."""
        self.under_way = 0
        """Units that a thread works on; of `Work`, which counts them under its lock."""
        self.taken = 0
        """Units that a thread has taken so far."""
        self._results: list[Result | None] = [None] * count
        self._left = count
        self._giving = threading.Lock()

    def cancel(self) -> bool:
        self.gone = True
        return super().cancel()

    def give(self, places: Sequence[int], results: Sequence[Result]) -> None:
        """Results of some items; with the last of them it is answered."""
        with self._giving:
            for place, result in zip(places, results, strict=True):
                self._results[place] = result
            self._left -= len(results)
            last = self._left == 0
        if last and self.set_running_or_notify_cancel():
            complete: Any = self._results
            self.set_result(complete)

    def fail(self, fault: BaseException) -> None:
        """Of a request that was not begun."""
        with self._giving:
            if self.done() or not self.set_running_or_notify_cancel():
                return
        self.set_exception(fault)


@dataclass(eq=False)
class _Unit:
    """What a thread takes: a request's items, or one of them."""

    call: Call
    items: Sequence[Item]
    places: Sequence[int]
    ticket: Ticket
    key: Hashable
    size: int
    arrived: float = field(default_factory=time.monotonic)


class Work:
    """The queue and its threads."""

    def __init__(self, *, threads: int, queue: int) -> None:
        self.threads, self.queue = threads, queue
        self.answered: Counter[str] = Counter()
        """Requests by operation."""
        self.grouped = 0
        """Calls that answered several requests at once."""
        self._closed = False
        self.reset_in_child()
        reset_after_fork(self)

    def reset_in_child(self) -> None:
        """An empty queue; the threads are started with its first request: a forked child has none of its parent's."""
        self.requests = 0
        """Under way or waiting."""
        self.pace = Pace()
        self._waiting: list[_Unit] = []
        self._active: Counter[Hashable] = Counter()
        self._large = 0
        self._changed = threading.Condition()
        self._pool: list[threading.Thread] = []

    def _start(self) -> None:
        if not self._pool:
            names = [f"larvatus request {number}" for number in range(self.threads)]
            self._pool = [threading.Thread(target=self._serve, name=name, daemon=True) for name in names]
            for thread in self._pool:
                thread.start()

    def submit(self, call: Call) -> Ticket:
        """Queue a request, or refuse it at once."""
        ticket = Ticket(len(call.items))
        key = (call.operation.name, call.subject.name, call.options)
        if call.operation.together:
            groups: list[Sequence[int]] = [range(len(call.items))]
        else:
            groups = [(number,) for number in range(len(call.items))]
        units = [_unit(call, places, ticket, key) for places in groups]
        with self._changed:
            if self._closed:
                raise Closing("the server is shutting down; ask again later")
            if self.requests >= self.queue:
                retry = self.pace.seconds_for(self.requests)
                raise QueueFull(f"{self.requests:,} requests wait already; ask again in {retry} s", retry_after=retry)
            self._start()
            self.requests += 1
            self._waiting += units
            self._changed.notify(len(units))
        ticket.add_done_callback(lambda _: self._ended(call))
        return ticket

    def _ended(self, call: Call) -> None:
        with self._changed:
            self.requests -= 1
            self.pace.left()
            self.answered[call.operation.name] += 1
            self._changed.notify_all()

    def drain(self, timeout: float | None = None) -> bool:
        """Take nothing more, and wait for what is under way; whether all of it ended in time."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self.requests == 0, timeout)

    def close(self) -> None:
        """As `drain`, without waiting: who waits is told so."""
        with self._changed:
            self._closed = True
            units, self._waiting = self._waiting, []
            self._changed.notify_all()
        for unit in units:
            unit.ticket.fail(Closing("the server is shutting down; ask again later"))

    # ---- the threads

    def _serve(self) -> None:
        while True:
            with self._changed:
                units = self._take()
                while not units:
                    if self._closed and not self._waiting:
                        return
                    self._changed.wait()
                    units = self._take()
            large = units[0].size > SMALL
            try:
                self._answer(units)
            except Exception as fault:  # no thread ends by it, nobody waits for ever
                for unit in units:
                    unit.ticket.fail(fault)
            finally:
                with self._changed:
                    self._active[units[0].key] -= 1
                    if not self._active[units[0].key]:
                        del self._active[units[0].key]
                    self._large -= large
                    for unit in units:
                        unit.ticket.under_way -= 1
                    if self._waiting:
                        self._changed.notify()

    def _take(self) -> list[_Unit]:
        """The unit that comes first, with others that can be answered by the same call."""
        self._waiting = [unit for unit in self._waiting if not unit.ticket.gone]
        if not self._waiting:
            return []
        now = time.monotonic()
        self._waiting.sort(key=lambda unit: unit.size + TURN * unit.ticket.taken - AGEING * (now - unit.arrived))
        first = next((unit for unit in self._waiting if self._may_start(unit)), None)
        if first is None:
            return []
        units, size = [first], first.size
        if first.call.operation.together and size <= SMALL:
            for unit in self._waiting:
                if unit is not first and unit.key == first.key and size + unit.size <= SMALL:
                    units.append(unit)
                    size += unit.size
        chosen = set(map(id, units))
        self._waiting = [unit for unit in self._waiting if id(unit) not in chosen]
        self._active[first.key] += 1
        self._large += first.size > SMALL
        for unit in units:
            unit.ticket.under_way += 1
            unit.ticket.taken += 1
        return units

    def _may_start(self, unit: _Unit) -> bool:
        half = max(1, self.threads // 2)
        if unit.ticket.under_way >= half:
            return False
        if unit.size > SMALL:
            return self._large < half
        return not unit.call.operation.together or self._active[unit.key] < UNDER_WAY

    def _answer(self, units: list[_Unit]) -> None:
        units = [unit for unit in units if not (unit.ticket.gone or unit.ticket.done())]
        if not units:
            return
        self.grouped += len(units) > 1
        call = units[0].call
        items = [item for unit in units for item in unit.items]
        with asking(lambda: all(unit.ticket.gone for unit in units)):
            results = _results(call, items)
        at = 0
        for unit in units:
            unit.ticket.give(unit.places, results[at : at + len(unit.items)])
            at += len(unit.items)


def _unit(call: Call, places: Sequence[int], ticket: Ticket, key: Hashable) -> _Unit:
    items = [call.items[place] for place in places]
    size = sum(call.operation.size(item) for item in items)
    return _Unit(call, items, places, ticket, key, size)


def _results(call: Call, items: Sequence[Item]) -> list[Result]:
    """Of all together, but for empty ones; where that fails, of each half, down to the items that fail alone."""
    empty = [is_empty(item) for item in items]
    if any(empty):
        rest = iter(_results(call, [item for item, nothing in zip(items, empty, strict=True) if not nothing]))
        return [BadRequest("the text is empty; leave it out") if nothing else next(rest) for nothing in empty]
    try:
        return list(call.operation.run(call.subject, items, call.options)) if items else []
    except Cancelled as fault:
        return [fault] * len(items)
    except Exception as fault:
        if len(items) == 1:
            return [fault]
    middle = len(items) // 2
    return _results(call, items[:middle]) + _results(call, items[middle:])
