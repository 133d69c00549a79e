"""Coreference scores against naive ones, worked examples and figures of the reference scorer; assignment with scipy."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from larvatus.metrics.coreference import (
    METRICS,
    Clusters,
    conll_score,
    coreference_counts,
    coreference_f1,
    largest_assignment,
    without_singletons,
)


@st.composite
def clusterings(draw: st.DrawFn) -> list[list[int]]:
    """Some of twelve mentions in clusters."""
    owners = draw(st.lists(st.integers(0, 5), min_size=12, max_size=12))
    clusters = [[mention for mention, owner in enumerate(owners) if owner == number] for number in range(1, 6)]
    return [cluster for cluster in clusters if cluster]


def naive_recall(gold: Clusters, found: Clusters) -> dict[str, tuple[float, float]]:
    """Sum and total of recall by the definitions: sets, links and all assignments."""
    golds, founds = [set(c) for c in gold], [set(c) for c in found]
    mentions = {m for c in golds for m in c}
    known = {m for c in founds for m in c}
    parts = [len({next((n for n, f in enumerate(founds) if m in f), -1 - k) for k, m in enumerate(c)}) for c in golds]
    muc = sum(len(c) - part for c, part in zip(golds, parts, strict=True)), sum(len(c) - 1 for c in golds)
    own = {m: c for c in golds for m in c}
    other = {m: c for c in founds for m in c}
    b3 = sum(len(own[m] & other.get(m, set())) / len(own[m]) for m in mentions), len(mentions)

    def links(c: set[object]) -> set[frozenset[object]]:
        return {frozenset(pair) for pair in itertools.combinations(c, 2)} if len(c) > 1 else {frozenset(c)}

    all_links = set().union(*map(links, founds)) if founds else set()
    lea = sum(len(c) * len(links(c) & all_links) / len(links(c)) for c in golds), len(mentions)
    wide = [*founds, *[set()] * len(golds)]
    best = 0.0
    if len(golds) <= 4:
        best = max(
            sum(2 * len(a & b) / (len(a) + len(b)) for a, b in zip(golds, order, strict=False))
            for order in itertools.permutations(wide, len(golds))
        )
    return {
        "muc": muc,
        "b3": b3,
        "ceafe": (best, len(golds)),
        "lea": lea,
        "mention": (len(mentions & known), len(mentions)),
    }


@settings(max_examples=60)
@given(gold=clusterings(), found=clusterings())
def test_all_scores_are_those_of_their_definitions(gold: list[list[int]], found: list[list[int]]) -> None:
    counts = coreference_counts(gold, found)
    for side, naive in ((counts[:, :2], naive_recall(gold, found)), (counts[:, 2:], naive_recall(found, gold))):
        for number, name in enumerate(METRICS):
            if name == "ceafe" and max(len(gold), len(found)) > 4:
                continue
            assert side[number].tolist() == pytest.approx(list(naive[name])), name


KEY: Clusters = ["ab", "cde", "fgh", "i"]
RESPONSE: Clusters = ["ab", "cd", "efgh", "jk", "l"]
REFERENCE = {
    True: {"muc": 0.727273, "b3": 0.657396, "ceafe": 0.590476, "lea": 0.6, "mention": 0.8},
    False: {"muc": 0.727273, "b3": 0.730337, "ceafe": 0.759184, "lea": 0.666667, "mention": 0.888889},
}
"""F1 of these clusters by the reference implementation of Moosavi & Strube."""


@pytest.mark.parametrize("singletons", [True, False])
def test_a_document_has_the_scores_of_the_reference_scorer(*, singletons: bool) -> None:
    key, response = (KEY, RESPONSE) if singletons else (without_singletons(KEY), without_singletons(RESPONSE))
    counts = coreference_counts(key, response)
    scores = dict(zip(METRICS, coreference_f1(counts).tolist(), strict=True))
    assert scores == pytest.approx(REFERENCE[singletons], abs=1e-6)
    assert conll_score(counts) == pytest.approx(np.mean([scores[name] for name in ("muc", "b3", "ceafe")]))


def test_nothing_found_and_nothing_to_find_score_0_and_documents_add_up() -> None:
    for gold, found in (([], []), (["ab"], []), ([], ["ab"])):
        assert coreference_f1(coreference_counts(gold, found)).tolist() == [0.0] * len(METRICS)
    one, two = coreference_counts(["ab"], ["ab"]), coreference_counts(["cd", "ef"], [])
    both = coreference_f1(one + two)
    assert both[METRICS.index("mention")] == pytest.approx(2 * 1 / 3 / (1 + 1 / 3))
    stacked: Sequence[np.ndarray] = [one, one + two]
    assert conll_score(np.array(stacked)).tolist() == pytest.approx([1.0, float(conll_score(one + two))])


@settings(max_examples=50)
@given(
    rows=st.integers(0, 9), columns=st.integers(0, 9), seed=st.integers(0, 1000), levels=st.sampled_from([2, 4, 10**6])
)
def test_the_assignment_is_as_good_as_scipys(rows: int, columns: int, seed: int, levels: int) -> None:
    """With ties too, where few levels are drawn."""
    weights = np.random.default_rng(seed).integers(0, levels, (rows, columns)).astype(np.float64)
    at = linear_sum_assignment(-weights)
    assert largest_assignment(weights) == pytest.approx(weights[at].sum())
