"""Decoding of spans against brute force over all sets, and thresholds against counting by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.core.errors import DataError, UsageError
from larvatus.tasks.spans.decoding import (
    THRESHOLDS,
    SpanCandidates,
    calibrate_threshold,
    decode_spans,
    find_candidates,
    log_odds,
)

spans = st.tuples(st.integers(0, 6), st.integers(1, 4)).map(lambda pair: (pair[0], pair[0] + pair[1]))
several = st.lists(spans, max_size=7, unique=True)


def made(places: list[tuple[int, int]], seed: int) -> SpanCandidates:
    draw = np.random.default_rng(seed)
    first, end = np.array(places, np.int64).reshape(-1, 2).T
    return SpanCandidates(first, end, draw.integers(0, 3, len(first)), draw.normal(0.5, 2, len(first)))


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def cross(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[0] < a[1] < b[1] or b[0] < a[0] < b[1] < a[1]


@settings(max_examples=100)
@given(places=several, seed=st.integers(0, 999), threshold=st.sampled_from([0.1, 0.5, 0.8]))
def test_flat_is_the_best_of_all_sets_without_overlap(places, seed, threshold) -> None:
    found = made(places, seed)
    worth = found.margins - log_odds(threshold)
    best = 0.0
    for size in range(len(places) + 1):
        for chosen in itertools.combinations(range(len(places)), size):
            if not any(overlap(places[a], places[b]) for a, b in itertools.combinations(chosen, 2)):
                best = max(best, sum(worth[n] for n in chosen))
    kept = decode_spans(found, "flat", threshold)
    assert not any(overlap(places[a], places[b]) for a, b in itertools.combinations(kept, 2))
    assert math.isclose(worth[kept].sum(), best, abs_tol=1e-9)


@settings(max_examples=100)
@given(places=several, seed=st.integers(0, 999), threshold=st.sampled_from([0.1, 0.5, 0.8]))
def test_nested_keeps_the_surer_of_two_that_cross_and_free_keeps_all(places, seed, threshold) -> None:
    found = made(places, seed)
    sure = [n for n in range(len(places)) if found.scores[n] >= threshold]
    wanted: list[int] = []
    for n in sorted(sure, key=lambda n: -found.margins[n]):
        if not any(cross(places[n], places[other]) for other in wanted):
            wanted.append(n)
    assert sorted(decode_spans(found, "nested", threshold).tolist()) == sorted(wanted)
    assert sorted(decode_spans(found, "free", threshold).tolist()) == sure


def test_united_airlines_stands_inside_united_airlines_holding_and_outer_spans_come_first() -> None:
    found = SpanCandidates(
        np.array([3, 3, 4, 0]), np.array([5, 6, 7, 2]), np.array([0, 0, 1, 1]), np.array([3.0, 2.0, 1.0, 4.0])
    )
    assert decode_spans(found, "nested", 0.5).tolist() == [3, 1, 0]
    assert decode_spans(found, "flat", 0.5).tolist() == [3, 0]
    assert decode_spans(found, "free", 0.5).tolist() == [3, 1, 0, 2]


def test_at_a_half_a_span_is_kept_where_the_argmax_is_a_type() -> None:
    scores = np.random.default_rng(4).normal(0, 2, (200, 4)).astype(np.float32)
    place = np.arange(200)
    found = find_candidates(place, place + 1, scores, temperature=1.7, floor=0.02)
    kept = found.spans(decode_spans(found, "free", 0.5))
    assert kept == [(n, n + 1, int(row.argmax()) - 1) for n, row in enumerate(scores) if row.argmax() > 0]


@pytest.mark.parametrize("decoding", ["flat", "nested", "free"])
def test_thresholds_are_the_best_of_all_that_are_tried(decoding) -> None:
    draw = np.random.default_rng(7)
    texts = [made(list({(int(i), int(i + n)) for i, n in draw.integers(1, 5, (6, 2))}), seed) for seed in range(40)]
    gold = [
        {
            span
            for span, margin in zip(one.spans(np.arange(len(one))), one.margins, strict=True)
            if margin > draw.normal(1, 1)
        }
        for one in texts
    ]

    def worth(threshold: float) -> tuple[float, float]:
        guess = [set(one.spans(decode_spans(one, decoding, threshold))) for one in texts]
        right = sum(len(a & b) for a, b in zip(gold, guess, strict=True))
        precision = right / max(1, sum(map(len, guess)))
        recall = right / sum(map(len, gold))
        return precision, 2 * precision * recall / max(1e-12, precision + recall)

    fitted = calibrate_threshold(texts, gold, decoding)
    assert fitted.f1 == pytest.approx(max(worth(t)[1] for t in THRESHOLDS))
    assert worth(fitted.threshold) == pytest.approx((fitted.precision, fitted.f1))
    sure = calibrate_threshold(texts, gold, decoding, precision=0.9)
    assert sure.precision >= 0.9
    assert all(worth(t)[0] < 0.9 for t in THRESHOLDS if t < sure.threshold)


def test_a_precision_that_cannot_be_had_is_said() -> None:
    found = [SpanCandidates(np.array([0]), np.array([1]), np.array([0]), np.array([1.0]))]
    with pytest.raises(DataError, match=r"no threshold reaches a precision of 0.9 .* request less"):
        calibrate_threshold(found, [{(0, 1, 1)}], "nested", precision=0.9)
    with pytest.raises(UsageError, match="wished precision"):
        calibrate_threshold(found, [{(0, 1, 1)}], "nested", precision=1.5)
