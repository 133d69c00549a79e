"""Worker processes for one function: tasks in, results out in the order of the tasks, however many workers there are.

    with Workers(count, state, function, what="a corpus worker", fix="…") as workers:
        for result in workers.map(tasks):          # lazy, ordered, a bounded number under way
            …

A worker is a fresh interpreter that speaks over its own two pipes; large arrays of its answers come through memory that
both see (`shared_memory.py`). So it inherits no threads, locks or torch, needs no
``if __name__ == "__main__"`` in the caller, ends by itself when its parent is killed (its input closes), and when
*it* is killed the parent knows at once, which one and by what. (`torch.utils.data.DataLoader` shares one result pipe
between its workers: one killed while it writes leaves the parent waiting for the rest of the message.) One that was
stopped, or that waits for something that never comes, is named too: a worker at work uses the processor. `count=0`
works in this process.

Pickle passes only between a process and its own child, over pipes that nobody else holds; no file is unpickled.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic

from larvatus.core.errors import LarvatusError, UsageError
from larvatus.data.bulk.executor import Executor, Result, State, Task, Work
from larvatus.data.corpus.shared_memory import NO_MEMORY, Inbox, Outbox

LOOK_S = 1.0
"""Between two looks at the workers, while a result is waited for."""
STOPPED_S = 20.0
"""After which a stopped worker (SIGSTOP) counts as lost."""
STILL_S = 50.0
"""After which a worker that sleeps and does nothing does: a block takes seconds, all of them of processor time."""

_LENGTH = struct.Struct("<Q")
_START = (
    "import sys; memory, parent = map(int, sys.argv[1:3]); sys.path[:] = sys.argv[3:]; "
    "from larvatus.data.corpus.processes import serve; serve(memory, parent)"
)
_PR_SET_PDEATHSIG = 1
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "ARROW_NUM_THREADS")
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 33)}  # page faults cost more


@dataclass(frozen=True)
class Processes(Executor):
    """Executor that uses the cores of this machine."""

    count: int

    def start(self, work: Work[State, Task, Result]) -> Workers[State, Task, Result]:
        return Workers(self.count, work.state, work.function, what=work.what, fix=work.fix)


class Workers(Generic[State, Task, Result]):
    """`function(state(), task)` in `count` processes; function, state, tasks and results must be picklable."""

    def __init__(
        self, count: int, state: Callable[[], State], function: Callable[[State, Task], Result], *, what: str, fix: str
    ) -> None:
        self._function, self._what, self._fix = function, what, fix
        check_count(count)
        self._inboxes: dict[int, Inbox] = {}  # by pid
        self._processes: list[subprocess.Popen[bytes]] = []
        for _ in range(count):
            inbox = Inbox()
            self._processes.append(_spawn(inbox.handle))
            self._inboxes[self._processes[-1].pid] = inbox
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._asked: dict[int, Stillness] = {}  # the workers that have a task, by their pid
        self._closing = threading.Lock()
        self._threads = ThreadPoolExecutor(max_workers=count, thread_name_prefix="workers") if count else None
        try:
            self._state = state()  # made while the workers start
            self._first = pickle.dumps((function, self._state)) if count else b""
        except BaseException:
            self.close()
            raise
        self._new = set(self.pids)  # workers without a function yet
        for process in self._processes:
            self._idle.put(process)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def map(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Results in the order of the tasks; tasks are taken only as results are."""
        if self._threads is None:
            for task in tasks:
                yield self._function(self._state, task)
            return
        ahead = len(self._processes) + 1  # one waits while each worker has its own
        under_way: deque[Future[Result]] = deque()
        for task in tasks:
            under_way.append(self._threads.submit(self._ask, task))
            if len(under_way) > ahead:
                yield self._wait(under_way.popleft())
        while under_way:
            yield self._wait(under_way.popleft())

    def _wait(self, future: Future[Result]) -> Result:
        """A result, unless the worker that owes it, or any other, has stopped answering."""
        while not wait([future], timeout=LOOK_S).done:
            for pid, stillness in list(self._asked.items()):
                stillness.look(pid)
                if stillness.too_long:
                    raise LarvatusError(f"{self._what} (pid {pid}) {stillness}; {self._fix}")
        return future.result()

    def _ask(self, task: Task) -> Result:
        process = self._idle.get()
        inbox = self._inboxes[process.pid]
        self._asked[process.pid] = Stillness()
        try:
            if process.pid in self._new:
                self._new.discard(process.pid)
                _write(process.stdin, self._first)
            _write(process.stdin, pickle.dumps((task, inbox.returned())))
            answer = _read(process.stdout)
        except OSError:
            answer = None
        finally:
            self._asked.pop(process.pid, None)
            self._idle.put(process)
        if answer is None:
            raise LarvatusError(f"{self._what} (pid {process.pid}) {_how_it_ended(process)}; {self._fix}")
        good, value = inbox.unpack(answer)
        if not good:
            raise value
        return value  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the workers; may be called from any thread, and twice. A task under way then fails."""
        for process in self._processes:
            process.kill()  # nothing of value is in there: results are taken or not wanted
        with self._closing:
            if self._threads is not None:
                self._threads.shutdown(cancel_futures=True)
            for process in self._processes:
                process.wait()
                for pipe in (process.stdin, process.stdout):
                    if pipe is not None:
                        with contextlib.suppress(BrokenPipeError):  # an unsent task for a killed worker
                            pipe.close()
            for inbox in self._inboxes.values():
                inbox.close()

    def __enter__(self) -> Workers[State, Task, Result]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Stillness:
    """For how long a worker has done nothing, by what the system says of it.

    Time in which nobody looked does not count: a worker that was stopped together with us (Ctrl-Z) has all of it again.
    """

    def __init__(self) -> None:
        self._state, self._ticks, self._still = "", -1, 0.0

    def look(self, pid: int) -> None:
        state, ticks = _activity(pid)
        moving = state in ("R", "") or ticks != self._ticks
        self._still = 0.0 if moving or state != self._state else self._still + LOOK_S
        self._state, self._ticks = state, ticks

    @property
    def too_long(self) -> bool:
        return self._still >= (STOPPED_S if self._state == "T" else STILL_S)

    def __str__(self) -> str:
        if self._state == "T":
            return f"was stopped by a signal (SIGSTOP) and has not gone on for {self._still:.0f} seconds"
        return f"does not answer: it has done nothing for {self._still:.0f} seconds"


def _activity(pid: int) -> tuple[str, int]:
    """State and processor time of a process; no state where the system does not tell, or the process is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", -1
    return fields[0], int(fields[11]) + int(fields[12])


