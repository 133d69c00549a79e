"""One step: the same whatever the microbatch; no targets count for nothing; nothing unsound reaches the weights."""

import copy

import numpy as np
import pytest
import torch

from larvatus.batch import MaskedTokens, PairLabels, TokenBatch, TrainingBatch
from larvatus.objectives import Pretraining
from larvatus.train.distribution import Ranks
from larvatus.train.optimizer import adamw
from larvatus.train.settings import Runtime
from larvatus.train.step import Stepper

NO_DROPOUT = ("model.dropout=0.0", "model.attention_dropout=0.0")


def batch_of(lengths, *, masked_every=5, seed=0):
    random = np.random.default_rng(seed)
    tokens = TokenBatch.of([random.integers(5, 50, n).tolist() for n in lengths])
    places = np.arange(1, tokens.size, masked_every)
    return TrainingBatch(
        tokens=tokens,
        targets={
            MaskedTokens: MaskedTokens(places=places, ids=random.integers(5, 50, len(places))),
            PairLabels: PairLabels(labels=random.integers(0, 2, len(lengths))),
        },
    )


def stepper(recipe, *, microbatch=16_384, clip=True, ranks=Ranks(), seed=0):
    model = Pretraining.build(recipe.model, recipe.objectives, 50, seed=seed)
    runtime = Runtime(microbatch=microbatch)
    return Stepper(model, adamw(model, recipe.optimizer), recipe, runtime=runtime, ranks=ranks, seed=1, pad_id=0)


def weights(found):
    return {name: tensor.clone() for name, tensor in found.model.state_dict().items()}


def test_the_microbatch_changes_neither_loss_nor_weights(small_recipe):
    recipe = small_recipe(*NO_DROPOUT)
    batch = batch_of([30, 7, 12, 25, 9, 31, 4])
    whole, cut = stepper(recipe), stepper(recipe, microbatch=32)
    for step in range(3):
        a = whole(batch, step=step, rate=1e-3, limit=48)
        b = cut(batch, step=step, rate=1e-3, limit=48)
        assert a.losses == pytest.approx(b.losses, rel=1e-5)
        assert a.gradient == pytest.approx(b.gradient, rel=1e-4)
    for name, tensor in weights(whole).items():
        torch.testing.assert_close(weights(cut)[name], tensor, rtol=1e-3, atol=2e-5)


def test_a_step_is_a_function_of_its_number_dropout_included(small_recipe):
    recipe = small_recipe("model.dropout=0.3")
    batch = batch_of([30, 7, 12])
    torch.manual_seed(5)
    a = stepper(recipe)(batch, step=3, rate=1e-3, limit=48)
    torch.manual_seed(6)
    before = torch.get_rng_state()
    b = stepper(recipe)(batch, step=3, rate=1e-3, limit=48)
    assert torch.equal(before, torch.get_rng_state())  # nobody's generator was moved
    c = stepper(recipe)(batch, step=4, rate=1e-3, limit=48)
    assert a.losses == b.losses
    assert a.losses != c.losses


def test_norms_and_biases_are_not_decayed(small_recipe):
    recipe = small_recipe("optimizer.decay=0.5", *NO_DROPOUT)
    found = stepper(recipe)
    groups = found.optimizer.param_groups
    assert {g["weight_decay"] for g in groups} == {0.5, 0.0}
    plain = {id(p) for g in groups if g["weight_decay"] == 0.0 for p in g["params"]}
    for name, parameter in found.model.named_parameters():
        assert (id(parameter) in plain) == (name.endswith("bias") or "norm" in name), name


def test_clipping_bounds_the_update_and_reports_the_true_norm(small_recipe):
    batch = batch_of([30, 7, 12])
    free = stepper(small_recipe("optimizer.clip=0", *NO_DROPOUT))
    tight = stepper(small_recipe("optimizer.clip=0.001", *NO_DROPOUT))
    before = copy.deepcopy(weights(free))
    a, b = (s(batch, step=0, rate=1e-3, limit=48) for s in (free, tight))
    assert a.gradient == pytest.approx(b.gradient, rel=1e-5)
    assert any(not torch.equal(tensor, before[name]) for name, tensor in weights(free).items())
