"""The loop of every training: steps, evaluations, checkpoints, until it is finished or someone asks to stop.

    done = run_loop(training, stop=stop)      # False: a stop was requested; `training` is whole between two steps

What is trained is given as a `Training`; pretraining (`training/pretraining/loop.py`) and fine-tuning
(`tasks/trainer/trainer.py`) are
two. A step is never left in the middle. An evaluation is, where a signal comes: all is then as it was before it.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Protocol, Self, TypeVar

from larvatus.core.signals import Stop, Stopped
from larvatus.training.engine.ranks import Ranks, busy, steps_finished, waiting

Scores = TypeVar("Scores")


class Clock:
    """Seconds spent in the steps of a run, over all its sessions; evaluating, saving and waiting do not count.

    >>> clock = Clock(60.0)     # of an earlier session
    >>> with clock:
    ...     pass                # training
    >>> round(clock.seconds)
    60
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._counted = seconds
        self._began: float | None = None

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        return self

    def __exit__(self, *fault: object) -> None:
        self._counted, self._began = self.seconds, None

    @property
    def seconds(self) -> float:
        return self._counted + (time.monotonic() - self._began if self._began is not None else 0.0)


class Training(Protocol[Scores]):
    """What the loop drives and checks between two steps."""

    clock: Clock

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do: all steps made and what belongs to them, or no gain any more."""

    @property
    def evaluation_due(self) -> bool:
        """Whether an evaluation belongs after the last step and has not been made."""

    @property
    def save_due(self) -> bool:
        """Whether to save here."""

    def fetch(self) -> bool:
        """Have at hand what the next step reads; False where a stop was requested while it waited for it."""

    def step(self) -> None:
        """Launch an update of the weights."""

    def read(self) -> None:
        """Look at the steps that were launched, and refuse what is not finite: before all that evaluates or saves."""

    def evaluate(self) -> Scores:
        """Score what is held out; this may be left in the middle, so it changes nothing."""

    def record(self, scores: Scores) -> None:
        """Take note of what an evaluation came to."""

    def save(self) -> None:
        """Save the state."""


def run_loop(training: Training[Scores], *, stop: Stop, ranks: Ranks | None = None) -> bool:
    """Train until finished, or until a stop was requested of any rank; whether it is finished."""
    group = ranks or Ranks()
    with stop.noting():
        while not training.finished:
            if not training.evaluation_due:
                if not training.fetch():
                    break
                with training.clock:
                    training.step()
            stopping = group.any(stop.requested)
            if training.evaluation_due and not stopping:
                stopping = not _evaluate(training, stop, alone=group.count == 1)
            if stopping and not training.finished:
                break
            if training.save_due:
                _read(training)
                with busy("saving"):
                    training.save()
        _read(training)
    steps_finished()
    return training.finished


def _read(training: Training[Scores]) -> None:
    with training.clock, waiting():  # for the steps that are under way
        training.read()


def _evaluate(training: Training[Scores], stop: Stop, *, alone: bool) -> bool:
    """Evaluate, unless a signal comes first; whether to continue. Of several ranks none leaves while others wait."""
    _read(training)
    try:
        with busy("evaluating"), stop.at_once() if alone else nullcontext():
            scores = training.evaluate()
    except Stopped:
        return False
    training.record(scores)
    return not (stop.requested and alone)
