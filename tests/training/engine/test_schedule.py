"""Learning-rate schedules against their formulas, and against `transformers`' linear one."""

import math
import warnings

import pytest
import torch
from transformers import get_linear_schedule_with_warmup

from larvatus.models.recipes import ScheduleConfig
from larvatus.training.engine.optimizer import learning_rate


def rates(steps=200, **settings):
    config = ScheduleConfig(**settings)
    return [learning_rate(config, 2.0, step=step, steps=steps) for step in range(steps)]


def test_linear_equals_transformers_shifted_by_the_step_it_wastes_at_rate_0():
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=2.0)
    theirs = get_linear_schedule_with_warmup(optimizer, 20, 200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it wants an optimizer step first
        wanted = []
        for _ in range(200):
            wanted.append(theirs.get_last_lr()[0])
            theirs.step()
    ours = rates(type="linear", warmup=0.1)
    assert ours[:20] == pytest.approx(wanted[1:21])  # the warm-up starts at 1/20, not at 0
    assert ours[20:] == pytest.approx(wanted[20:])


def test_cosine_is_half_way_down_half_way_through():
    found = rates(type="cosine", warmup=0.0)
    assert found[100] == pytest.approx(2.0 * 0.5 * (1 + math.cos(math.pi / 2)))
    assert found == sorted(found, reverse=True)


def test_a_trapezoid_is_flat_until_the_cooldown():
    found = rates(type="trapezoid", warmup=0.1, cooldown=0.2)
    assert found[:20] == sorted(found[:20])
    assert set(found[20:161]) == {2.0}
    assert found[-1] == pytest.approx(2.0 / 40)


def test_the_floor_is_where_it_ends():
    assert rates(type="linear", warmup=0.0, floor=0.1)[-1] == pytest.approx(2.0 * (0.1 + 0.9 / 200))


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_short_runs_still_move(steps):
    for kind in ("linear", "cosine", "trapezoid", "constant"):
        assert all(rate > 0 for rate in rates(steps=steps, type=kind))


def warmup_steps(steps, **settings):
    """How many steps the rate rises before it first reaches its peak."""
    return rates(steps=steps, type="constant", **settings).index(2.0) + 1


@pytest.mark.parametrize(
    ("steps", "least"),
    [
        (300, 75),  # a quarter of the run: 2% would be six steps
        (1_000, 100),  # the floor itself
        (50_000, 1_000),  # the share, as soon as it gives more
    ],
)
def test_short_runs_warm_up_for_a_floor_of_steps_but_for_no_more_than_a_quarter(steps, least):
    assert warmup_steps(steps, warmup=0.02, warmup_floor=100) == least


def test_no_warmup_stays_none_and_without_a_floor_the_share_decides():
    assert warmup_steps(300, warmup=0.0, warmup_floor=100) == 1
    assert warmup_steps(300, warmup=0.02) == 6
