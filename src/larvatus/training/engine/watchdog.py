"""Ranks that watch each other: one that dies, hangs or fails ends the run on all, by name, within a stated time.

    watchdog = RankWatchdog(store, rank=rank, count=count, timeout_s=60.0)
    watchdog.start()
    with guarded_by(watchdog): …       # ranks report what they are doing through `ranks.py`

Each rank writes a `Heartbeat` to the rendezvous store every second. Rank 0 reads those of all ranks, the others that of
rank 0, which also holds its verdict. A rank is lost if its process is gone (seen at once on the same machine), if it
was silent for `timeout_s` (stopped, cut off, its machine down), or if no rank makes progress in a step for ten times as
long (a hung collective: the ranks that do not wait for others are named). A rank that waits for a lost rank cannot be
woken, so the watchdog ends its process with exit code 75; one that can still raise raises `RankLost`. A rank that fails
by itself first publishes why. Rank 0 prints one line; if rank 0 is lost, rank 1 and one rank on each other machine do.

Not left to torch (2.13, gloo): the timeout of a process group and the flight recorder name no rank, `monitored_barrier`
names none that died, nor rank 0; `abort` wakes no rank that waits. NCCL was not tried.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from larvatus.core.errors import LarvatusError, RankLost, first_line, printable

BEAT_S = 1.0
GRACE_S = 3.0
"""Seconds for a rank to notice by itself, and leave in order, that another is lost."""
STUCK_FACTOR = 10
"""A step in which no rank makes progress is given up after this many times `timeout_s`."""
STEP, FIRST = "step", "first step"
"""A step has a time limit; the first, which compiles, and everything else has none."""
CRASH_EXIT_CODE = 70
"""Exit code of errors that no user caused (`interfaces/cli/crash_report.py`)."""
SMOOTHING = 0.9
"""Weight of the old value in the moving average of step seconds."""
RESUME_HINT = (
    "the same command with --resume continues from the last checkpoint (torchrun --max-restarts does so by itself)"
)
_BROKEN = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe", "socket")
"""Words of torch's errors if a collective failed because of another rank."""


class ProcessLocation(msgspec.Struct, frozen=True, kw_only=True):
    """A process: its number, and the machine on which that number is valid."""

    host: str
    machine: str
    pid: int

    @classmethod
    def here(cls) -> ProcessLocation:
        names = []
        with suppress(OSError):
            names = [Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.readlink("/proc/self/ns/pid")]
        return cls(host=platform.node() or "this machine", machine=" ".join(names), pid=os.getpid())

    def seen_from(self, other: ProcessLocation) -> str:
        """`gone`, `stopped`, or nothing if it is alive or cannot be seen from the other's machine."""
        if not self.machine or self.machine != other.machine:
            return ""
        try:
            kind = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return "gone"
        return "gone" if kind in "ZX" else "stopped" if kind in "Tt" else ""


