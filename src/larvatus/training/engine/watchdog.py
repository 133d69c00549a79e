"""Ranks that monitor each other: if one dies, hangs or fails, the run ends on all within a stated time, naming it.

    watch = RankWatchdog(store, rank=rank, count=count, timeout_s=60.0)
    watch.start()
    with watching(watch): …            # `rank_activity.py` records what this rank does

Every second, each rank writes a heartbeat with its activity to the rendezvous store (`heartbeat.py`). Rank 0 reads the
heartbeats of all ranks, the others that of rank 0. A rank is lost when its process is gone (seen at once on the same
machine), when it was silent for `timeout_s` (stopped, disconnected, its machine down), or when no rank makes progress
in a step for ten times as long (a hung collective: ranks that do not wait for others are named). A rank that waits for
a lost one cannot be woken, so the watchdog ends its process, with exit code 75; a rank that can still raise raises
`RankLost`. A rank that fails by itself reports the reason before it ends. Rank 0 prints the reason, once; if rank 0 is
lost, rank 1 does, and one rank on each other machine.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from larvatus.core.errors import LarvatusError, RankLost, printable
from larvatus.training.engine.heartbeat import STEP, WAITING, Heartbeat, ProcessLocation, RankFault, blocking_ranks

BEAT_S = 1.0
GRACE_S = 3.0
"""For a rank to notice by itself, and leave in order, that another is lost."""
STUCK_FACTOR = 10
"""Times the limit of silence, after which a step in which no rank gets on is given up."""
FIRST = "the first step"
CRASH_EXIT_CODE = 70
"""Exit code of a bug (`interfaces/cli/crash_report.py`)."""
SMOOTHING = 0.9
"""Weight of the old value in the moving average of step seconds."""
RESUME_HINT = (
    "the same command with --resume continues from the last checkpoint (torchrun --max-restarts does so by itself)"
)
_BROKEN = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe", "socket")
"""Messages of torch when a collective failed because of another rank."""


class RankWatchdog:
    """The watch of one rank: a thread that talks to the store, and one that judges, should the store not answer."""

    def __init__(
        self,
        store: Store,
        *,
        rank: int,
        count: int,
        timeout_s: float,
        first_here: bool = False,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        """`store` is used only by this watchdog: another user that waits at it would hold it up.

        `first_here`: whether it is the first rank of its machine, and reports the loss of rank 0.
        """
        self.first_here = first_here
        self.rank, self.count, self.timeout_s, self._store, self._end = rank, count, timeout_s, store, end
        self.where = ProcessLocation.here()
        self.states: dict[int, Heartbeat] = {}
        """The other ranks: to rank 0 all, to the others rank 0."""
        self.verdict: RankFault | None = None
        self._mark = (-1, "starting", time.monotonic())
        self._steps_begun, self._waited, self._began, self._busy = 0, 0.0, 0.0, 0.0
        self._computed: Callable[[], float | None] | None = None
        self._fault: RankFault | None = None
        self._left = self._told = self._over = False
        self._beats = 0
        self._heard: dict[int, float] = {}
        self._missing: dict[int, float] = {}
        self._answered = time.monotonic()
        self._store_fault = ""
        self._said_fault, self._said_left = False, False
        self._now, self._closed, self._posted = threading.Event(), threading.Event(), threading.Condition()
        self._threads: list[threading.Thread] = []
        self._word = threading.Lock()
        """The process that acquires it reports what happened; it is never released."""

    # — what this rank does: called by its main thread —

    def at_step(self, step: int) -> None:
        """A step begins. The first may take as long as it likes: it compiles."""
        now = time.monotonic()
        took = max(0.0, now - self._began - self._waited) if self._computed is None else self._computed()
        if self._steps_begun > 1 and took is not None:
            self._busy = SMOOTHING * self._busy + (1 - SMOOTHING) * took if self._busy else took
        self._steps_begun += 1
        self._began, self._waited = now, 0.0
        self._mark = (step, STEP if self._steps_begun > 1 else FIRST, now)

    def computed(self, seconds: Callable[[], float | None]) -> None:
        """At the next step: how long the device computed in this one; None if it still does."""
        self._computed = seconds

    def finished(self) -> None:
        self._mark = (self._mark[0], "ending", time.monotonic())

    @contextmanager
    def doing(self, words: str) -> Iterator[None]:
        """In here it does that; afterwards what it did before."""
        step, before, began = self._mark[0], self._mark[1], time.monotonic()
        if words == WAITING and before not in (STEP, WAITING):
            words = f"{before} (waiting)"  # while the others start or save, which may take long
        self._mark = (step, words, began)
        try:
            yield
        finally:
            now = time.monotonic()
            self._waited += now - began
            self._mark = (step, before, now)

    @property
    def waits(self) -> bool:
        return self._mark[1].endswith((WAITING, "(waiting)"))

    def seconds(self) -> dict[int, float]:
        """Mean compute seconds of each rank in a step, as far as reported; for rank 0."""
        told = {self.rank: self._busy, **{rank: state.busy for rank, state in self.states.items()}}
        return {rank: seconds for rank, seconds in sorted(told.items()) if seconds > 0}

    def host(self, rank: int) -> str:
        return self.where.host if rank == self.rank else self.states[rank].where.host

    # — the beat: the only one that talks to the store —

    @property
    def state(self) -> Heartbeat:
        step, doing, since = self._mark
        return Heartbeat(
            where=self.where,
            beat=self._beats,
            step=step,
            doing=doing,
            still=time.monotonic() - since,
            busy=self._busy,
            left=self._left,
            fault=self._fault,
        )

    def start(self) -> None:
        """Begin to watch; all ranks must be about to."""
        if self.rank == 0:
            self._store.set("verdict", "")
        for work in (self._beat, self._judge):
            thread = threading.Thread(target=work, name=f"rank watch {work.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _beat(self) -> None:
        while not self._over:
            last = self._left
            try:
                self._hear()
            except (RuntimeError, OSError) as fault:
                self._store_fault = (str(fault).strip().splitlines() or [type(fault).__name__])[0]
                return
            if last and self._all_left:
                return
            self._now.wait(BEAT_S)
            self._now.clear()

    def _hear(self) -> None:
        """Write the heartbeat of this rank, and read those of the others."""
        self._beats += 1
        state, verdict = self.state, self.verdict
        self._store.set(f"rank/{self.rank}", msgspec.json.encode(state).decode())
        if self.rank == 0:
            others = list(range(1, self.count))
            said = self._store.multi_get([f"rank/{other}" for other in others])
            if verdict is not None:
                self._store.set("verdict", msgspec.json.encode(verdict).decode())
        else:
            others = [0]
            *said, told = self._store.multi_get(["rank/0", "verdict"])
            if told and self.verdict is None:
                self.verdict = msgspec.json.decode(told, type=RankFault)
        now = time.monotonic()
        before, self.states = self.states, dict(zip(others, map(_decode, said), strict=True))
        for other, heard in self.states.items():
            if other not in before or heard.beat != before[other].beat:
                self._heard[other] = now
        with self._posted:
            self._answered = now
            self._told = verdict is not None or self.rank != 0
            self._said_fault, self._said_left = state.fault is not None, state.left
            self._posted.notify_all()

    @property
    def _all_left(self) -> bool:
        return all(state.left for state in self.states.values())

    def _post(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Wake the heartbeat to write what has changed, and wait until that is `done`."""
        deadline = time.monotonic() + limit_s
        with self._posted:
            while not done() and not self._store_fault and time.monotonic() < deadline:
                self._now.set()
                self._posted.wait(0.2)
            return done()

    # — the judge —

    def _judge(self) -> None:
        last = time.monotonic()
        decided = 0.0
        while not self._closed.wait(min(0.25, BEAT_S / 4)):
            now = time.monotonic()
            if now - last > 2.0:  # this process was suspended itself: heartbeats that it missed meanwhile mean nothing
                self._forgive(now - last)
            last = now
            if self.verdict is None and self._fault is None and not self._left:
                self.verdict = self._lost(now)
            if self.verdict is not None and not self._left:
                if not decided:
                    decided = now
                    self._now.set()
                    self._tell(self.verdict)
                if self._must_end(now, decided):
                    self._end(self.verdict.code)

    def _forgive(self, seconds: float) -> None:
        self._answered += seconds
        for times in (self._heard, self._missing):
            for other in list(times):
                times[other] += seconds

    def _must_end(self, now: float, decided: float) -> bool:
        """Whether the main thread will not come to itself: it waits for others, or has not got on in its step."""
        _, doing, since = self._mark
        still = now - max(since, decided)
        return still > GRACE_S if self.waits else doing in (STEP, FIRST) and still > self.timeout_s

    def _lost(self, now: float) -> RankFault | None:
        """The first rank that is lost or has failed, as this rank sees it."""
        for other, state in sorted(self.states.items()):
            if state.fault is not None and not state.fault.on_all_ranks:
                return state.fault
            if state.left or state.fault is not None:
                continue
            if (how := self._how_lost(other, state, now)) is not None:
                when = max(state, self.state, key=lambda known: known.step).when  # its last word may be a second old
                line = f"{state.name(other)} {how} {when}; the run ends for all ranks; {RESUME_HINT}"
                return RankFault(line=line, code=RankLost.exit_code, rank=other)
        broken = bool(self._store_fault) and now - self._answered > 3 * BEAT_S  # by then one that died has been missed
        if broken or now - self._answered > self.timeout_s + BEAT_S:
            return self._store_lost()
        held_up = blocking_ranks({**self.states, self.rank: self.state}, STUCK_FACTOR * self.timeout_s)
        if held_up and self.rank == 0:
            return self._stuck(held_up)
        return None

    def _how_lost(self, other: int, state: Heartbeat, now: float) -> str | None:
        seen = state.where.seen_from(self.where)
        if seen == "gone":  # unless it said good-bye, which the next beats would tell
            gone = self._missing.setdefault(other, now)
            if now > gone + BEAT_S and (self._store_fault or self._answered > gone + BEAT_S or now > gone + 3 * BEAT_S):
                return f"died (process {state.where.pid} is gone)"
            return None
        silent = now - self._heard.get(other, now)
        if silent > self.timeout_s:
            stopped = seen == "stopped"
            return f"was stopped by a signal {silent:.0f} s ago" if stopped else f"has been silent for {silent:.0f} s"
        return None

    def _store_lost(self) -> RankFault:
        why = self._store_fault or f"no answer for {self.timeout_s:g} s"
        host = f" on {self.host(0)}" if self.rank == 0 or self.states else ""
        gone = f"the store of rank 0{host}, or of its launcher, is gone {self.state.when} ({why})"
        line = f"{gone}; the run ends for all ranks; {RESUME_HINT}"
        return RankFault(line=line, code=RankLost.exit_code, rank=0 if self.rank else -1)

    def _stuck(self, held_up: dict[int, Heartbeat]) -> RankFault:
        names = ", ".join(state.name(rank) for rank, state in sorted(held_up.items())[:4])
        names += f" and {len(held_up) - 4} more" if len(held_up) > 4 else ""
        state = next(iter(held_up.values()))
        has = "has" if len(held_up) == 1 else "have"
        line = (
            f"{names} {has} not got on {state.when} for {state.still:.0f} s; the run ends for all ranks; {RESUME_HINT}"
        )
        return RankFault(line=line, code=RankLost.exit_code, rank=-1)

    # — the end —

    def _tell(self, verdict: RankFault) -> None:
        """One line from one rank: rank 0, or where that is lost rank 1 and, should it be lost too, one a machine."""
        instead = self.rank == 1 or self.first_here
        mine = self.rank == 0 or (instead and verdict.rank == 0 and not verdict.reported)
        if mine and self._word.acquire(blocking=False):
            sys.stderr.write(f"larvatus: {printable(verdict.line)}\n")
            sys.stderr.flush()

    def explained(self, fault: BaseException) -> BaseException:
        """What to raise instead: this rank's own error, which the others get, or the error of the rank to blame."""
        with self.doing("ending"):
            return self._blamed(fault) if self._is_anothers(fault) else self._confessed(fault)

    def _blamed(self, fault: BaseException) -> RankLost:
        """A collective failed: the error of the rank that caused it, as soon as that is known."""
        self._wait_for_verdict(self.timeout_s + 5 * BEAT_S)
        verdict = self.verdict
        if verdict is None:
            first = (str(fault).strip().splitlines() or [type(fault).__name__])[0]
            return RankLost(f"the ranks lost each other {self.state.when} ({first}); {RESUME_HINT}")
        lost = RankLost(verdict.line)
        lost.exit_code, lost.reported = verdict.code, True
        if self.rank == 0:
            self._tell(verdict)
            self._post(lambda: self._told, GRACE_S)
            time.sleep(2 * BEAT_S if self.count > 2 else 0)  # for the others to read it
        return lost

    def _confessed(self, fault: BaseException) -> BaseException:
        """This rank fails by itself: it informs the others before it ends."""
        ours = isinstance(fault, LarvatusError)
        line = str(fault) if ours else f"{type(fault).__name__}: {fault}".removesuffix(": ")
        on_all = ours and fault.on_all_ranks  # type: ignore[attr-defined]
        named = line if on_all else f"{self.state.name(self.rank)} {self.state.when}: {line}"
        code = fault.exit_code if isinstance(fault, LarvatusError) else CRASH_EXIT_CODE
        first = self.rank > 0 or self._word.acquire(blocking=False)
        self._fault = RankFault(line=named, code=code, on_all_ranks=on_all, rank=self.rank, reported=self.rank == 0)
        if self.rank == 0:
            self.verdict = self.verdict or self._fault
            self._post(lambda: self._told and self._said_fault, GRACE_S)
            if on_all:
                self._post(lambda: all(state.left or state.fault for state in self.states.values()), GRACE_S)
            else:
                time.sleep(2 * BEAT_S)  # for the others to read it, should the store go with this process
        else:
            self._post(lambda: self._said_fault, GRACE_S)
            if not on_all:
                self._wait_for_verdict(5 * BEAT_S)
        if isinstance(fault, LarvatusError):
            fault.args = (named,)
            fault.reported = not first or (self.rank > 0 and (on_all or self.verdict is not None))
        return fault

    def _is_anothers(self, fault: BaseException) -> bool:
        """Whether a collective failed, for which another rank is to blame."""
        if isinstance(fault, dist.DistError):
            return True
        words = str(fault).lower()
        return type(fault) is RuntimeError and any(name in words for name in _BROKEN)

    def _wait_for_verdict(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while self.verdict is None and time.monotonic() < deadline:
            time.sleep(0.05)

    def close(self, *, in_order: bool = True) -> None:
        """Leave; in order, rank 0 does so once the others have: they may still look at it."""
        self._left = True
        self._post(lambda: self._said_left, GRACE_S)
        if self.rank == 0 and in_order:
            self._post(lambda: self._all_left or self.verdict is not None, self.timeout_s)
        self._over = True
        self._now.set()
        self._closed.set()
        for thread in self._threads:  # one that still asks the store when Python ends would abort the process
            thread.join(GRACE_S)


_decode = msgspec.json.Decoder(Heartbeat).decode
