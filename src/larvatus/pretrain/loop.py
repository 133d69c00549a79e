"""The loop: steps, evaluations, checkpoints, until the steps are done or someone asks to stop.

What decides the result is in the recipe, the corpus and the seed; what changes over time is in `Progress`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from larvatus.arrays import Ints
from larvatus.batch import TrainingBatch
from larvatus.corpus.loader import Cursor, Loader
from larvatus.engine.distribution import Ranks
from larvatus.engine.report import StepReport
from larvatus.engine.schedule import learning_rate
from larvatus.engine.settings import Runtime
from larvatus.engine.step import Stepper
from larvatus.errors import Preempted
from larvatus.pretrain.checkpoint import CurvePoint, Progress
from larvatus.pretrain.evaluation import HeldOut
from larvatus.pretrain.monitor import Monitor
from larvatus.recipes import Recipe, steps_of_phases
from larvatus.signals import Stop, Stopped

T = TypeVar("T")
JOIN_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Loop:
    """What the loop calls; it owns none of it."""

    recipe: Recipe
    runtime: Runtime
    ranks: Ranks
    stepper: Stepper
    loader: Callable[[int], Loader]
    """The loader of a phase."""
    evaluate: Callable[[int], HeldOut | None]
    """Held-out scores at the length of a phase."""
    save: Callable[[Progress], None]
    monitor: Monitor | None
    """Only the main rank shows anything."""
    stop: Stop
    evaluate_every: int
    save_every: int
    _unread: list[StepReport] = field(default_factory=list, init=False)
    """The step that was launched and not yet looked at."""

    def run(self, progress: Progress) -> Progress:
        """From wherever `progress` stands to the last step."""
        ends = _ends(self.recipe, progress.steps)
        while progress.step < progress.steps:
            phase = next(i for i, end in enumerate(ends) if progress.step < end)
            if phase != progress.phase:  # a phase reads the corpus from the start, in an order of its own
                progress = msgspec.structs.replace(progress, phase=phase, cursor=Cursor())
            progress = self._phase(progress, ends[phase])
        return progress

    def _phase(self, progress: Progress, end: int) -> Progress:
        length = self.recipe.phases[progress.phase].length
        loader = self.loader(progress.phase)
        batches = ahead(loader.steps(progress.cursor), leave=self._may_leave, close=loader.close)
        try:
            for batch, cursor in batches:
                progress = self._step(progress, batch, cursor, length)
                if progress.step == end:
                    return progress
        finally:
            batches.close()
        raise self._left(progress)  # asked to stop while it waited for text

    def _may_leave(self) -> bool:
        """Whether to stop between two steps, before all ranks have agreed on it: not where others would wait."""
        return self.stop.asked and self.ranks.count == 1

    def _step(self, progress: Progress, batch: TrainingBatch[Ints], cursor: Cursor, length: int) -> Progress:
        began = time.monotonic()
        rate = learning_rate(self.recipe.schedule, self.recipe.optimizer.rate, step=progress.step, steps=progress.steps)
        report = self.stepper(batch, step=progress.step, rate=rate, limit=length)
        self._look_at_the_last()
        self._unread.append(report)
        progress = msgspec.structs.replace(
            progress,
            step=progress.step + 1,
            cursor=cursor,
            tokens=progress.tokens + report.tokens,
            seconds=progress.seconds + time.monotonic() - began,
        )
        return self._after(progress)

    def _look_at_the_last(self) -> None:
        """Check and show the step before this one, while this one is under way."""
        while self._unread:
            report = self._unread.pop()
            report.check()
            if self.monitor:
                self.monitor.step(report)

    def _after(self, progress: Progress) -> Progress:
        """Evaluate and save when due; leave when asked to. Nothing unsound is ever evaluated or saved."""
        last = progress.step == progress.steps
        stopping = self.ranks.any(self.stop.asked, self.runtime.device)
        evaluating = progress.step % self.evaluate_every == 0 and not last and not stopping
        saving = last or stopping or progress.step % self.save_every == 0
        if evaluating or saving:
            self._look_at_the_last()
        if self.monitor and evaluating:
            progress = self._evaluate(progress)
        if (stopping and not last) or (evaluating and self._may_leave()):
            raise self._left(progress)
        if saving:
            self.save(progress)
        return progress

    def _evaluate(self, progress: Progress) -> Progress:
        """Held-out scores, unless a signal comes first."""
        assert self.monitor is not None
        try:
            with self.stop.at_once() if self.ranks.count == 1 else nullcontext():
                result = self.evaluate(progress.phase)
        except Stopped:
            return progress
        if result is None:
            return progress
        self.monitor.held_out(progress.step, result, seen=progress.tokens, seconds=progress.seconds)
        return with_point(progress, result)

    def _left(self, progress: Progress) -> Preempted:
        """Save where it stands; what to end with."""
        self._look_at_the_last()
        self.save(progress)
        return Preempted(
            f"{self.stop.by or 'another rank'} stopped it; saved at step {progress.step:,} of {progress.steps:,}; "
            "the same command with --resume goes on from there"
        )


def with_point(progress: Progress, result: HeldOut) -> Progress:
    """Keep a held-out result for the curve, where there is a masked-lm loss and something to hold it against."""
    if "masked-lm" not in result.scores or not result.guess_loss:
        return progress
    point = CurvePoint(
        step=progress.step,
        tokens=progress.tokens,
        seconds=progress.seconds,
        loss=result.scores["masked-lm"].loss,
        guess=result.guess_loss,
    )
    return msgspec.structs.replace(progress, curve=(*progress.curve, point))


def _ends(recipe: Recipe, steps: int) -> list[int]:
    """The step at which each phase ends."""
    ends, passed = [], 0
    for count in steps_of_phases(recipe.phases, steps):
        passed += count
        ends.append(passed)
    return ends


def ahead(
    items: Iterator[T],
    depth: int = 2,
    *,
    leave: Callable[[], bool] = lambda: False,
    close: Callable[[], None] = lambda: None,
) -> Generator[T, None, None]:
    """The same items, made by a thread a little ahead of their use; errors come through, closing ends the thread.

    It ends early when `leave` says so while it waits. `close` must make a thread that waits for an item fail.
    """
    ready: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(maxsize=depth)
    closed = threading.Event()

    def put(item: T | None, fault: BaseException | None) -> None:
        while not closed.is_set():
            try:
                ready.put((item, fault), timeout=0.1)
                break
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put(item, None)
                if closed.is_set():
                    return
            put(None, StopIteration())
        except BaseException as fault:
            put(None, fault)
        finally:
            if isinstance(items, Generator):
                items.close()  # here, and not whenever it is collected

    thread = threading.Thread(target=work, name="batches", daemon=True)
    thread.start()
    try:
        while True:
            try:
                item, fault = ready.get(timeout=0.2)
            except queue.Empty:
                if leave():
                    return
                continue
            if isinstance(fault, StopIteration):
                return
            if fault is not None:
                raise fault
            yield item  # type: ignore[misc]
    finally:
        closed.set()
        close()
        thread.join(timeout=JOIN_S)  # what a worker makes ends with it; a block made in this process is not waited for
