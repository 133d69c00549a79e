"""The simulation of many ranks against rings and steps worked out by hand, and against what was measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from scale_simulation import FORWARD, Ring, Step, fitted, simulate

RING = Ring(bandwidth=1e9, latency_s=1e-4)


def passed_round(size: float, ranks: int, ring: Ring) -> float:
    """A ring chunk by chunk: each hop sends one of n parts, n − 1 times to add up and n − 1 times to tell all."""
    clock = 0.0
    for _ in range(2):
        for _ in range(ranks - 1):
            clock += ring.latency_s + size / ranks / ring.bandwidth
    return clock


@pytest.mark.parametrize("ranks", [2, 3, 8, 1024])
def test_the_ring_is_what_passing_parts_round_takes(ranks: int) -> None:
    assert RING.seconds(5e7, ranks) == pytest.approx(passed_round(5e7, ranks, RING))


def test_a_reduction_hides_behind_the_backward_pass_or_does_not() -> None:
    quick = simulate(Step(compute_s=1.0, gradient_bytes=100e6, bucket_bytes=25e6), RING, 4)
    assert quick == pytest.approx(1.0 + RING.seconds(25e6, 4))  # all but the last bucket
    slow = simulate(Step(compute_s=0.03, gradient_bytes=100e6, bucket_bytes=25e6), RING, 4)
    first = 0.03 * (FORWARD + (1 - FORWARD) / 4)
    assert slow == pytest.approx(first + 4 * RING.seconds(25e6, 4))
    assert simulate(Step(compute_s=0.1, gradient_bytes=100e6, load_s=0.5), RING, 4) == pytest.approx(0.5)


def test_a_machine_is_fitted_from_two_processes() -> None:
    here = Ring(bandwidth=2e9, latency_s=2e-4, cores=2)
    again = fitted({size: here.seconds(size, 2) for size in (1e6, 4e6, 16e6)}, 2, 2)
    assert again.bandwidth == pytest.approx(here.bandwidth)
    assert again.latency_s == pytest.approx(here.latency_s)
    assert again.seconds(16e6, 4) == pytest.approx(here.seconds(16e6, 4))
