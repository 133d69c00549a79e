"""Executors run blocks of work: in this process, in worker processes of this machine, or on a Ray cluster.

    with executor.pool(state, function, what="a corpus worker", fix="…") as pool:
        for result in pool.map(tasks):          # in the order of the tasks, however many work at once
            …

`function(state(), task)` depends only on its arguments, so every executor gives the same results to the byte. Tasks are
taken from their iterator only as results are taken: memory holds a bounded number of both. `LocalExecutor` works in
this process, `RayExecutor` on a cluster, and `larvatus.data.corpus.processes.Processes` in processes of this machine.
`BulkSettings` are the options of every long job:

    larvatus embed s3://texts/ --model runs/mine --out vectors.parquet --ray 10.0.0.4:6379 --errors bad.jsonl
    lv.embed_files(model, "texts/", out="vectors.parquet", ray="auto")
"""

from __future__ import annotations

import os
import re
import signal
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Generic, Protocol, TypeVar

from larvatus.core.errors import LarvatusError, UsageError
from larvatus.core.run_identity import VERSION
from larvatus.core.settings import Flag, Settings
from larvatus.core.signals import signal_handlers

State = TypeVar("State")
Task = TypeVar("Task")
Result = TypeVar("Result")
In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)

AUTO = "auto"
"""The cluster that RAY_ADDRESS names, or that runs on this machine; where there is none, one is started here."""
LOCAL = "local"
"""A new one on this machine."""
AHEAD = 3
"""Tasks a worker: one at work, one that waits for it, one whose result waits for its turn."""
TRIES = 4
"""How often a task is begun before its workers' deaths are taken to be its own doing."""
ANSWER_S = 5.0
"""Within which a cluster must answer; Ray itself tries for ten minutes."""
START_S = 300.0
"""Within which the first worker must have started."""
LOOK_S = 1.0
"""Between two looks: a signal is heard no later."""
ADDRESS = re.compile(r"auto|local|(?:ray://)?(?:\[[0-9a-fA-F:]+\]|[\w.-]+):\d{1,5}")
INSTALL = 'a Ray cluster needs the package ray; pip install "larvatus[scale]"'


class Pool(Protocol[In, Out]):
    def map(self, tasks: Iterable[In]) -> Iterator[Out]:
        """Results in the order of the tasks; tasks are taken as results are."""


@dataclass(frozen=True)
class Work(Generic[State, Task, Result]):
    """`function(state(), task)` for each task. Messages call a worker `what` and name the remedy `fix`."""

    state: Callable[[], State]
    function: Callable[[State, Task], Result]
    what: str
    fix: str


class Executor(ABC):
    def pool(
        self, state: Callable[[], State], function: Callable[[State, Task], Result], *, what: str, fix: str
    ) -> AbstractContextManager[Pool[Task, Result]]:
        """Start workers that run `function` on tasks."""
        return self.start(Work(state, function, what, fix))

    @abstractmethod
    def start(self, work: Work[State, Task, Result]) -> AbstractContextManager[Pool[Task, Result]]: ...


@dataclass(frozen=True)
class LocalExecutor(Executor):
    """In this process, one task after another.

    >>> with LocalExecutor().pool(lambda: 10, lambda ten, task: ten * task, what="a worker", fix="") as pool:
    ...     list(pool.map([1, 2]))
    [10, 20]
    """

    def start(self, work: Work[State, Task, Result]) -> AbstractContextManager[Pool[Task, Result]]:
        return nullcontext(_InTurn(work.state(), work.function))


@dataclass(frozen=True)
class _InTurn(Generic[State, Task, Result]):
    state: State
    function: Callable[[State, Task], Result]

    def map(self, tasks: Iterable[Task]) -> Iterator[Result]:
        for task in tasks:
            yield self.function(self.state, task)


