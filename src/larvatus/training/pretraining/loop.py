"""Pretraining's use of the loop: phases, steps looked at one later, held-out scores along the way, checkpoints.

    progress = Pretraining(recipe=recipe, progress=Progress(steps=1_000), stepper=stepper, …).run()

What decides the result is in the recipe, the corpus and the seed; what changes over time is in `progress`.
"""

from __future__ import annotations

import atexit
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
from larvatus.training.engine.rank_activity import busy, waiting
from larvatus.training.engine.ranks import Ranks, blame_ranks, check_ranks_agree
from larvatus.training.engine.settings import Runtime
from larvatus.training.engine.throughput import Deadline
from larvatus.training.pretraining.checkpoint import LossCurvePoint, Progress
from larvatus.training.pretraining.evaluation import HeldOutScores
from larvatus.training.pretraining.monitor import Monitor
from larvatus.training.pretraining.step import PreparedStep, Step, Stepper, StepReport

T = TypeVar("T")
JOIN_S = 2.0
END_S = 600.0
"""How long the end of Python waits for a thread that is still making a block."""
SPIKE_FACTOR = 5.0
"""A loss this many times the usual one is a spike."""
MIN_RISE = 1.0
"""And how far above it, at least: small losses of small batches leap all the time."""
SPIKE_WINDOW = 64
"""Steps whose median is the usual loss."""
MIN_STEPS = 16
"""Steps that must have been seen before anything is usual."""
MAX_ROLLBACKS = 2
"""Rollbacks of one run, after which it ends."""


