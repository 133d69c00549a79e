"""A training step on many ranks, simulated: the loader, the backward pass, and the ring that reduces gradients.

    simulate(Step(compute_s=0.2, gradient_bytes=1.3e9), Ring(bandwidth=40e9, latency_s=8e-6), ranks=64)    # seconds

A ring all-reduce sends 2 (n − 1) / n of a bucket through each rank, in 2 (n − 1) hops. Buckets are ready one after the
other while the backward pass runs, on the slowest rank last, and go over the network in that order. A rank begins when
its loader, which works some steps ahead, has the step ready. `benchmarks/scale_arithmetic.py` holds it against what it
measures here, and draws it from 8 to 1,024 ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FORWARD = 1 / 3
"""Of the computation of a step: backward takes twice as long as forward."""
STEPS = 60
"""Simulated; the first tenth fills the loaders, and is not counted."""


@dataclass(frozen=True)
class Ring:
    """How gradients travel."""

    bandwidth: float
    """Bytes a second out of each rank."""
    latency_s: float
    """Of a hop."""
    cores: int | None = None
    """Of the one machine that all ranks are on, whose cores copy; None: a network card of its own for each rank."""

    def seconds(self, size: float, ranks: int) -> float:
        """To reduce `size` bytes over all ranks."""
        if ranks == 1:
            return 0.0
        crowding = 1.0 if self.cores is None else max(1.0, ranks / self.cores)
        return 2 * (ranks - 1) * self.latency_s + 2 * (ranks - 1) / ranks * size / self.bandwidth * crowding


@dataclass(frozen=True)
class Step:
    """What a rank does in a step."""

    compute_s: float
    """Forward and backward, without reductions."""
    gradient_bytes: float
    bucket_bytes: float = 25e6
    update_s: float = 0.0
    jitter: float = 0.0
    """Standard deviation of the logarithm of a rank's time."""
    load_s: float = 0.0
    """For the loader to make a step of this rank."""
    ahead: int = 2
    """Steps that a loader keeps ready."""


def simulate(step: Step, ring: Ring, ranks: int, *, steps: int = STEPS, seed: int = 0) -> float:
    """Seconds of a step, in the mean."""
    random = np.random.default_rng(seed)
    buckets = _buckets(step)
    reduce = [ring.seconds(size, ranks) for size in buckets]
    ready_share = np.cumsum(buckets) / max(1e-30, sum(buckets))
    loaded = np.zeros(ranks)  # when the loader of each rank had its last step ready
    ends: list[float] = [0.0]
    for number in range(steps):
        taken = ends[max(0, number - step.ahead)]  # a place in the queue is free since then
        loaded = np.maximum(loaded, taken) + step.load_s * _noise(random, step.jitter, ranks)
        begins = np.maximum(ends[-1], loaded)
        took = step.compute_s * _noise(random, step.jitter, ranks)
        end = float((begins + took).max())
        sent = 0.0
        for share, seconds in zip(ready_share, reduce, strict=True):
            ready = float((begins + took * (FORWARD + (1 - FORWARD) * share)).max())
            sent = max(sent, ready) + seconds
        ends.append(max(end, sent) + step.update_s)
    first = steps // 10
    return (ends[-1] - ends[first]) / (steps - first)


def _buckets(step: Step) -> list[float]:
    whole, rest = divmod(step.gradient_bytes, step.bucket_bytes)
    return [step.bucket_bytes] * int(whole) + ([rest] if rest else [])


def _noise(random: np.random.Generator, jitter: float, ranks: int) -> npt.NDArray[np.float64]:
    return np.exp(jitter * random.standard_normal(ranks) - jitter**2 / 2)


def fitted(times: dict[float, float], ranks: int, cores: int) -> Ring:
    """The ring of this machine, from the seconds that reductions of some sizes took: least squares."""
    sizes = np.array(list(times))
    slope, start = np.polyfit(sizes, np.array(list(times.values())), 1)
    crowding = max(1.0, ranks / cores)
    bandwidth = 2 * (ranks - 1) / ranks * crowding / slope
    return Ring(bandwidth=float(bandwidth), latency_s=max(0.0, float(start)) / (2 * (ranks - 1)), cores=cores)