@dataclass(frozen=True)
class RayExecutor(Executor):
    """A Ray cluster (extra `larvatus[scale]`): ``host:port``, ``ray://host:port``, ``local`` (a new one) or ``auto``.

    A worker is an actor that makes the state once and answers task after task; there is one for each CPU of the
    cluster, or for each GPU where the work needs one. If a worker or its node dies, Ray starts another elsewhere and
    its open tasks are computed again: results depend only on their task. At most `AHEAD` tasks a worker are open or
    wait to be taken, so neither this process nor the object store grows with the corpus.

    Ray sends pickled objects between its processes: use only a cluster whose network you trust.
    """

    address: str = AUTO
    gpus: bool = False
    """Whether workers take a GPU each, where the cluster has some."""
    workers: int | None = None
    """How many; by default one for each CPU, or GPU, of the cluster."""

    def __post_init__(self) -> None:
        check_address(self.address)

    @contextmanager
    def start(self, work: Work[State, Task, Result]) -> Iterator[Pool[Task, Result]]:
        with connected(self.address) as ray:
            pool = _RayPool(ray, work, self)
            try:
                yield pool
            finally:
                pool.close()


def check_address(address: str) -> None:
    """Refuse what is no address, and an installation without Ray, before any work is done."""
    if not ADDRESS.fullmatch(address):
        raise UsageError(f"--ray {address!r} is no address of a Ray cluster; give host:port, or only --ray")
    if find_spec("ray") is None:
        raise UsageError(INSTALL)


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """The module `ray`, connected; a connection that this process has is taken, and left open."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reports nothing to anybody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray  # an extra, and a second of imports

    if ray.is_initialized():
        yield ray
        return
    joined = _running(address)
    more: dict[str, Any] = {} if joined else {"include_dashboard": False}
    with signal_handlers(signal.getsignal(signal.SIGTERM), signal.SIGTERM):  # Ray installs its own
        try:
            ray.init(address=joined or LOCAL, **more, log_to_driver=False, configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError, OSError) as fault:
            reason = str(fault).strip().partition("\n")[0]
            raise LarvatusError(f"the Ray cluster {address} cannot be joined ({reason}); check its address") from fault
    try:
        yield ray
    finally:
        ray.shutdown()


def _running(address: str) -> str | None:
    """The cluster to be joined, which must answer; None where one is to be started here."""
    if address == AUTO:
        from ray._private.services import canonicalize_bootstrap_address

        noted = canonicalize_bootstrap_address(None)  # by RAY_ADDRESS, or by the note of one that runs here
        address = str(noted) if noted else LOCAL
    if address == LOCAL:
        return None
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()
    except (OSError, ValueError) as fault:
        raise LarvatusError(
            f"no Ray cluster answers at {address} ({getattr(fault, 'strerror', None) or fault}); check the address, "
            "start one there with ray start --head, or one here with --ray local"
        ) from fault
    return address


class _Worker:
    """What runs in a process of the cluster."""

    def __init__(self, function: Callable[[Any, Any], Any], version: str) -> None:
        self._function, self._version = function, version
        self._made: list[Any] = []

    def ready(self) -> int:
        return os.getpid()

    def run(self, task: Any, kept: list[Any]) -> tuple[bool, Any]:
        """A result, or the error that a user can cause; any other is a fault of ours, and Ray shows it whole."""
        try:
            if self._version != VERSION:
                node = socket.gethostname()
                raise LarvatusError(
                    f"{node} has Larvatus {VERSION}, this machine {self._version}; install the same on all nodes"
                )
            if not self._made:
                import ray  # where this runs, it is there

                self._made.append(ray.get(kept[0])())
            return True, self._function(self._made[0], task)
        except LarvatusError as fault:
            return False, fault


class _RayPool(Generic[State, Task, Result]):
    """Actors, and what each has under way."""

    def __init__(self, ray: Any, work: Work[State, Task, Result], settings: RayExecutor) -> None:
        self._ray, self._work = ray, work
        count, each = self._shares(settings)
        kind = ray.remote(_Worker).options(max_restarts=-1, max_task_retries=TRIES - 1, **each)
        self._kept = ray.put(work.state)  # once, for all workers, and for those that come after a death
        self._actors = [kind.remote(work.function, VERSION) for _ in range(count)]
        self._starting = {actor.ready.remote(): actor for actor in self._actors}
        self._load: dict[Any, int] = {}  # workers that have started, and how many tasks each has
        self._at_work: dict[Any, Any] = {}  # tasks that are not known to be done, and the worker of each

    def _shares(self, settings: RayExecutor) -> tuple[int, dict[str, float]]:
        """How many workers, and what each takes of the cluster."""
        there = self._ray.cluster_resources()
        cpus, gpus = int(there.get("CPU", 0)), int(there.get("GPU", 0))
        if settings.gpus and gpus:
            return settings.workers or gpus, {"num_cpus": 1, "num_gpus": 1}
        if not cpus:
            raise LarvatusError(f"the Ray cluster {settings.address} has no CPUs; add a node to it with ray start")
        return settings.workers or cpus, {"num_cpus": 1}

    def map(self, tasks: Iterable[Task]) -> Iterator[Result]:
        under_way: deque[Any] = deque()
        for task in tasks:
            while len(under_way) >= AHEAD * max(1, len(self._load)):
                yield self._take(under_way.popleft())
            actor = self._idle()
            reference = actor.run.remote(task, [self._kept])
            self._load[actor] += 1
            self._at_work[reference] = actor
            under_way.append(reference)
            del reference
        while under_way:
            yield self._take(under_way.popleft())

    def _idle(self) -> Any:
        """A worker with the fewest tasks; waits while each has one at work and one waiting."""
        begun = monotonic()
        while not self._load or min(self._load.values()) >= AHEAD - 1:
            self._look(LOOK_S)
            if not self._load and monotonic() - begun > START_S:
                free = int(self._ray.available_resources().get("CPU", 0))
                raise LarvatusError(
                    f"no worker has started on the Ray cluster in {START_S:.0f} seconds ({free} CPUs are free); "
                    "wait until others have done, or add nodes"
                )
        self._look(0)
        return min(self._load, key=self._load.__getitem__)

    def _look(self, seconds: float) -> None:
        """Note which workers have started and which tasks are done."""
        waiting = [*self._starting, *self._at_work]
        if not waiting:
            return
        done, _ = self._ray.wait(waiting, num_returns=1, timeout=seconds, fetch_local=False)
        if done:
            done, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0, fetch_local=False)
        for reference in done:
            if reference in self._starting:
                self._load[self._starting.pop(reference)] = 0
            else:
                self._load[self._at_work.pop(reference)] -= 1

    def _take(self, reference: Any) -> Result:
        errors = self._ray.exceptions
        while not self._ray.wait([reference], timeout=LOOK_S)[0]:
            self._look(0)
        try:
            good, value = self._ray.get(reference)
        except errors.RayTaskError as fault:
            raise fault.as_instanceof_cause() from fault
        except errors.RayError as fault:
            died = f"{self._work.what} on the Ray cluster died {TRIES} times at the same block of text"
            raise LarvatusError(f"{died} ({type(fault).__name__}); {self._work.fix}") from fault
        finally:
            actor = self._at_work.pop(reference, None)
            if actor is not None:
                self._load[actor] -= 1
        if not good:
            raise value
        return value  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the workers; what they have under way is not wanted."""
        for actor in self._actors:
            with suppress(Exception):  # a connection that is gone has ended them already
                self._ray.kill(actor)


class BulkSettings(Settings):
    """Where a long job runs."""

    ray: Annotated[str | None, Flag("--ray", metavar="[ADDRESS]")] = None
    """On a Ray cluster: host:port; without an address, one that runs here, or a new one (extra larvatus[scale])."""
    errors: Annotated[Path | None, Flag(metavar="FILE")] = None
    """Bad rows go here, one line of JSON each, and the job continues."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ray is not None:
            check_address(self.ray)

    def executor(
        self, *, otherwise: Executor = LocalExecutor(), device: str = "cpu", workers: int | None = None
    ) -> Executor:
        """Executor of the blocks; `device` sets whether workers use GPUs."""
        return otherwise if self.ray is None else RayExecutor(self.ray, gpus=device != "cpu", workers=workers)
