"""A whole run with Muon and a masking share that falls: stopped and resumed it ends bit-equal."""

from typing import Any

import pytest

from larvatus.data.corruption import RunPosition
from larvatus.models.recipes import read_recipe, recipe_table
from larvatus.training.pretraining.adapt import _gentler
from tests.faults.test_runs import assert_bit_equal, final_weights
from tests.training.pretraining.stopping import stop_after_saving

SETTINGS = ["optimizer.type=muon", "corruption.first_rate=0.4", "corruption.path=cosine"]


def test_a_run_stopped_in_its_first_phase_ends_as_if_it_had_gone_on(
    run_small: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    courses: list[RunPosition] = []
    with monkeypatch.context() as patched:
        patched.setattr(
            "larvatus.training.pretraining.run.RunPosition",
            lambda **given: courses.append(RunPosition(**given)) or courses[-1],
        )
        whole = run_small("whole", steps=10, save_every=4, settings=SETTINGS)
    assert courses == [
        RunPosition(first=0, steps=10, tokens=16 * 32),
        RunPosition(first=9, steps=10, tokens=16 * 48),
    ]  # phases
    with monkeypatch.context() as patched:
        stop_after_saving(patched, 4)
        with pytest.raises(KeyboardInterrupt):
            run_small("cut", steps=10, save_every=4, settings=SETTINGS)
    resumed = run_small("cut", steps=10, save_every=4, resume=True, settings=SETTINGS)
    assert_bit_equal(final_weights(tmp_path / "whole"), final_weights(tmp_path / "cut"))
    assert resumed == whole


def test_going_on_from_a_model_slows_the_matrices_as_it_slows_the_rest() -> None:
    table = recipe_table(read_recipe("modern"))
    assert "rate 0.0008 → 0.0001" in _gentler(table)
    assert table["optimizer"]["muon_rate"] == pytest.approx(0.02 / 8)
