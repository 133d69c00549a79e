"""Faults of numerics (rows 27, 28, 31, 32) in one process; `test_runs.py` has them over two ranks."""

import dataclasses

import numpy as np
import pytest
import torch

from larvatus.core.errors import NumericsError
from larvatus.core.pretraining_targets import MaskedTokens
from tests.training.engine.test_step import NO_DROPOUT, batch_of, stepper, weights


def test_row_31_a_microbatch_without_targets_counts_for_nothing(small_recipe):
    recipe = small_recipe(*NO_DROPOUT, "objectives.next-sentence.weight=0")
    lengths = [20, 20]
    full = batch_of(lengths)
    first = full.targets[MaskedTokens].places < 20
    masked = full.targets[MaskedTokens]
    lame = dataclasses.replace(
        full,
        targets={
            **full.targets,
            MaskedTokens: MaskedTokens(places=masked.places[first], ids=masked.ids[first]),
        },
    )
    alone = stepper(recipe)(lame.cut(0, 1), step=0, rate=1e-3, limit=48)
    together = stepper(recipe, microbatch=20)(lame, step=0, rate=1e-3, limit=48)
    assert together.losses["masked-lm"] == pytest.approx(alone.losses["masked-lm"], rel=1e-5)
    assert np.isfinite(together.gradient)


def test_row_32_two_deterministic_runs_are_equal(small_recipe):
    batch = batch_of([30, 7, 12])
    pair = [stepper(small_recipe()) for _ in range(2)]
    for found in pair:
        for step in range(4):
            found(batch, step=step, rate=1e-3, limit=48)
    for name, tensor in weights(pair[0]).items():
        assert torch.equal(tensor, weights(pair[1])[name]), name


def test_row_27_a_loss_that_is_not_finite_stops_before_the_update(small_recipe):
    found = stepper(small_recipe())
    with torch.no_grad():
        found.model.objectives["masked-lm"].bias[7] = float("nan")
    before = weights(found)
    with pytest.raises(NumericsError, match=r"step 3: masked-lm loss nan.*the weights were not touched"):
        found(batch_of([30, 7]), step=2, rate=1e-3, limit=48).check()
    with torch.no_grad():
        found.model.objectives["masked-lm"].bias[7] = 0.0
    found(batch_of([30, 7]), step=3, rate=1e-3, limit=48)  # launched before anyone looked: it must not move them either
    before["objectives.masked-lm.bias"][7] = 0.0
    for name, tensor in weights(found).items():
        assert torch.equal(tensor, before[name])


def test_row_28_a_gradient_that_is_not_finite_stops_before_the_update(small_recipe):
    found = stepper(small_recipe())
    found.model.encoder.embeddings.words.weight.register_hook(lambda grad: grad * float("inf"))
    before = weights(found)
    with pytest.raises(NumericsError, match="gradient norm"):
        found(batch_of([30, 7]), step=0, rate=1e-3, limit=48).check()
    for name, tensor in weights(found).items():
        assert torch.equal(tensor, before[name])