class RankFault(msgspec.Struct, frozen=True, kw_only=True):
    """Why a rank left, or has to."""

    line: str
    code: int
    on_all_ranks: bool = False
    """Whether all ranks have it by themselves, so that none needs to be informed."""
    rank: int
    """The rank that has it; -1 for none."""
    reported: bool = False
    """Whether that rank has printed it itself."""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank reports of itself."""

    where: ProcessLocation
    beat: int = 0
    step: int = -1
    """The step under way, from 0; before the first, -1."""
    doing: str = STEP
    waiting: bool = False
    """Whether it waits for other ranks."""
    still: float = 0.0
    """Seconds since any of these changed."""
    busy: float = 0.0
    """Mean seconds that it computes in a step, not counting those in which it waits."""
    left: bool = False
    """Whether it is done, and needs no watching."""
    fault: RankFault | None = None
    """Why it fails; of rank 0 the verdict for all ranks."""

    def name(self, rank: int) -> str:
        return f"rank {rank} on {self.where.host}"

    @property
    def when(self) -> str:
        return f"in step {self.step + 1:,}" if self.step >= 0 else "before the first step"


def blocking_ranks(states: Mapping[int, Heartbeat], limit_s: float) -> dict[int, Heartbeat]:
    """The ranks that the others wait for, if no rank has made progress in a step for `limit_s`; else none.

    >>> here = ProcessLocation(host="a", machine="", pid=1)
    >>> waits = Heartbeat(where=here, step=3, waiting=True, still=9.0)
    >>> hangs = Heartbeat(where=here, step=3, still=9.0)
    >>> sorted(blocking_ranks({0: waits, 1: hangs}, 5.0)), sorted(blocking_ranks({0: waits, 1: hangs}, 10.0))
    ([1], [])
    """
    there = {rank: state for rank, state in states.items() if not state.left}
    if len(there) < 2 or any(state.doing != STEP or state.still < limit_s for state in there.values()):
        return {}
    behind = min(state.step for state in there.values())
    last = {rank: state for rank, state in there.items() if state.step == behind}
    return {rank: state for rank, state in last.items() if not state.waiting} or last


class _Activity(NamedTuple):
    """What the main thread is doing; replaced as a whole, since other threads read it."""

    step: int
    doing: str
    waiting: bool
    since: float


class RankWatchdog:
    """The watchdog of one rank: a thread that talks to the store, and one that judges, should the store not answer."""

    def __init__(self, store: Store, *, rank: int, count: int, timeout_s: float, first_here: bool = False) -> None:
        """Nothing else may wait at `store`. `first_here`: whether it is the first rank of its machine."""
        self.rank, self.count, self.timeout_s, self.first_here, self._store = rank, count, timeout_s, first_here, store
        self.where = ProcessLocation.here()
        self.states: dict[int, Heartbeat] = {}
        """The other ranks: on rank 0 all, on the others rank 0."""
        self.verdict: RankFault | None = None
        self._fault: RankFault | None = None
        self._left = False
        self._asleep = 0.0
        """Seconds in which this process stood still itself (SIGSTOP): what it did not hear then means nothing."""
        self._activity = _Activity(-1, "starting", False, self._clock())
        self._steps_begun, self._waited, self._began, self._busy = 0, 0.0, 0.0, 0.0
        self.compute_seconds: Callable[[], float | None] | None = None
        """How long the device computed in the last step, None if it still does; where its clock cannot tell."""
        self._beats = self._sent = 0
        self._heard: dict[int, float] = {}
        self._missing: dict[int, float] = {}
        self._answered = self._clock()
        self._store_fault = ""
        self._now, self._closed = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._word = threading.Lock()  # held by whatever prints the message; never released

    def _clock(self) -> float:
        return time.monotonic() - self._asleep

    # — what this rank does: called by its main thread —

    def at_step(self, step: int) -> None:
        """A step begins."""
        now = self._clock()
        took = max(0.0, now - self._began - self._waited) if self.compute_seconds is None else self.compute_seconds()
        if self._steps_begun > 1 and took is not None:
            self._busy = SMOOTHING * self._busy + (1 - SMOOTHING) * took if self._busy else took
        self._steps_begun += 1
        self._began, self._waited = now, 0.0
        self._activity = _Activity(step, STEP if self._steps_begun > 1 else FIRST, False, now)

    def finished(self) -> None:
        self._activity = self._activity._replace(doing="ending", since=self._clock())

    @contextmanager
    def doing(self, words: str | None = None) -> Iterator[None]:
        """Inside, this rank does that or, without words, waits for others; afterwards what it did before."""
        before, began = self._activity, self._clock()
        self._activity = before._replace(doing=words or before.doing, waiting=words is None, since=began)
        try:
            yield
        finally:
            now = self._clock()
            self._waited += now - began
            self._activity = before._replace(since=now)

    # — heartbeats: the only thread that talks to the store —

    @property
    def state(self) -> Heartbeat:
        step, doing, waiting, since = self._activity
        return Heartbeat(
            where=self.where,
            beat=self._beats,
            step=step,
            doing=doing,
            waiting=waiting,
            still=self._clock() - since,
            busy=self._busy,
            left=self._left,
            fault=self._fault if self.rank else self.verdict,
        )

    @property
    def known_states(self) -> dict[int, Heartbeat]:
        """This rank and those that it reads."""
        return {self.rank: self.state, **self.states}

    def start(self) -> None:
        """Begin to watch; all ranks must be about to."""
        for work in (self._beat, self._judge):
            thread = threading.Thread(target=work, name=f"rank watch {work.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _beat(self) -> None:
        while not self._closed.is_set():
            try:
                self._exchange()
            except (RuntimeError, OSError) as fault:
                self._store_fault = first_line(fault)
                return
            self._now.wait(BEAT_S)
            self._now.clear()

    def _exchange(self) -> None:
        """Report how this rank is, and read how the others are."""
        self._beats += 1
        self._store.set(f"rank/{self.rank}", msgspec.json.encode(self.state).decode())
        others = [0] if self.rank else list(range(1, self.count))
        answers = self._store.multi_get([f"rank/{other}" for other in others])
        now, before = self._clock(), self.states
        decoded = [msgspec.json.decode(answer, type=Heartbeat) for answer in answers]
        self.states = dict(zip(others, decoded, strict=True))
        for other, state in self.states.items():
            if other not in before or state.beat != before[other].beat:
                self._heard[other] = now
        if self.rank:
            self.verdict = self.verdict or self.states[0].fault
        self._answered, self._sent = now, self._beats

    def _all(self, test: Callable[[Heartbeat], object]) -> bool:
        return all(test(state) for state in self.states.values())

    def _wait(self, done: Callable[[], object], limit_s: float) -> None:
        """Wait until `done`, with heartbeats as often as it is looked at."""
        deadline = time.monotonic() + limit_s
        while not done() and time.monotonic() < deadline:
            self._now.set()
            time.sleep(0.05)

    def _publish(self) -> None:
        """Wait until a heartbeat that began after this call has been written, unless the store is gone."""
        beats = self._beats
        self._wait(lambda: self._sent > beats or self._store_fault, GRACE_S)

    # — the judge —

    def _judge(self) -> None:
        last, decided = time.monotonic(), 0.0
        while not self._closed.wait(min(0.25, BEAT_S / 4)):
            awake = time.monotonic()
            if awake - last > 2.0:
                self._asleep += awake - last
            last, now = awake, self._clock()
            if self.verdict is None and self._fault is None and not self._left:
                self.verdict = self._lost(now)
            if self.verdict is not None and not self._left:
                if not decided:
                    decided = now
                    self._now.set()
                    self._tell(self.verdict)
                if self._must_end(now, decided):
                    os._exit(self.verdict.code)

    def _must_end(self, now: float, decided: float) -> bool:
        """Whether the main thread will not raise by itself: it waits for others, or makes no progress in its step."""
        _, doing, waiting, since = self._activity
        still = now - max(since, decided)
        return still > GRACE_S if waiting else doing in (STEP, FIRST) and still > self.timeout_s

    def _lost(self, now: float) -> RankFault | None:
        """The first rank that is lost or has failed, as this rank sees it."""
        for other, state in sorted(self.states.items()):
            if state.fault is not None and not state.fault.on_all_ranks:
                return state.fault
            if state.left or state.fault is not None:
                continue
            if (how := self._how_lost(other, state, now)) is not None:
                when = max(state, self.state, key=lambda known: known.step).when  # its heartbeat may be a second old
                return _verdict(f"{state.name(other)} {how} {when}", rank=other)
        known = self.known_states
        broken = bool(self._store_fault) and now - self._answered > 3 * BEAT_S  # by then one that died has been missed
        if broken or now - self._answered > self.timeout_s + BEAT_S:
            why = self._store_fault or f"no answer for {self.timeout_s:g} s"
            host = f" on {known[0].where.host}" if 0 in known else ""
            gone = f"the store of rank 0{host}, or of its launcher, is gone {self.state.when} ({why})"
            return _verdict(gone, rank=0 if self.rank else -1)
        blocking = blocking_ranks(known, STUCK_FACTOR * self.timeout_s)
        return _stuck(blocking) if blocking and self.rank == 0 else None

    def _how_lost(self, other: int, state: Heartbeat, now: float) -> str | None:
        seen = state.where.seen_from(self.where)
        if seen == "gone":  # unless it left in order, which its last heartbeat would show
            gone = self._missing.setdefault(other, now)
            read = self._store_fault or self._answered > gone + BEAT_S or now > gone + 3 * BEAT_S
            return f"died (process {state.where.pid} is gone)" if read and now > gone + BEAT_S else None
        silent = now - self._heard.get(other, now)
        if silent > self.timeout_s:
            return f"was stopped by a signal {silent:.0f} s ago" if seen else f"has been silent for {silent:.0f} s"
        return None

    # — the end —

    def _tell(self, verdict: RankFault) -> None:
        """Print the message: on rank 0, or if that is lost on rank 1 and on one rank of each other machine."""
        instead = (self.rank == 1 or self.first_here) and verdict.rank == 0 and not verdict.reported
        if (self.rank == 0 or instead) and self._word.acquire(blocking=False):
            print(f"larvatus: {printable(verdict.line)}", file=sys.stderr, flush=True)

    def explained(self, fault: BaseException) -> BaseException:
        """What to raise instead: this rank's own error, which the others get, or the error of the rank to blame."""
        broken = type(fault) is RuntimeError and any(words in str(fault).lower() for words in _BROKEN)
        with self.doing("ending"):
            return self._blamed(fault) if broken or isinstance(fault, dist.DistError) else self._confessed(fault)

    def _blamed(self, fault: BaseException) -> RankLost:
        """A collective failed because of another rank: name it, as soon as it is known."""
        self._wait(lambda: self.verdict, self.timeout_s + 5 * BEAT_S)
        verdict = self.verdict
        if verdict is None:
            return RankLost(f"the ranks lost each other {self.state.when} ({first_line(fault)}); {RESUME_HINT}")
        lost = RankLost(verdict.line)
        lost.exit_code, lost.reported = verdict.code, True
        if self.rank == 0:
            self._tell(verdict)
            self._publish()
            time.sleep(2 * BEAT_S if self.count > 2 else 0)  # for the others to read it
        return lost

    def _confessed(self, fault: BaseException) -> BaseException:
        """This rank fails by itself: it informs the others before it ends."""
        line, code, on_all = f"{type(fault).__name__}: {fault}".removesuffix(": "), CRASH_EXIT_CODE, False
        if isinstance(fault, LarvatusError):
            line, code, on_all = str(fault), fault.exit_code, fault.on_all_ranks
        line = line if on_all else f"{self.state.name(self.rank)} {self.state.when}: {line}"
        first = self.rank > 0 or self._word.acquire(blocking=False)
        self._fault = RankFault(line=line, code=code, on_all_ranks=on_all, rank=self.rank, reported=self.rank == 0)
        if self.rank == 0:
            self.verdict = self.verdict or self._fault
        self._publish()
        if self.rank == 0 and not on_all:
            time.sleep(2 * BEAT_S)  # for the others to read it, should the store end with this process
        elif self.rank == 0:
            self._wait(lambda: self._all(lambda other: other.left or other.fault), GRACE_S)
        elif not on_all:
            self._wait(lambda: self.verdict, 5 * BEAT_S)
        if isinstance(fault, LarvatusError):
            fault.args = (line,)
            fault.reported = not first or (self.rank > 0 and (on_all or self.verdict is not None))
        return fault

    def close(self, *, in_order: bool = True) -> None:
        """Leave; in order, rank 0 does so after the others, which may still read its heartbeat."""
        self._left = True
        self._publish()
        if self.rank == 0 and in_order:
            self._wait(lambda: self.verdict or self._store_fault or self._all(lambda other: other.left), self.timeout_s)
        self._closed.set()
        self._now.set()
        for thread in self._threads:  # one that still talks to the store when Python ends would abort the process
            thread.join(GRACE_S)


def _verdict(lost: str, *, rank: int) -> RankFault:
    return RankFault(line=f"{lost}; the run ends for all ranks; {RESUME_HINT}", code=RankLost.exit_code, rank=rank)


def _stuck(blocking: Mapping[int, Heartbeat]) -> RankFault:
    names = ", ".join(state.name(rank) for rank, state in sorted(blocking.items())[:4])
    names += f" and {len(blocking) - 4} more" if len(blocking) > 4 else ""
    state = next(iter(blocking.values()))
    return _verdict(
        f"{names} {'has' if len(blocking) == 1 else 'have'} not got on {state.when} for {state.still:.0f} s", rank=-1
    )
