"""One step: the same whatever the microbatch; no targets count for nothing; nothing unsound reaches the weights."""

import math

import numpy as np
import pytest
import torch

from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.pretraining_targets import MaskedTokens, PairLabels
from larvatus.models.network import Network
from larvatus.training.engine.optimizer import adamw
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.step import Stepper

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
    model = Network.build(recipe.model, recipe.objectives, 50, seed=seed)
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
    groups = found.update.optimizer.param_groups
    assert {g["weight_decay"] for g in groups} == {0.5, 0.0}
    plain = {id(p) for g in groups if g["weight_decay"] == 0.0 for p in g["params"]}
    for name, parameter in found.model.named_parameters():
        assert (id(parameter) in plain) == (name.endswith("bias") or "norm" in name), name


@pytest.mark.parametrize("share", [0.0, 0.25, 4.0])
def test_clipping_shortens_the_gradient_to_the_bound_and_reports_its_true_norm(small_recipe, share):
    """Under plain descent, whose update is as long as its gradient: Adam's would hardly show the clipping."""
    batch, rate = batch_of([30, 7, 12]), 0.5
    loss = stepper(small_recipe(*NO_DROPOUT))(batch, step=0, rate=rate, limit=48)
    norm = loss.gradient
    found = stepper(small_recipe(f"optimizer.clip={share * norm}", *NO_DROPOUT))
    found.update.optimizer = torch.optim.SGD(found.model.parameters(), lr=rate, fused=True)
    before = weights(found)
    report = found(batch, step=0, rate=rate, limit=48)
    assert report.gradient == pytest.approx(norm, rel=1e-5)
    step = torch.cat([(tensor - before[name]).double().flatten() for name, tensor in weights(found).items()])
    kept = share if 0 < share < 1 else 1.0  # a bound of 0 is none; one above the norm changes nothing
    assert float(step.norm()) == pytest.approx(rate * norm * kept, rel=1e-3)


def test_clipping_keeps_the_direction_of_the_whole_gradient(small_recipe):
    batch, steps = batch_of([30, 7, 12]), []
    for clip in (0.0, 0.01):
        found = stepper(small_recipe(f"optimizer.clip={clip}", *NO_DROPOUT))
        found.update.optimizer = torch.optim.SGD(found.model.parameters(), lr=1.0, fused=True)
        before = weights(found)
        found(batch, step=0, rate=1.0, limit=48)
        steps.append(torch.cat([(t - before[name]).double().flatten() for name, t in weights(found).items()]))
    assert float(steps[1].norm()) == pytest.approx(0.01, rel=1e-3)
    assert float(torch.cosine_similarity(*steps, dim=0)) > 0.99999


def test_a_compiled_step_has_one_shape_by_what_its_objectives_expect(small_recipe):
    """Targets that no objective reads are left out, however many there are."""
    batch, limit = batch_of([30, 7, 12, 25, 9, 31, 4]), 48
    recipe = small_recipe()
    tokens = recipe.batch * limit
    found = stepper(recipe)._fixed_shape(batch, limit)
    hidden = math.ceil(1.02 * 0.15 * tokens / 128 + 1) * 128
    assert (found.tokens.size, found.tokens.count) == (tokens, 2 * recipe.batch + 64)
    assert {kind: targets.count for kind, targets in found.targets.items()} == {
        MaskedTokens: hidden,
        PairLabels: 2 * recipe.batch + 64,
    }
    pairs = small_recipe('objectives=[{type="next-sentence"}]')
    many = batch_of([40] * 20, masked_every=1)
    assert set(stepper(pairs)._fixed_shape(many, limit).targets) == {PairLabels}
