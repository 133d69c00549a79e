"""Losses of sentence vectors against those of sentence-transformers on the same vectors, and against naive loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import UsageError
from larvatus.core.targets import SentenceTargets
from larvatus.models.objectives.sentence_losses import (
    CoSENT,
    Distillation,
    Matryoshka,
    MultipleNegatives,
    SimCSE,
    Triplet,
)

CLOSE = {"abs": 1e-6, "rel": 1e-6}


class Columns(torch.nn.Module):
    """What their losses call a model: here it only hands over vectors."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, features):
        return {"sentence_embedding": features["sentence_embedding"]}

    def get_embedding_dimension(self):
        return self.width


def targets_of(texts, scores=None, teacher=None):
    total = int(sum(texts))
    return SentenceTargets(
        windows=torch.ones(total, dtype=torch.long),
        kept=torch.zeros(total, 2, dtype=torch.long),
        texts=torch.tensor(texts),
        scores=torch.zeros(len(texts)) if scores is None else torch.tensor(scores),
        teacher=torch.zeros(total, 0) if teacher is None else teacher,
    )


def vectors(count, width=12, seed=0):
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


def columns(x_TD, texts):
    """[E, D] of each role, where all examples have as many texts."""
    return list(x_TD.view(-1, texts, x_TD.shape[1]).unbind(1))


@pytest.fixture(scope="module")
def theirs():
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer import losses

    return losses


