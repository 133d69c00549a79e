"""LAMB against the equations of the paper, computed one number at a time in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from larvatus.core.errors import NumericsError
from larvatus.models.network import Network
from larvatus.models.nn import Transformer, TransformerConfig, initialise
from larvatus.models.recipes import OptimizerConfig
from larvatus.training.engine.adam_variants import Lamb
from larvatus.training.engine.optimizer import build_optimizer, optimizer_tensors, restore_optimizer
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.step import Stepper
from tests.training.engine.test_step import NO_DROPOUT, batch_of

CONFIG = OptimizerConfig(type="lamb", rate=0.02, beta1=0.8, beta2=0.95, epsilon=1e-3, decay=0.1)


class Small(nn.Module):
    """A matrix, one that begins at zero, a bias and a norm."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        random = np.random.default_rng(3)
        for name, shape in {"matrix": (4, 3), "zero": (2, 3), "bias": (4,), "norm": (3,)}.items():
            start = np.zeros(shape) if name == "zero" else random.normal(size=shape)
            self.register_parameter(name, nn.Parameter(torch.from_numpy(start).to(dtype)))


def give_gradients(model: nn.Module, step: int) -> dict[str, Any]:
    random = np.random.default_rng((7, step))
    gradients = {name: random.normal(size=tuple(p.shape)) for name, p in model.named_parameters()}
    if step == 0:
        gradients["zero"] *= 0  # the first update of a zero matrix is zero: both norms are
    for name, parameter in model.named_parameters():
        parameter.grad = torch.from_numpy(gradients[name]).to(parameter.dtype)
    return gradients


def naive(weights: dict[str, Any], steps: int, gradients: list[dict[str, Any]]) -> dict[str, Any]:
    """Algorithm 2 of You et al., number by number."""
    c = CONFIG
    moments = {name: [[0.0, 0.0] for _ in range(w.size)] for name, w in weights.items()}
    for t in range(1, steps + 1):
        for name, w in weights.items():
            matrix, update = w.ndim == 2, []
            for i, (x, g) in enumerate(zip(w.flat, gradients[t - 1][name].flat, strict=True)):
                m, v = moments[name][i]
                m, v = c.beta1 * m + (1 - c.beta1) * g, c.beta2 * v + (1 - c.beta2) * g * g
                moments[name][i] = [m, v]
                r = (m / (1 - c.beta1**t)) / (math.sqrt(v / (1 - c.beta2**t)) + c.epsilon)
                update.append(r + (c.decay * x if matrix else 0.0))
            size, length = (math.sqrt(sum(x * x for x in xs)) for xs in (list(w.flat), update))
            ratio = size / length if matrix and size > 0 and length > 0 else 1.0
            weights[name] = np.array([x - c.rate * ratio * u for x, u in zip(w.flat, update, strict=True)]).reshape(
                w.shape
            )
    return weights


def test_20_steps_equal_the_papers_equations() -> None:
    model = Small()
    start = {name: p.detach().numpy().copy() for name, p in model.named_parameters()}
    before = {name: array.copy() for name, array in start.items()}
    optimizer = build_optimizer(model, CONFIG)
    gradients = []
    for step in range(20):
        gradients.append(give_gradients(model, step))
        optimizer.step()
    for name, wanted in naive(start, 20, gradients).items():
        np.testing.assert_allclose(model.get_parameter(name).detach().numpy(), wanted, rtol=1e-9)
        assert np.abs(wanted - before[name]).max() > 0.01


def apart(name: str, array: Any) -> dict[str, Any]:
    """A parameter as the matrices of the papers: query, key and value, the two halves of a gated layer."""
    if name.endswith("qkv.weight"):
        return dict(zip([f"{name}/{part}" for part in ("query", "key", "value")], np.split(array, 3), strict=True))
    if name.endswith("up.weight"):
        return dict(zip([f"{name}/{part}" for part in ("in", "gate")], np.split(array, 2), strict=True))
    return {name: array}


def test_query_key_and_value_have_ratios_of_their_own_and_so_have_the_halves_of_a_gated_layer() -> None:
    """A whole gated encoder in float64, against the equations over the matrices that the papers name."""
    config = TransformerConfig(layers=1, hidden=6, heads=2, max_positions=8, gated=True, norm="pre")
    model = Transformer(config, vocabulary=9).double()
    initialise(model, seed=1, std=0.3)
    with torch.no_grad():  # so unlike each other that one ratio for all would be far off
        for block in model.blocks:
            block.attention.qkv.weight.mul_(torch.repeat_interleave(torch.tensor([1.0, 5.0, 0.1]), 6)[:, None])
            block.feedforward.up.weight.chunk(2)[1].mul_(7)
    start = {
        n: array for name, p in model.named_parameters() for n, array in apart(name, p.detach().numpy().copy()).items()
    }
    optimizer = build_optimizer(model, CONFIG)
    gradients: list[dict[str, Any]] = []
    for step in range(5):
        random = np.random.default_rng((7, step))
        gradients.append({})
        for name, parameter in model.named_parameters():
            drawn = random.normal(size=tuple(parameter.shape))
            parameter.grad = torch.from_numpy(drawn)
            gradients[-1].update(apart(name, drawn))
        optimizer.step()
    wanted = naive(start, 5, gradients)
    assert sum("qkv.weight" in name or "up.weight" in name for name in wanted) == 5
    for name, parameter in model.named_parameters():
        for part, array in apart(name, parameter.detach().numpy()).items():
            np.testing.assert_allclose(array, wanted[part], rtol=1e-9, atol=1e-12, err_msg=part)


