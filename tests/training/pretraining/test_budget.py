"""Minutes into steps: what a run would take, whatever else a step that is timed has to wait for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from larvatus.models.recipes import read_recipe
from larvatus.training.pretraining import budget


class Steps:
    """Stands in for stepper and loader: each step takes `usual` seconds of a clock of its own, some take longer."""

    def __init__(self, usual: float, longer: dict[int, float]) -> None:
        self.now, self.taken = 0.0, count()
        self.usual, self.longer = usual, longer
        self.update = SimpleNamespace(ranks=SimpleNamespace(any=bool))

    def monotonic(self) -> float:
        return self.now

    def read(self, loader: Any) -> Iterator[tuple[int, None]]:
        return ((number, None) for number in count())

    def prepare(self, batch: int, *, limit: int) -> int:
        return batch

    def launch(self, ready: int, *, step: int, rate: float) -> Any:
        self.now += self.longer.get(next(self.taken), self.usual)
        return SimpleNamespace(check=lambda: None)

    def close(self) -> None:
        """Of the loader."""


@pytest.mark.parametrize("longer", [{}, {0: 40.0}, {2: 9.0}, {30: 9.0}])
def test_a_step_that_compiles_does_not_count_for_all(longer: dict[int, float], monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(0.06, longer)
    monkeypatch.setattr(budget, "time", steps)
    recipe = read_recipe("modern", settings=["phases=[{share = 1.0, length = 128}]"])
    fitting = budget.steps_of_minutes(recipe, 20, stepper=steps, loader=lambda number: steps, began=0.0)  # type: ignore[arg-type, return-value]
    assert fitting * 0.06 == pytest.approx(20 * 60 * budget.RESERVE - steps.now, abs=0.07)


def test_slow_steps_are_timed_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(5.0, {})
    monkeypatch.setattr(budget, "time", steps)
    recipe = read_recipe("modern", settings=["phases=[{share = 1.0, length = 128}]"])
    fitting = budget.steps_of_minutes(recipe, 2, stepper=steps, loader=lambda number: steps, began=0.0)  # type: ignore[arg-type, return-value]
    assert (fitting, next(steps.taken)) == (int((2 * 60 * budget.RESERVE - 25) / 5), 5)