def check_count(count: int) -> None:
    """Refuse a number of workers that no machine of this size can use; each takes some hundred megabytes."""
    most = max(16, 4 * len(os.sched_getaffinity(0)))
    if not 0 <= count <= most:
        raise UsageError(f"--workers is from 0 to {most} here (four to a core), not {count}")


def serve(memory: int, parent: int) -> None:
    """The worker's side: read what to do, then answer task after task until the input closes."""
    _end_with_parent(parent)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # the parent decides when to stop; a group-wide signal must not race it
    ours, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a stray print must not garble the answers
    first = _read(ours)
    if first is None:
        return
    function, state = pickle.loads(first)
    outbox = Outbox(memory)
    while (message := _read(ours)) is not None:
        task, returned = pickle.loads(message)
        try:
            answer = (True, function(state, task))
        except LarvatusError as fault:
            answer = (False, fault)
        try:
            _write(answers, outbox.pack(answer, returned))
        except BrokenPipeError:
            return


def _end_with_parent(parent: int) -> None:
    """Have Linux kill this process when its parent dies, in the middle of a task too, and even if it was stopped."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died while this process started, before the line above
        sys.exit()


def _spawn(memory: int) -> subprocess.Popen[bytes]:
    environment = (
        dict(os.environ) | dict.fromkeys(_ONE_THREAD, "1") | {"TOKENIZERS_PARALLELISM": "false"} | _KEEP_MEMORY
    )
    command = [sys.executable, "-c", _START, str(memory), str(os.getpid()), *sys.path]
    handles = () if memory == NO_MEMORY else (memory,)
    pipe = subprocess.PIPE
    # in a process group of its own, where Ctrl-C does not reach it before it can ignore it
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, process_group=0, pass_fds=handles)


def _write(pipe: Any, message: bytes) -> None:
    pipe.write(_LENGTH.pack(len(message)))
    pipe.write(message)
    pipe.flush()


def _read(pipe: Any) -> bytes | None:
    """One message, or nothing when the other side has gone (even in the middle of one)."""
    header = _exactly(pipe, _LENGTH.size)
    return None if header is None else _exactly(pipe, _LENGTH.unpack(header)[0])


def _exactly(pipe: BinaryIO, size: int) -> bytes | None:
    data = pipe.read(size)  # a buffered reader reads all of it, or to the end
    return data if len(data) == size else None


def _how_it_ended(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        return "closed its pipe"
    if code < 0:
        name = signal.Signals(-code).name
        return f"was killed ({name}{', perhaps because memory ran out' if -code == signal.SIGKILL else ''})"
    return f"ended with exit code {code}"
