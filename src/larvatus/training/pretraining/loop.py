"""The pretraining loop: phases, steps, held-out evaluation, checkpoints, and rollback after a loss spike.

    progress = Pretraining(recipe=recipe, progress=Progress(steps=1_000), stepper=stepper, …).run()

`engine/loop.py` calls the methods of `Pretraining`: `fetch`, `step`, `read`, `evaluate`, `record` and `save`. The loss
of a step is read only after the next step is launched, so that the GPU does not wait for the host. Recipe, corpus and
seed determine the result; `progress` is the state that changes during the run and that a checkpoint stores.
"""

from __future__ import annotations

import atexit
import itertools
import queue
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from larvatus.core.errors import NumericsError, Preempted
from larvatus.core.signals import Stop
from larvatus.data.corpus.loader import Cursor, Loader
from larvatus.models.recipes import Recipe, steps_of_phases
from larvatus.training.engine.loop import Clock, run_loop
from larvatus.training.engine.optimizer import learning_rate
from larvatus.training.engine.ranks import Ranks, blame_ranks, busy, check_ranks_agree, waiting
from larvatus.training.engine.reporter import Deadline
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.checkpoint import LossCurvePoint, Progress
from larvatus.training.pretraining.evaluation import HeldOutScores
from larvatus.training.pretraining.monitor import Monitor
from larvatus.training.pretraining.step import PreparedStep, Step, Stepper, StepReport

T = TypeVar("T")
JOIN_S = 2.0
"""Seconds that `prefetch` waits for its thread when it is closed."""
END_S = 600.0
"""Seconds that Python waits at exit for a `prefetch` thread that is still making a block."""
SPIKE_FACTOR = 5.0
"""A spike is a loss of more than this many times the median of the last steps …"""
MIN_RISE = 1.0
"""… and of more than this above it: small losses of small batches vary by large factors."""
SPIKE_WINDOW = 64
"""Steps over which the median is taken."""
MIN_STEPS = 16
"""Steps that the median needs; before that, no loss counts as a spike."""
MAX_ROLLBACKS = 2
"""Rollbacks of one run; the next spike ends it."""