@dataclass(kw_only=True)
class Pretraining:
    """What the steps of a run call, and how far they have come."""

    recipe: Recipe
    runtime: Runtime
    ranks: Ranks
    stepper: Stepper
    loader: Callable[[int], Loader]
    """The loader of a phase."""
    held_out: Callable[[int], HeldOutScores | None]
    """Held-out scores at the length of a phase."""
    checkpoint: Callable[[Progress], None]
    """Writes a checkpoint."""
    back: Callable[[], Progress | None]
    """Puts weights and moments back to the newest checkpoint, and returns its progress; None where there is none."""
    monitor: Monitor | None
    """None on all ranks but the main one, which reports."""
    evaluates: bool
    """Whether this rank evaluates: the main one, or all where each has a part of the weights."""
    stop: Stop
    evaluate_every: int
    save_every: int
    progress: Progress
    deadline: float | None = None
    """When it must end, with fewer steps if need be; only for a single process."""

    def __post_init__(self) -> None:
        self.clock = Clock(self.progress.seconds)
        self._deadline = None if self.deadline is None else Deadline(self.deadline)
        self._evaluated = self.progress.step
        self._batches: Generator[tuple[PreparedStep, Cursor], None, None] | None = None
        self._fetched: tuple[PreparedStep, Cursor] | None = None
        self._waited = 0.0
        self._ends = _ends(self.recipe, self.progress.steps)
        self._unread: list[StepReport] = []
        """The step that was launched and not yet looked at."""
        self._spikes, self._rollbacks = SpikeDetector(), 0
        self._spiked: str | None = None
        """What there is to say of a loss that leapt, until it is mended."""
        self._skipped: dict[int, Cursor] = {}
        """Cursors at which phases continue after a rollback."""

    def run(self) -> Progress:
        """From `progress` to the last step."""
        try:
            if not run_loop(self, stop=self.stop, ranks=self.ranks):
                with self.stop.noting():
                    left = self._left()
                    left.on_all_ranks = True
                    raise left
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
        """The batch of the next step; a phase reads the corpus from the start, in an order of its own."""
        if self._spiked is not None:
            self._roll_back(self._spiked)
        phase = next(number for number, end in enumerate(self._ends) if self.progress.step < end)
        if phase != self.progress.phase:
            self._close()
            self.progress = msgspec.structs.replace(
                self.progress, phase=phase, cursor=self._skipped.get(phase, Cursor())
            )
        if self._batches is None:
            loader = self.loader(phase)
            steps = self._ready(self.stepper.read(loader, self.progress.cursor), limit=self.recipe.phases[phase].length)
            self._batches = prefetch(steps, leave=self._may_leave, close=loader.close)
        began = time.monotonic()
        self._fetched = next(self._batches, None)
        self._waited = time.monotonic() - began
        return self._fetched is not None

    def _ready(
        self, steps: Iterator[tuple[Step, Cursor]], *, limit: int
    ) -> Generator[tuple[PreparedStep, Cursor], None, None]:
        """Steps on their device: this runs on the thread of `prefetch`."""
        with closing(steps) if isinstance(steps, Generator) else nullcontext():
            for batch, cursor in steps:
                yield self.stepper.prepare(batch, limit=limit), cursor

    def _may_leave(self) -> bool:
        """Whether to stop between two steps, before all ranks have agreed on it: not where others would wait."""
        return self.stop.requested and self.ranks.count == 1

    def _close(self) -> None:
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def step(self) -> None:
        assert self._fetched is not None
        recipe, progress, (ready, cursor) = self.recipe, self.progress, self._fetched
        began, self._fetched = time.monotonic(), None
        rate = learning_rate(recipe.schedule, recipe.optimizer.rate, step=progress.step, steps=progress.steps)
        report = self.stepper.launch(ready, step=progress.step, rate=rate)
        self.read()  # the step before this one, while this one is under way
        report.waits(self._waited, beside=time.monotonic() - began)
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
        if steps < self.progress.steps:
            self.progress = msgspec.structs.replace(self.progress, steps=steps)
            self._ends = _ends(self.recipe, steps)
            if self.monitor:
                self.monitor.steps = steps

    def read(self) -> None:
        """Check and show the step that was launched last."""
        while self._unread:
            report = self._unread.pop()
            self._check(report)
            if self.monitor:
                self.monitor.step(report)

    def _check(self, report: StepReport) -> None:
        """Refuse what is not finite, on all ranks at once: losses are sums over them. Take note of one that leaps."""
        try:
            with waiting():
                report.check()
        except NumericsError as fault:
            raise blame_ranks(fault, self.ranks, mine=not report.is_mine_finite) from None
        if (usual := self._spikes.look(report.loss)) is not None and self._spiked is None:
            self._spiked = f"step {report.step + 1:,}: the loss leapt from {usual:.3g} to {report.loss:.3g}"

    def _roll_back(self, spike: str) -> bool:
        """Go on from the newest checkpoint, if any, with the text after the leap; the third time it is no accident."""
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
        )  # and none reads it any longer
        if before is None:
            self._say(f"{spike}; there is no checkpoint yet to go back to")
            self._spikes = SpikeDetector()  # once is enough
            return False
        self._close()
        self._unread.clear()
        self._rollbacks, self._evaluated = self._rollbacks + 1, before.step
        self._skipped[reached.phase] = reached.cursor
        cursor = self._skipped.get(before.phase, before.cursor)
        self.progress = msgspec.structs.replace(before, cursor=cursor, seconds=reached.seconds)
        self._say(
            f"{spike}; back to step {before.step:,}, and on with the text after it (rollback {self._rollbacks} of "
            f"{MAX_ROLLBACKS})"
        )
        with busy("saving"):
            self.checkpoint(self.progress)  # the same weights, but what is left out
        return True

    def _say(self, line: str) -> None:
        if self.monitor:
            self.monitor.spike(self.progress.step, line)

    def evaluate(self) -> HeldOutScores | None:
        return self.held_out(self.progress.phase) if self.evaluates else None

    def record(self, scores: HeldOutScores | None) -> None:
        self._evaluated = self.progress.step
        if self.monitor and scores is not None:
            progress = self.progress
            self.monitor.held_out(progress.step, scores, seen=progress.tokens, seconds=progress.seconds)
            self.progress = add_curve_point(progress, scores)

    def save(self) -> None:
        if self._spiked is None or not self._roll_back(self._spiked):  # nobody wants weights after a leap
            self.checkpoint(self.progress)

    def _left(self) -> Preempted:
        """Save the state; the exception to end with."""
        self.save()
        return Preempted(
            f"{self.stop.by or 'another rank'} stopped it; saved at step {self.progress.step:,} of "
            f"{self.progress.steps:,}; the same command with --resume continues from there"
        )


def add_curve_point(progress: Progress, result: HeldOutScores) -> Progress:
    """Keep a held-out result for the curve, where words are predicted and there is something to hold that against."""
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


def _ends(recipe: Recipe, steps: int) -> list[int]:
    """The step at which each phase ends."""
    ends, passed = [], 0
    for count in steps_of_phases(recipe.phases, steps):
        passed += count
        ends.append(passed)
    return ends


def prefetch(
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
        thread.join(timeout=JOIN_S)  # what a worker makes ends with it; a block made in this process may take longer
        if thread.is_alive():
            atexit.register(thread.join, END_S)  # torch aborts a process that ends while a thread runs its code


class SpikeDetector:
    """Detects a loss that leaps: a few bad batches may undo hours of training, without being infinite.

    The remedy is PaLM's (Chowdhery et al., 2022): go back to a checkpoint from before, and skip the data between that
    and the leap; the same data elsewhere in training does no harm.

    >>> spikes = SpikeDetector()
    >>> [spikes.look(loss) for loss in (*[2.0] * 16, 9.0, 11.0)][-2:]
    [None, 2.0]
    """

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=SPIKE_WINDOW)

    def look(self, loss: float) -> float | None:
        """The usual loss, where this one is a spike; it then counts for nothing."""
        if len(self._last) >= MIN_STEPS:
            usual = statistics.median(self._last)
            if loss > SPIKE_FACTOR * usual and loss > usual + MIN_RISE:
                return usual
        self._last.append(loss)
        return None
