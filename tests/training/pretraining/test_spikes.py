"""Row 29 in one process: a loss that leaps is mended by going back; one that leaps again and again ends the run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from larvatus.core.errors import NumericsError
from larvatus.training.pretraining import loop
from larvatus.training.pretraining.checkpoint import newest_checkpoint
from larvatus.training.pretraining.loop import Pretraining


@contextmanager
def ruined_at(step: int, *, by_text: bool) -> Iterator[None]:
    """The weights are spoilt after that step: each time, or whenever the text of the first time is read."""
    real, ruinous = Pretraining.step, set()

    def ruined(training: Pretraining) -> None:
        real(training)
        if training.progress.step == step and not ruinous:
            ruinous.add(training.progress.cursor)
        if training.progress.cursor in ruinous if by_text else training.progress.step == step:
            with torch.no_grad():
                for parameter in training.stepper.model.parameters():
                    parameter.mul_(300)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pretraining, "step", ruined)
        patch.setattr(loop, "MIN_STEPS", 3)
        yield


def steps_of(run: Path) -> list[int]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line["step"] for line in lines if line["kind"] == "train"]


def test_row_29_the_text_that_did_it_is_left_out_after_a_resume_too(run_small: Any, tmp_path: Path) -> None:
    with ruined_at(5, by_text=True):
        run_small("run", steps=8, save_every=4)
    assert steps_of(tmp_path / "run") == [1, 2, 3, 4, 5, 6, 5, 6, 7, 8]
    run_small("plain", steps=8, save_every=4)
    cursors = []
    for name in ("run", "plain"):
        state = json.loads((tmp_path / name / "checkpoints" / "step-00000004" / "state.json").read_text())["state"]
        cursors.append(state["progress"]["cursor"]["sequence"])
    assert cursors[0] > cursors[1]  # the same step and weights, but the text of the next two is left out
    weights = [load_file(tmp_path / n / "checkpoints/step-00000004/model.safetensors") for n in ("run", "plain")]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def test_row_29_the_third_leap_ends_the_run(run_small: Any, tmp_path: Path) -> None:
    with ruined_at(5, by_text=False), pytest.raises(NumericsError, match=r"the loss spiked from .* after 2 rollbacks"):
        run_small("run", steps=8, save_every=4)
    assert steps_of(tmp_path / "run") == [1, 2, 3, 4, *[5, 6] * 3]
    newest = newest_checkpoint(tmp_path / "run", pytest.fail)
    assert newest is not None
    assert newest.state.progress.step == 4


def test_row_29_before_the_first_checkpoint_it_is_said_and_training_goes_on(run_small: Any, tmp_path: Path) -> None:
    with ruined_at(5, by_text=True):
        run_small("run", steps=8, save_every=100)
    assert steps_of(tmp_path / "run") == list(range(1, 9))
    assert (tmp_path / "run" / "metrics.jsonl").read_text().count("there is no checkpoint yet") == 1
