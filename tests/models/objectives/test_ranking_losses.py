"""Losses of rerankers against those of sentence-transformers on the same scores, and against naive float64 loops."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.core.targets import RelevanceTargets
from larvatus.models.objectives.ranking import BinaryCrossEntropy, ListNet, MeanSquared, Softmax

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder import losses as theirs

LISTS = st.lists(
    st.lists(st.tuples(st.floats(-20, 20, width=32), st.sampled_from([0.0, 1.0, 2.0, 3.0])), min_size=1, max_size=6),
    min_size=1,
    max_size=5,
)


class GivenScores(CrossEncoder):
    """What their losses call a model: the score of a pair is the number that it is given as its passage."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)

    num_labels = 1
    device = torch.device("cpu")

    def preprocess(self, pairs, **_):
        return {"numbers": torch.tensor([float(passage) for _, passage in pairs])}

    def forward(self, inputs):
        return {"scores": inputs["numbers"][:, None]}


def targets_of(lists):
    grades = [grade for rows in lists for _, grade in rows]
    return RelevanceTargets(
        windows=torch.ones(len(grades), dtype=torch.long),
        candidates=torch.tensor([len(rows) for rows in lists]),
        grades=torch.tensor(grades),
    )


def scores_of(lists):
    return torch.tensor([score for rows in lists for score, _ in rows], dtype=torch.float32)


def binary(lists):
    return [[(score, min(grade, 1.0)) for score, grade in rows] for rows in lists]


def columns(lists):
    """Queries and passages as their losses take pairs, with the labels."""
    pairs = [(str(number), repr(score), grade) for number, rows in enumerate(lists) for score, grade in rows]
    queries, passages, grades = zip(*pairs, strict=True)
    return [list(queries), list(passages)], torch.tensor(grades)


@settings(max_examples=30, deadline=None)
@given(LISTS)
def test_losses_of_pairs_are_theirs(lists):
    for ours, their, rows in (
        (BinaryCrossEntropy(), theirs.BinaryCrossEntropyLoss(GivenScores()), binary(lists)),
        (MeanSquared(), theirs.MSELoss(GivenScores()), lists),
    ):
        inputs, labels = columns(rows)
        wanted = float(their(inputs, labels))
        assert float(ours(scores_of(rows), targets_of(rows)).mean()) == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(LISTS)
def test_listnet_is_theirs(lists):
    inputs = [[str(number) for number in range(len(lists))], [[repr(score) for score, _ in rows] for rows in lists]]
    labels = [torch.tensor([grade for _, grade in rows]) for rows in lists]
    wanted = float(theirs.ListNetLoss(GivenScores())(inputs, labels))
    assert float(ListNet()(scores_of(lists), targets_of(lists)).mean()) == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-20, 20, width=32), min_size=2, max_size=6))
def test_softmax_with_one_positive_is_their_ranking_loss_over_its_negatives(scores):
    their = theirs.MultipleNegativesRankingLoss(GivenScores(), num_negatives=0, scale=1.0, activation_fn=None)
    wanted = float(their([["q"], *([repr(score)] for score in scores)], None))
    rows = [[(score, float(place == 0)) for place, score in enumerate(scores)]]
    assert float(Softmax()(scores_of(rows), targets_of(rows)).mean()) == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(LISTS)
def test_all_are_naive_loops_in_float64(lists):
    pairs = [pair for rows in binary(lists) for pair in rows]
    wanted = [-y * math.log(1 / (1 + math.exp(-s))) - (1 - y) * math.log(1 / (1 + math.exp(s))) for s, y in pairs]
    got = BinaryCrossEntropy()(scores_of(binary(lists)).double(), targets_of(binary(lists)))
    np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)
    graded = [rows for rows in lists if any(grade for _, grade in rows)]
    for loss, all_lists in ((ListNet(), lists), (Softmax(), graded)):
        if not all_lists:
            continue
        wanted = []
        for rows in all_lists:
            weights = [math.exp(grade) if isinstance(loss, ListNet) else grade for _, grade in rows]
            log_sum = math.log(sum(math.exp(score) for score, _ in rows))
            wanted.append(-sum(w / sum(weights) * (s - log_sum) for w, (s, _) in zip(weights, rows, strict=True)))
        got = loss(scores_of(all_lists).double(), targets_of(all_lists))
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(LISTS, st.floats(-5, 5))
def test_listwise_losses_do_not_change_with_a_constant_and_have_finite_gradients(lists, shift):
    graded = [rows for rows in lists if any(grade for _, grade in rows)]
    for loss, all_lists in ((ListNet(), lists), (Softmax(), graded)):
        if not all_lists:
            continue
        x = scores_of(all_lists).double().requires_grad_()
        values = loss(x, targets_of(all_lists))
        torch.testing.assert_close(loss(x + shift, targets_of(all_lists)), values, rtol=1e-9, atol=1e-9)
        (slopes,) = torch.autograd.grad(values.sum(), x)
        assert torch.isfinite(slopes).all()
        sums = [float(part.sum()) for part in slopes.split([len(rows) for rows in all_lists])]
        np.testing.assert_allclose(sums, 0, atol=1e-9)