def compared(ours, x_TD, their_loss, columns):
    """Value and gradients agree."""
    x_TD.requires_grad_()
    (mine,) = torch.autograd.grad(ours(x_TD), x_TD)
    (others,) = torch.autograd.grad(their_loss(columns(x_TD)), x_TD)
    assert ours(x_TD).item() == pytest.approx(their_loss(columns(x_TD)).item(), **CLOSE)
    torch.testing.assert_close(mine, others, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("texts", [2, 3, 5])
@pytest.mark.parametrize("symmetric", [False, True])
def test_multiple_negatives_equals_theirs(theirs, texts, symmetric):
    more = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"} if symmetric else {}
    other = theirs.MultipleNegativesRankingLoss(Columns(12), **more)
    targets = targets_of([texts] * 6)
    compared(
        lambda x: MultipleNegatives(symmetric=symmetric)(x, targets),
        vectors(6 * texts),
        lambda parts: other.compute_loss_from_embeddings(parts, None),
        lambda x: columns(x, texts),
    )


@given(texts=st.lists(st.integers(2, 4), min_size=1, max_size=6), seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_multiple_negatives_with_any_number_of_hard_negatives_is_a_naive_loop(texts, seed):
    x = vectors(sum(texts), seed=seed).double().numpy()
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    starts = np.cumsum(texts) - texts
    candidates = [place for place in range(sum(texts)) if place not in starts]
    expected = 0.0
    for start in starts:
        weights = {place: math.exp(20 * float(x[start] @ x[place])) for place in candidates}
        expected -= math.log(weights[start + 1] / sum(weights.values()))
    got = MultipleNegatives()(vectors(sum(texts), seed=seed), targets_of(texts))
    assert float(got) == pytest.approx(expected / len(texts), abs=1e-4)


def test_simcse_is_multiple_negatives_over_two_views():
    x, targets = vectors(12), targets_of([2] * 6)
    assert float(SimCSE()(x, targets)) == float(MultipleNegatives(scale=20.0)(x, targets))


@given(scores=st.lists(st.integers(0, 4).map(float), min_size=1, max_size=9), seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_cosent_equals_theirs_and_the_double_sum(scores, seed):
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    x, targets = vectors(2 * len(scores), seed=seed), targets_of([2] * len(scores), scores)
    got = float(CoSENT()(x, targets))
    first, second = columns(x, 2)
    assert got == pytest.approx(
        float(losses.CoSENTLoss(Columns(12)).compute_loss_from_embeddings([first, second], targets.scores)), **CLOSE
    )
    cosine = torch.nn.functional.cosine_similarity(first.double(), second.double()).tolist()
    pairs = [(i, j) for i in range(len(scores)) for j in range(len(scores)) if scores[i] > scores[j]]
    assert got == pytest.approx(math.log(1 + sum(math.exp(20 * (cosine[j] - cosine[i])) for i, j in pairs)), abs=1e-4)


@pytest.mark.parametrize(("distance", "margin"), [("cosine", 0.2), ("euclidean", 5.0)])
def test_triplet_equals_theirs(theirs, distance, margin):
    metric = getattr(theirs.TripletDistanceMetric, distance.upper())
    other = theirs.TripletLoss(Columns(12), distance_metric=metric, triplet_margin=margin)
    targets = targets_of([3] * 6)
    compared(
        lambda x: Triplet(distance=distance, margin=margin)(x, targets),
        vectors(18),
        lambda parts: other.compute_loss_from_embeddings(parts, None),
        lambda x: columns(x, 3),
    )


def test_a_triplet_with_several_negatives_counts_once():
    x = vectors(7)
    both = Triplet()(x, targets_of([3, 4]))
    alone = Triplet()(x[:3], targets_of([3])), Triplet()(x[3:], targets_of([4]))
    assert float(both) == pytest.approx(float(sum(alone)) / 2, **CLOSE)


def test_distillation_of_vectors_equals_theirs(theirs):
    teacher = vectors(8, seed=5)
    other = theirs.EmbedDistillLoss(Columns(12), distance_metric="cosine")
    targets = targets_of([1] * 8, teacher=teacher)
    compared(
        lambda x: Distillation(similarities=0.0)(x, targets),
        vectors(8),
        lambda parts: other.compute_loss_from_embeddings(parts, [teacher]),
        lambda x: [x],
    )


def test_distillation_of_similarities_is_a_naive_loop_and_takes_other_sizes():
    student, teacher = vectors(5, width=4), vectors(5, width=9, seed=3)
    got = float(Distillation(vectors=0.0, similarities=2.0)(student, targets_of([1] * 5, teacher=teacher)))
    total = 0.0
    for i in range(5):
        for j in range(5):
            ours, theirs = (torch.cosine_similarity(x[i].double(), x[j].double(), 0) for x in (student, teacher))
            total += float(ours - theirs) ** 2
    assert got == pytest.approx(2 * total / 25, abs=1e-6)


@pytest.mark.parametrize("inner", [MultipleNegatives(), CoSENT(), Triplet(distance="euclidean", margin=5.0)])
def test_matryoshka_equals_theirs_over_any_loss(theirs, inner):
    texts = 3 if isinstance(inner, Triplet) else 2
    model = Columns(12)
    loss = {
        MultipleNegatives: lambda: theirs.MultipleNegativesRankingLoss(model),
        CoSENT: lambda: theirs.CoSENTLoss(model),
        Triplet: lambda: theirs.TripletLoss(model),
    }[type(inner)]()
    other = theirs.MatryoshkaLoss(model, loss, [12, 6, 3], [1.0, 0.5, 0.25])
    targets = targets_of([texts] * 6, [0.0, 1.0, 2.0, 2.0, 4.0, 5.0])
    compared(
        lambda x: Matryoshka(inner=inner, dimensions=(12, 6, 3), weights=(1.0, 0.5, 0.25))(x, targets),
        vectors(6 * texts),
        lambda parts: other([{"sentence_embedding": part} for part in parts], targets.scores),
        lambda x: columns(x, texts),
    )


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(UsageError, match="a weight above 0"):
        Distillation(vectors=0.0, similarities=0.0)
    with pytest.raises(UsageError, match="each once"):
        Matryoshka(inner=CoSENT(), dimensions=(8, 8))
    with pytest.raises(UsageError, match="2 sizes, but 1 weights"):
        Matryoshka(inner=CoSENT(), dimensions=(8, 4), weights=(1.0,))
    with pytest.raises(UsageError, match="scale"):
        CoSENT(scale=0.0)


def test_targets_are_cut_and_joined_by_examples():
    tokens = TokenBatch.of([[1, 2], [3], [4, 5, 6], [7], [8, 9]])
    whole = TrainingBatch(
        tokens=TokenBatch(**{**vars(tokens), "groups": np.array([3, 2])}),
        targets={
            SentenceTargets: SentenceTargets(
                windows=np.array([2, 1, 1, 1]),
                kept=np.arange(10).reshape(5, 2),
                texts=np.array([2, 2]),
                scores=np.array([0.5, 1.0]),
                teacher=np.arange(8.0).reshape(4, 2),
            )
        },
    )
    parts = list(whole.cuts(6))
    assert [part.targets[SentenceTargets].scores.tolist() for part in parts] == [[0.5], [1.0]]
    assert parts[1].targets[SentenceTargets].teacher.tolist() == [[4.0, 5.0], [6.0, 7.0]]
    joined = TrainingBatch.join(parts).targets[SentenceTargets]
    for name, array in vars(whole.targets[SentenceTargets]).items():
        np.testing.assert_array_equal(getattr(joined, name), array)
