"""Worker processes for one function: tasks in, results out in the order of the tasks, however many workers there are.

    with Workers(count, state, function, what="a corpus worker", fix="…") as workers:
        for result in workers.map(tasks):          # lazy, ordered, a bounded number under way
            …

A worker is a fresh interpreter that speaks over its own two pipes. So it inherits no threads, locks or torch, needs no
``if __name__ == "__main__"`` in the caller, ends by itself when its parent is killed (its input closes), and when
*it* is killed the parent knows at once, which one and by what. (`torch.utils.data.DataLoader` shares one result pipe
between its workers: one killed while it writes leaves the parent waiting for the rest of the message.) `count=0`
works in this process.

Pickle passes only between a process and its own child, over pipes that nobody else holds; no file is unpickled.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, Generic, TypeVar

from larvatus.errors import LarvatusError

Task = TypeVar("Task")
Result = TypeVar("Result")
State = TypeVar("State")

_LENGTH = struct.Struct("<Q")
_START = "import sys; sys.path[:] = sys.argv[1:]; from larvatus.corpus.processes import serve; serve()"
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "ARROW_NUM_THREADS")
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 33)}  # page faults cost more


class Workers(Generic[State, Task, Result]):
    """`function(state(), task)` in `count` processes; function, state, tasks and results must be picklable."""

    def __init__(
        self, count: int, state: Callable[[], State], function: Callable[[State, Task], Result], *, what: str, fix: str
    ) -> None:
        self._function, self._what, self._fix = function, what, fix
        self._processes = [_spawn() for _ in range(count)]
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(max_workers=count, thread_name_prefix="workers") if count else None
        try:
            self._state = state()  # made while the workers start
            first = pickle.dumps((function, self._state)) if count else b""
        except BaseException:
            self.close()
            raise
        for process in self._processes:
            self._idle.put(process)
            with contextlib.suppress(OSError):  # dead already: the first task says so
                _write(process.stdin, first)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def map(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Results in the order of the tasks; tasks are drawn only as results are taken."""
        if self._threads is None:
            for task in tasks:
                yield self._function(self._state, task)
            return
        ahead = len(self._processes) + 1  # one waits while each worker has its own
        under_way: deque[Future[Result]] = deque()
        for task in tasks:
            under_way.append(self._threads.submit(self._ask, task))
            if len(under_way) > ahead:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()

    def _ask(self, task: Task) -> Result:
        process = self._idle.get()
        try:
            _write(process.stdin, pickle.dumps(task))
            answer = _read(process.stdout)
        except OSError:
            answer = None
        finally:
            self._idle.put(process)
        if answer is None:
            raise LarvatusError(f"{self._what} (pid {process.pid}) {_how_it_ended(process)}; {self._fix}")
        good, value = pickle.loads(answer)
        if not good:
            raise value
        return value  # type: ignore[no-any-return]

    def close(self) -> None:
        for process in self._processes:
            process.kill()  # nothing of value is in there: results are taken or not wanted
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):  # an unsent task for a killed worker
                        pipe.close()

    def __enter__(self) -> Workers[State, Task, Result]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve() -> None:
    """The worker's side: read what to do, then answer task after task until the input closes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # the parent decides when to stop; a group-wide signal must not race it
    ours, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a stray print must not garble the answers
    first = _read(ours)
    if first is None:
        return
    function, state = pickle.loads(first)
    while (task := _read(ours)) is not None:
        try:
            answer = (True, function(state, pickle.loads(task)))
        except LarvatusError as fault:
            answer = (False, fault)
        try:
            _write(answers, pickle.dumps(answer, protocol=5))
        except BrokenPipeError:
            return


def _spawn() -> subprocess.Popen[bytes]:
    environment = (
        dict(os.environ) | dict.fromkeys(_ONE_THREAD, "1") | {"TOKENIZERS_PARALLELISM": "false"} | _KEEP_MEMORY
    )
    command = [sys.executable, "-c", _START, *sys.path]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


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
        return f"was killed ({name}{', perhaps for want of memory' if -code == signal.SIGKILL else ''})"
    return f"ended with exit code {code}"
