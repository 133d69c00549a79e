"""How fast a training is, and how long it still takes.

speed.per_second(tokens), speed.left(steps)        # over the last steps, pauses left out
pace.left(step, steps)                             # by the clock, all counted in
Deadline(at).steps(step, steps)                    # fewer, where these would not be done by then

Floating-point operations of training, for model FLOP utilisation (MFU; Chowdhery et al. 2022).
"""

from __future__ import annotations

import time

import torch

from larvatus.models.network import Network
from larvatus.models.recipes import Recipe


class Throughput:
    """Tokens a second over the last steps, and the time left; pauses (evaluation, saving) do not count."""

    SMOOTHING = 0.9
    """Weight of the old value in the moving averages."""

    def __init__(self) -> None:
        self._then = time.monotonic()
        self._seconds: float | None = None
        self._tokens: float = 0.0

    def pause(self) -> None:
        self._then = time.monotonic()

    def per_second(self, tokens: int) -> float:
        """After a step of `tokens` tokens."""
        now = time.monotonic()
        took, self._then = now - self._then, now
        if self._seconds is None:
            self._seconds, self._tokens = took, float(tokens)
        else:
            self._seconds = self.SMOOTHING * self._seconds + (1 - self.SMOOTHING) * took
            self._tokens = self.SMOOTHING * self._tokens + (1 - self.SMOOTHING) * tokens
        return self._tokens / max(self._seconds, 1e-9)

    def left(self, steps: int) -> str:
        return time_left(steps * (self._seconds or 0.0))


class RemainingTime:
    """How long the training under way still takes, by the clock: evaluations and checkpoints are counted in."""

    def __init__(self) -> None:
        self._began: tuple[int, float] | None = None
        self._now = (0, 0)

    def left(self, step: int, steps: int) -> str:
        """``17 min left`` at most; nothing before there is something to go by."""
        before, self._now = self._now, (step, steps)
        if self._began is None or step <= before[0] or steps != before[1]:  # the first, or another seed
            self._began = step, time.monotonic()
            return ""
        return time_left((steps - step) * (time.monotonic() - self._began[1]) / (step - self._began[0]))


class Deadline:
    """When a run must end: where it is slower than was planned, because others use the machine, it makes fewer steps.

    What such a run learns depends on the clock; runs that are to be repeated have none.
    """

    FIRST = 5
    """Steps before anything is estimated."""

    def __init__(self, at: float) -> None:
        """`at` as `time.monotonic` gives it."""
        self._at = at
        self._began: tuple[int, float] | None = None

    def steps(self, step: int, steps: int) -> int:
        """How many steps there will be, after `step` of `steps`."""
        now = time.monotonic()
        if self._began is None:
            self._began = step, now
        done = step - self._began[0]
        if done < self.FIRST and now < self._at:
            return steps
        fit = (self._at - now) * done / max(1e-9, now - self._began[1])
        return min(steps, step + max(0, int(fit)))


def time_left(seconds: float) -> str:
    """
    >>> time_left(89), time_left(1_020)
    ('89 s left', '17 min left')
    """
    return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"


# Dense bf16 peaks from the vendors' data sheets; a device that is not listed shows no MFU.
_PEAKS = {
    "B200": 2250e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "A100": 312e12,
    "A40": 150e12,
    "A10": 125e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
}
"""The first whose name is part of the device's name counts."""


def flops_per_token(model: Network, recipe: Recipe, length: int) -> float:
    """Forward and backward of one token: 6 per weight of the blocks, attention to tokens seen, share of the head."""
    generator = model.generator.encoder.flops(length) if model.generator is not None else 0
    head = 6 * recipe.words_per_token * model.encoder.word_vectors.numel()
    return model.encoder.flops(length) + generator + head


def peak_flops(device: str, precision: str = "bf16") -> float | None:
    """What the data sheet of a GPU promises in bf16; None elsewhere, and in other precisions."""
    if not device.startswith("cuda") or precision != "bf16":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for key, peak in _PEAKS.items() if key in name), None)
