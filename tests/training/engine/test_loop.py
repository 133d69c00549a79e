"""The loop: what it does in which order, and that a signal never leaves a step or a record half done."""

from __future__ import annotations

import time

import pytest

from larvatus.core.signals import Stop, Stopped
from larvatus.training.engine.loop import Clock, run_loop


class Scripted:
    """A training of six steps, evaluated after each second and saved after each third; notes what it is asked to do."""

    def __init__(self, *, dry_after: int | None = None) -> None:
        self.clock, self.done, self.evaluated, self.dry_after = Clock(), 0, 0, dry_after
        self.told: list[str] = []

    @property
    def finished(self) -> bool:
        return self.done >= 6 and not self.evaluation_due

    @property
    def evaluation_due(self) -> bool:
        return self.done % 2 == 0 and self.evaluated < self.done

    @property
    def save_due(self) -> bool:
        return self.done % 3 == 0

    def fetch(self) -> bool:
        return self.done != self.dry_after

    def step(self) -> None:
        self.done += 1
        self.told.append(f"step {self.done}")

    def read(self) -> None:
        self.told.append("read")

    def evaluate(self) -> int:
        self.told.append("evaluate")
        return self.done

    def record(self, scores: int) -> None:
        self.evaluated = scores
        self.told.append("record")

    def save(self) -> None:
        self.told.append("save")


WHOLE = (
    "step 1, step 2, read, evaluate, record, step 3, read, save, step 4, read, evaluate, record, step 5, step 6, "
    "read, evaluate, record, read, save, read"
)


def test_steps_are_read_before_all_that_evaluates_or_saves() -> None:
    training = Scripted()
    assert run_loop(training, stop=Stop())
    assert ", ".join(training.told) == WHOLE


@pytest.mark.parametrize("step", range(1, 7))
def test_a_signal_in_a_step_is_heard_after_it_and_the_rest_is_done_when_it_goes_on(step: int) -> None:
    class Signalled(Scripted):
        def step(self) -> None:
            super().step()
            if self.done == step:
                stop.by = "SIGTERM"

    stop, training = Stop(), Signalled()
    assert not run_loop(training, stop=stop)  # after the last step its evaluation is still owed
    assert training.done == step
    assert training.told[-1] == "read"
    assert training.evaluation_due == (step % 2 == 0)
    assert run_loop(training, stop=Stop())
    done = [word for word in training.told if word != "read"]
    assert [word for word in done if word != "save"] == [
        word for word in WHOLE.split(", ") if word not in ("read", "save")
    ]


def test_an_evaluation_is_left_in_the_middle_and_nothing_of_it_is_recorded() -> None:
    class Interrupted(Scripted):
        def evaluate(self) -> int:
            if stop is first:
                stop.by = "SIGTERM"
                raise Stopped(stop.by)  # as the handler of signals does outside of `noting`
            return super().evaluate()

    first = stop = Stop()
    training = Interrupted()
    assert not run_loop(training, stop=stop)
    assert (training.done, training.evaluated) == (2, 0)
    stop = Stop()
    assert run_loop(training, stop=stop)
    assert training.told.count("record") == 3


def test_where_it_waits_for_text_in_vain_it_is_not_finished() -> None:
    training = Scripted(dry_after=3)
    assert not run_loop(training, stop=Stop())
    assert training.done == 3


def test_the_clock_goes_on_where_it_stood_and_counts_what_is_inside_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([10.0, 12.0, 13.0, 100.0, 101.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    clock = Clock(5.0)
    with clock:
        assert clock.seconds == 7.0
    with clock:
        pass
    assert clock.seconds == 9.0