@dataclass(kw_only=True)
class Pretraining:
    """A pretraining run: the parts that its steps call, and its progress."""

    recipe: Recipe
    runtime: Runtime
    ranks: Ranks
    stepper: Stepper
    loader: Callable[[int], Loader]
    """Returns the loader of a phase, by the number of the phase from 0."""
    held_out: Callable[[int], HeldOutScores | None]
    """Evaluates on held-out text at the sequence length of a phase; None if there is no held-out text."""
    checkpoint: Callable[[Progress], None]
    """Writes a checkpoint."""
    back: Callable[[], Progress | None]
    """Restores weights and optimizer state from the newest checkpoint; returns its progress, or None without one."""
    monitor: Monitor | None
    """Reports progress on the main rank; None on all others."""
    evaluates: bool
    """Whether this rank evaluates: only the main one, or all if the weights are sharded."""
    stop: Stop
    evaluate_every: int
    """Steps between evaluations."""
    save_every: int
    """Steps between checkpoints."""
    progress: Progress
    deadline: float | None = None
    """`time.monotonic()` by which the run must end, with fewer steps if necessary; only for a single process."""

    def __post_init__(self) -> None:
        self.clock = Clock(self.progress.seconds)
        self._deadline = None if self.deadline is None else Deadline(self.deadline)
        self._evaluated = self.progress.step
        self._batches: Generator[tuple[PreparedStep, Cursor], None, None] | None = None
        self._fetched: tuple[PreparedStep, Cursor] | None = None
        self._waited = 0.0
        self._phase_ends = _phase_ends(self.recipe, self.progress.steps)
        self._unread: list[StepReport] = []
        """The step that was launched last, if its losses have not been read yet."""
        self._spikes, self._rollbacks = SpikeDetector(), 0
        self._spiked: str | None = None
        """Description of a loss spike, until the run is rolled back."""
        self._skipped: dict[int, Cursor] = {}
        """Cursor at which each phase continues after a rollback, by phase."""

    def run(self) -> Progress:
        """Train from `progress` to the last step. Raises `Preempted` after a signal, with a checkpoint saved."""
        try:
            if not run_loop(self, stop=self.stop, ranks=self.ranks):
                with self.stop.noting():
                    preempted = self._preempted()
                    preempted.on_all_ranks = True
                    raise preempted
        finally:
            self._close()
        return self.progress

    @property
    def finished(self) -> bool:
        return self.progress.step >= self.progress.steps

    @property
    def evaluation_due(self) -> bool:
        step = self.progress.step
        return step % self.evaluate_every == 0 and not self.finished and step > self._evaluated

    @property
    def save_due(self) -> bool:
        return self.finished or self.progress.step % self.save_every == 0

    def fetch(self) -> bool:
        """Get the batch of the next step; False if a stop was requested meanwhile.

        A new phase opens its own loader and reads the corpus from the start, in its own random order.
        """
        if self._spiked is not None:
            self._roll_back(self._spiked)
        phase = next(number for number, end in enumerate(self._phase_ends) if self.progress.step < end)
        if phase != self.progress.phase:
            self._close()
            self.progress = msgspec.structs.replace(
                self.progress, phase=phase, cursor=self._skipped.get(phase, Cursor())
            )
        if self._batches is None:
            loader = self.loader(phase)
            steps = self._prepared(
                self.stepper.read(loader, self.progress.cursor), limit=self.recipe.phases[phase].length
            )
            self._batches = prefetch(steps, leave=self._may_stop, close=loader.close)
        began = time.monotonic()
        self._fetched = next(self._batches, None)
        self._waited = time.monotonic() - began
        return self._fetched is not None

    def _prepared(
        self, steps: Iterator[tuple[Step, Cursor]], *, limit: int
    ) -> Generator[tuple[PreparedStep, Cursor], None, None]:
        """Steps whose tensors are on the device; runs on the thread of `prefetch`."""
        with closing(steps) if isinstance(steps, Generator) else nullcontext():
            for batch, cursor in steps:
                yield self.stepper.prepare(batch, limit=limit), cursor

    def _may_stop(self) -> bool:
        """Whether to stop while waiting for a batch. With several ranks all must agree first, so the answer is no."""
        return self.stop.requested and self.ranks.count == 1

    def _close(self) -> None:
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def step(self) -> None:
        """Launch the next update, then read the losses of the one before."""
        assert self._fetched is not None
        recipe, progress, (batch, cursor) = self.recipe, self.progress, self._fetched
        began, self._fetched = time.monotonic(), None
        rate = learning_rate(recipe.schedule, recipe.optimizer.rate, step=progress.step, steps=progress.steps)
        report = self.stepper.launch(batch, step=progress.step, rate=rate)
        self.read()  # the step before this one, while this one runs
        report.waits(self._waited, rest=time.monotonic() - began)
        self._unread.append(report)
        self.progress = msgspec.structs.replace(
            progress,
            step=progress.step + 1,
            cursor=cursor,
            tokens=progress.tokens + report.tokens,
            seconds=self.clock.seconds,
            microbatch=self.stepper.update.lowered,
        )
        if self._deadline is not None:
            self._shorten(self._deadline.steps(self.progress.step, progress.steps))

    def _shorten(self, steps: int) -> None:
        """Lower the number of steps of the run to meet the deadline."""
        if steps < self.progress.steps:
            self.progress = msgspec.structs.replace(self.progress, steps=steps)
            self._phase_ends = _phase_ends(self.recipe, steps)
            if self.monitor:
                self.monitor.steps = steps

    def read(self) -> None:
        """Check and report the step that was launched last, unless that is done."""
        while self._unread:
            report = self._unread.pop()
            self._check(report)
            if self.monitor:
                self.monitor.step(report)

    def _check(self, report: StepReport) -> None:
        """Raise `NumericsError` if a loss or gradient is not finite; note a loss spike.

        Losses are summed over ranks, so all ranks decide alike.
        """
        try:
            with waiting():
                report.check()
        except NumericsError as fault:
            raise blame_ranks(fault, self.ranks, mine=not report.is_mine_finite) from None
        if (median := self._spikes.look(report.loss)) is not None and self._spiked is None:
            self._spiked = f"step {report.step + 1:,}: the loss spiked from {median:.3g} to {report.loss:.3g}"

    def _roll_back(self, spike: str) -> bool:
        """Continue from the newest checkpoint with the text after the spike; False if there is no checkpoint.

        Text that was read between the checkpoint and the spike is skipped. The third spike ends the run.
        """
        self._spiked = None
        if self._rollbacks == MAX_ROLLBACKS:
            raise blame_ranks(
                NumericsError(
                    f"{spike}, after {MAX_ROLLBACKS} rollbacks; resume from the last checkpoint with a lower rate: "
                    "--resume --fork --set optimizer.rate=…"
                ),
                self.ranks,
                mine=False,
            )
        reached, before = self.progress, self.back()
        check_ranks_agree(
            self.ranks, {"the newest checkpoint": before.step if before else None}
        )  # also a barrier: when it returns, every rank has read the checkpoint
        if before is None:
            self._report_spike(f"{spike}; there is no checkpoint yet to roll back to")
            self._spikes = SpikeDetector()  # so that this is reported once
            return False
        self._close()
        self._unread.clear()
        self._rollbacks, self._evaluated = self._rollbacks + 1, before.step
        self._skipped[reached.phase] = reached.cursor
        cursor = self._skipped.get(before.phase, before.cursor)
        self.progress = msgspec.structs.replace(before, cursor=cursor, seconds=reached.seconds)
        self._report_spike(
            f"{spike}; rolled back to step {before.step:,}, skipping the text read since then (rollback "
            f"{self._rollbacks} of {MAX_ROLLBACKS})"
        )
        with busy("saving"):
            self.checkpoint(self.progress)  # the same weights with the new cursor, so that a resume skips the text too
        return True

    def _report_spike(self, line: str) -> None:
        if self.monitor:
            self.monitor.spike(self.progress.step, line)

    def evaluate(self) -> HeldOutScores | None:
        """Held-out scores; None on ranks that do not evaluate, or without held-out text."""
        return self.held_out(self.progress.phase) if self.evaluates else None

    def record(self, scores: HeldOutScores | None) -> None:
        """Report the scores of an evaluation and add them to the loss curve."""
        self._evaluated = self.progress.step
        if self.monitor and scores is not None:
            progress = self.progress
            self.monitor.held_out(progress.step, scores, seen=progress.tokens, seconds=progress.seconds)
            self.progress = add_curve_point(progress, scores)

    def save(self) -> None:
        """Write a checkpoint. After a spike, roll back to an earlier one instead, if there is one."""
        if self._spiked is None or not self._roll_back(self._spiked):
            self.checkpoint(self.progress)

    def _preempted(self) -> Preempted:
        """Save a checkpoint and return the exception that ends the run."""
        self.save()
        return Preempted(
            f"{self.stop.by or 'another rank'} stopped it; saved at step {self.progress.step:,} of "
            f"{self.progress.steps:,}; the same command with --resume continues from there"
        )


