"""Who carries out blocks of work: this process, worker processes of this machine, or a Ray cluster. One contract.

    with executor.pool(state, function, what="a corpus worker", fix="…") as pool:
        for result in pool.map(tasks):          # in the order of the tasks, however many work at once
            …

`function(state(), task)` depends on its arguments alone, so results are the same to the byte whoever computes them.
Tasks are drawn only as results are taken: memory holds a bounded number of both. `LocalExecutor` works in this process;
`larvatus.data.corpus.processes.Processes` in processes of this machine; `OnRay` (`on_ray.py`) on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

State = TypeVar("State")
Task = TypeVar("Task")
Result = TypeVar("Result")
In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


class Pool(Protocol[In, Out]):
    def map(self, tasks: Iterable[In]) -> Iterator[Out]:
        """Results in the order of the tasks; tasks are drawn as results are taken."""


class Executor(Protocol):
    def pool(
        self,
        state: Callable[[], State],
        function: Callable[[State, Task], Result],
        *,
        what: str,
        fix: str,
    ) -> AbstractContextManager[Pool[Task, Result]]:
        """What carries out `function` on tasks. Messages call a worker `what`, and say the way out, `fix`."""


@dataclass(frozen=True)
class LocalExecutor:
    """In this process, one task after another.

    >>> with LocalExecutor().pool(lambda: 10, lambda ten, task: ten * task, what="a worker", fix="") as pool:
    ...     list(pool.map([1, 2]))
    [10, 20]
    """

    def pool(
        self,
        state: Callable[[], State],
        function: Callable[[State, Task], Result],
        *,
        what: str,
        fix: str,
    ) -> AbstractContextManager[Pool[Task, Result]]:
        return nullcontext(_InTurn(state(), function))


@dataclass(frozen=True)
class _InTurn(Generic[State, Task, Result]):
    state: State
    function: Callable[[State, Task], Result]

    def map(self, tasks: Iterable[Task]) -> Iterator[Result]:
        for task in tasks:
            yield self.function(self.state, task)
