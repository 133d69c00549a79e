"""Learning-rate schedules: warm-up, then linear, cosine or trapezoid; or by the inverse square root of the step.

rate(step) is a pure function of the step. It rises from 0 over the warm-up, and falls to `floor` × peak at the last
step. By the inverse square root (T5) it stays at the peak over the warm-up, and falls as 1 / √step from there on.
"""

from __future__ import annotations

import math

from larvatus.models.recipes import ScheduleConfig


def learning_rate(config: ScheduleConfig, peak: float, *, step: int, steps: int) -> float:
    """The rate of update number `step` (0 … steps − 1).

    >>> learning_rate(ScheduleConfig(type="linear", warmup=0.1), 1.0, step=10, steps=100)
    1.0
    """
    warmup = config.warmup_steps(steps)
    if config.type == "inverse-square-root":
        share = math.sqrt(max(warmup, 1) / max(step + 1, warmup))
        return peak * (config.floor + (1 - config.floor) * share)
    if step < warmup:
        return peak * (step + 1) / warmup
    left = (steps - step) / max(1, steps - warmup)  # from 1 down to just above 0
    if config.type == "linear":
        share = left
    elif config.type == "cosine":
        share = 0.5 * (1 + math.cos(math.pi * (1 - left)))
    elif config.type == "trapezoid":
        cooldown = max(1, round(config.cooldown * steps))
        share = min(1.0, (steps - step) / cooldown)
    else:
        share = 1.0
    return peak * (config.floor + (1 - config.floor) * share)