def add_curve_point(progress: Progress, result: HeldOutScores) -> Progress:
    """Add a held-out result to the loss curve, if it has a word-prediction loss and a unigram baseline."""
    if result.words not in result.scores or not result.guess_loss:
        return progress
    point = LossCurvePoint(
        step=progress.step,
        tokens=progress.tokens,
        seconds=progress.seconds,
        loss=result.scores[result.words].loss,
        guess=result.guess_loss,
    )
    return msgspec.structs.replace(progress, curve=(*progress.curve, point))


def _phase_ends(recipe: Recipe, steps: int) -> list[int]:
    """The number of steps after which each phase ends, from the start of the run."""
    return list(itertools.accumulate(steps_of_phases(recipe.phases, steps)))


def prefetch(
    items: Iterator[T],
    depth: int = 2,
    *,
    leave: Callable[[], bool] = lambda: False,
    close: Callable[[], None] = lambda: None,
) -> Generator[T, None, None]:
    """Yield the same items, made by a background thread. Errors of the thread are raised here.

    Args:
        items: Iterated only by the thread.
        depth: Most items that wait to be used.
        leave: Checked while no item is ready; true ends the generator.
        close: Called when the generator is closed; must make a thread that waits for an item fail.
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
                items.close()  # on this thread, and not when it is garbage-collected

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
        thread.join(timeout=JOIN_S)  # `close` ends workers at once; a block made in this process may take longer
        if thread.is_alive():
            atexit.register(thread.join, END_S)  # torch aborts a process that ends while a thread runs its code


class SpikeDetector:
    """Detects loss spikes: a few bad batches can undo hours of training although their loss is finite.

    The remedy is PaLM's (Chowdhery et al., 2022): restart from a checkpoint before the spike and skip the batches since
    then. The same batches did no harm at other points of training.

    >>> spikes = SpikeDetector()
    >>> [spikes.look(loss) for loss in (*[2.0] * 16, 9.0, 11.0)][-2:]
    [None, 2.0]
    """

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=SPIKE_WINDOW)

    def look(self, loss: float) -> float | None:
        """The median of recent losses if this loss is a spike, else None. A spike does not enter the median."""
        if len(self._last) >= MIN_STEPS:
            median = statistics.median(self._last)
            if loss > SPIKE_FACTOR * median and loss > median + MIN_RISE:
                return median
        self._last.append(loss)
        return None
