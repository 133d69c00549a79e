"""Adafactor against that of `transformers` and of torch, step by step, and its state there and back."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from larvatus.core.errors import ArtefactError
from larvatus.models.nn.encoder_decoder import EncoderDecoderConfig
from larvatus.models.nn.initialise import initialise
from larvatus.models.recipes import OptimizerConfig, ScheduleConfig
from larvatus.training.engine.adam_variants import Adafactor
from larvatus.training.engine.optimizer import build_optimizer, learning_rate, optimizer_tensors, restore_optimizer

CONFIG = OptimizerConfig(type="adafactor", rate=0.01, beta1=0.0, decay=0.0, clip=0.0)


def small() -> nn.Module:
    """Matrices of several shapes, a vector, and one that begins at zero."""
    model = nn.Module()
    generator = torch.Generator().manual_seed(1)
    for name, shape in {"wide": (4, 9), "tall": (12, 3), "vector": (5,), "zero": (3, 4)}.items():
        drawn = torch.randn(shape, generator=generator)
        model.register_parameter(name, nn.Parameter(drawn * (0.0 if name == "zero" else 0.7)))
    return model


def give_gradients(model: nn.Module, step: int) -> None:
    generator = torch.Generator().manual_seed(100 + step)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator) * 10 ** (step % 3 - 1)


def trained(model: nn.Module, optimizer: Any, steps: range) -> list[Tensor]:
    for step in steps:
        give_gradients(model, step)
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("beta1", [0.0, 0.9])
def test_steps_equal_those_of_transformers(beta1: float) -> None:
    ours, theirs = small(), small()
    config = OptimizerConfig(type="adafactor", rate=0.01, beta1=beta1, decay=0.0)
    other = transformers.Adafactor(
        theirs.parameters(), lr=0.01, beta1=beta1 or None, relative_step=False,
        scale_parameter=True, warmup_init=False,
    )  # fmt: skip
    got = trained(ours, build_optimizer(ours, config), range(12))
    for mine, its in zip(got, trained(theirs, other, range(12)), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-6)


def test_steps_equal_those_of_torch() -> None:
    """Whose rate is never above 1 / √t, and whose ε₁ is that of the precision: no difference here."""
    ours, theirs = small(), small()
    other = torch.optim.Adafactor(theirs.parameters(), lr=0.01, eps=(1e-15, 1e-3), weight_decay=0.0)
    got = trained(ours, build_optimizer(ours, CONFIG), range(12))
    for mine, its in zip(got, trained(theirs, other, range(12)), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-6)


def test_stacked_matrices_are_treated_each_by_itself() -> None:
    whole, parts = nn.Module(), nn.Module()
    drawn = torch.randn(6, 4, generator=torch.Generator().manual_seed(2)) * torch.tensor([1.0] * 3 + [9.0] * 3)[:, None]
    whole.register_parameter("both", nn.Parameter(drawn.clone()))
    for number, part in enumerate(drawn.chunk(2)):
        parts.register_parameter(f"part{number}", nn.Parameter(part.clone()))
    one = Adafactor([{"params": list(whole.parameters())}], 0.1, stacked={whole.both: 2})
    two = Adafactor([{"params": list(parts.parameters())}], 0.1)
    for step in range(4):
        give_gradients(whole, step)
        for parameter, gradient in zip(parts.parameters(), whole.both.grad.chunk(2), strict=True):
            parameter.grad = gradient.clone()
        one.step()
        two.step()
    torch.testing.assert_close(whole.both.detach(), torch.cat([p.detach() for p in parts.parameters()]))


def test_a_state_put_back_goes_on_bit_for_bit_and_is_small() -> None:
    model, again = (EncoderDecoderConfig(layers=1, hidden=16, heads=2, gated=True).build(40) for _ in range(2))
    for network in (model, again):
        initialise(network, seed=1)
    optimizer = build_optimizer(model, CONFIG)
    trained(model, optimizer, range(3))
    again.load_state_dict(model.state_dict())
    state = optimizer_tensors(optimizer, model)
    assert sum(map(torch.numel, state.values())) < 0.3 * sum(p.numel() for p in model.parameters())
    assert state["exp_avg_sq_row/blocks.0.attention.kv.weight"].shape == (2, 16)
    resumed = build_optimizer(again, CONFIG)
    restore_optimizer(resumed, again, state, steps=3)
    for mine, its in zip(trained(again, resumed, range(3, 6)), trained(model, optimizer, range(3, 6)), strict=True):
        assert torch.equal(mine, its)
    state.pop("exp_avg_sq_col/words.weight")
    with pytest.raises(ArtefactError, match=r"exp_avg_sq_col/words.weight"):
        restore_optimizer(resumed, again, state, steps=3)


def test_nothing_changes_where_something_was_not_finite() -> None:
    model = small()
    optimizer = build_optimizer(model, CONFIG)
    before = trained(model, optimizer, range(2))
    kept = {name: tensor.clone() for name, tensor in optimizer_tensors(optimizer, model).items()}
    give_gradients(model, 2)
    model.wide.grad[0, 0] = math.nan
    optimizer.found_inf = torch.ones(())  # type: ignore[attr-defined]
    optimizer.step()
    for old, new in zip(before, model.parameters(), strict=True):
        assert torch.equal(old, new)
    for name, tensor in optimizer_tensors(optimizer, model).items():
        assert torch.equal(kept[name], tensor)


def test_the_rate_stays_and_then_falls_by_the_inverse_square_root() -> None:
    """As published: 1 / √max(n, 10⁴), over 2¹⁹ steps."""
    config, steps = ScheduleConfig(type="inverse-square-root", warmup=10_000 / 2**19, steps=2**19), 2**19
    for number in (1, 5_000, 10_000, 40_000, 2**19):
        rate = learning_rate(config, 0.01, step=number - 1, steps=steps)
        assert rate == pytest.approx(1 / math.sqrt(max(number, 10_000)), rel=1e-9)