def test_a_matrix_moves_in_proportion_to_its_norm_and_a_vector_does_not() -> None:
    moved = {}
    for scale in (1.0, 10.0):
        model = Small()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(scale)
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        give_gradients(model, 1)
        optimizer = build_optimizer(model, OptimizerConfig(type="lamb", rate=0.01, decay=0.0))
        optimizer.step()
        moved[scale] = {name: float((p.detach() - before[name]).norm()) for name, p in model.named_parameters()}
        assert moved[scale]["matrix"] == pytest.approx(0.01 * float(before["matrix"].norm()))
    assert moved[10.0]["matrix"] == pytest.approx(10 * moved[1.0]["matrix"])
    assert moved[10.0]["bias"] == pytest.approx(moved[1.0]["bias"])


def test_resumed_after_any_step_it_ends_bit_equal() -> None:
    whole = Small(torch.float32)
    optimizer = build_optimizer(whole, CONFIG)
    kept: Any = None
    for step in range(9):
        if step == 4:
            kept = (
                {name: tensor.clone() for name, tensor in whole.state_dict().items()},
                {name: tensor.clone() for name, tensor in optimizer_tensors(optimizer, whole).items()},
            )
        give_gradients(whole, step)
        optimizer.step()
    again = Small(torch.float32)
    again.load_state_dict(kept[0])
    resumed = build_optimizer(again, CONFIG)
    restore_optimizer(resumed, again, kept[1], steps=4)
    for step in range(4, 9):
        give_gradients(again, step)
        resumed.step()
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_a_step_with_found_inf_leaves_weights_moments_and_count() -> None:
    """Where it is the first, where a weight is itself not finite, and where all is well afterwards."""
    plain, guarded = Small(torch.float32), Small(torch.float32)
    optimizers = [build_optimizer(model, CONFIG) for model in (plain, guarded)]
    unsound = optimizers[1]
    for step in range(6):
        if step in (0, 3):
            give_gradients(guarded, step)
            for parameter in guarded.parameters():
                assert parameter.grad is not None
                parameter.grad[0] = math.nan
                parameter.grad[1] = math.inf
            before = {name: tensor.clone() for name, tensor in guarded.state_dict().items()}
            assert isinstance(unsound, Lamb)
            unsound.found_inf = torch.tensor(1.0)
            with torch.no_grad():
                guarded.matrix[0, 0] = before["matrix"][0, 0] = math.nan
                unsound.step()
            assert all(
                torch.equal(tensor.nan_to_num(9), before[name].nan_to_num(9))
                for name, tensor in guarded.state_dict().items()
            )
            with torch.no_grad():
                guarded.matrix[0, 0] = plain.matrix[0, 0]
            unsound.found_inf = torch.tensor(0.0)
        for model, optimizer in zip((plain, guarded), optimizers, strict=True):
            give_gradients(model, step)
            optimizer.step()
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, guarded.state_dict()[name]), name
    for name, tensor in optimizer_tensors(optimizers[0], plain).items():
        assert torch.equal(tensor, optimizer_tensors(unsound, guarded)[name]), name


def lamb_stepper(recipe: Any) -> Stepper:
    model = Network.build(recipe.model, recipe.objectives, 50, seed=0)
    optimizer = build_optimizer(model, recipe.optimizer)
    return Stepper(model, optimizer, recipe, runtime=Runtime(), ranks=Ranks(), seed=1, pad_id=0)


def test_a_recipe_with_lamb_steps_deterministically_and_stops_before_what_is_not_finite(small_recipe: Any) -> None:
    recipe = small_recipe("optimizer.type=lamb", *NO_DROPOUT)
    pair = [lamb_stepper(recipe) for _ in range(2)]
    for found in pair:
        assert isinstance(found.update.optimizer, Lamb)
        losses = [found(batch_of([30, 7, 12]), step=s, rate=1e-2, limit=48).losses["masked-lm"] for s in range(6)]
        assert losses[-1] < losses[0] - 0.1
    ours, same = (found.model.state_dict() for found in pair)
    assert all(torch.equal(tensor, same[name]) for name, tensor in ours.items())
    pair[0].model.encoder.embeddings.words.weight.register_hook(lambda gradient: gradient * math.inf)
    before = {name: tensor.clone() for name, tensor in ours.items()}
    with pytest.raises(NumericsError, match="gradient norm"):
        pair[0](batch_of([30, 7]), step=6, rate=1e-2, limit=48).check()
    assert all(torch.equal(tensor, before[name]) for name, tensor in pair[0].model.state_dict().items())


def test_which_weights_have_a_ratio_and_decay(small_recipe: Any) -> None:
    found = lamb_stepper(small_recipe("optimizer.type=lamb"))
    groups = found.update.optimizer.param_groups
    adapted = {id(p) for g in groups if g["adapt"] for p in g["params"]}
    assert [(g["adapt"], g["weight_decay"]) for g in groups] == [
        (True, 0.01),
        (False, 0.0),
    ]
    for name, parameter in found.model.named_parameters():
        assert (id(parameter) not in adapted) == (name.endswith("bias") or "norm" in name), name
