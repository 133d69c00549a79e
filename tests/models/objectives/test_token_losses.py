"""MaxSim and FLOPS against naive loops in float64, and against sentence-transformers on the same vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.core.errors import UsageError
from larvatus.models.objectives import late_interaction
from larvatus.models.objectives.late_interaction import Splade, TokenVectors, WeightVectors, flops, maxsim
from larvatus.models.objectives.sentence_losses import (
    CoSENT,
    Distillation,
    MultipleNegatives,
    SimCSE,
    Triplet,
)
from tests.models.objectives.test_sentence_losses import Columns, targets_of


def tokens(lengths, width=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.nn.functional.normalize(torch.randn(sum(lengths), width, generator=generator), dim=-1)
    return TokenVectors(x, torch.tensor(lengths, dtype=torch.long))


def weights(count, width=9, seed=0):
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed)).relu()


def split(texts):
    """The token vectors of each text."""
    return [part.numpy() for part in texts.x_ND.detach().double().split(texts.lengths_T.tolist())]


def naive_maxsim(queries, documents):
    """[Q, C] in Python numbers of 64 bits."""
    d = split(documents)
    return np.array([[sum(max((float(i @ j) for j in b), default=0.0) for i in a) for b in d] for a in split(queries)])


LENGTHS = st.lists(st.integers(0, 6), min_size=1, max_size=6)


@settings(max_examples=60)
@given(LENGTHS, LENGTHS, st.sampled_from([1, 7, 40, 1 << 20]), st.integers(0, 9))
def test_maxsim_is_a_naive_loop_in_any_blocks(first, second, numbers, seed):
    queries, documents = tokens(first, seed=seed), tokens(second, seed=seed + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(late_interaction, "NUMBERS", numbers * 256)
        found = maxsim(queries, documents)
    np.testing.assert_allclose(found.numpy(), naive_maxsim(queries, documents), atol=1e-5)


def test_gradients_do_not_depend_on_blocks(monkeypatch):
    gradients = []
    for numbers in (1 << 20, 512):
        monkeypatch.setattr(late_interaction, "NUMBERS", numbers)
        texts = tokens([3, 5, 2, 4, 6, 3])
        texts.x_ND.requires_grad_()
        loss = MultipleNegatives(scale=2.0)(texts, targets_of([2, 2, 2]))
        gradients.append(torch.autograd.grad(loss, texts.x_ND)[0])
    assert gradients[0].abs().sum() > 0
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-6, rtol=1e-5)


def test_texts_are_chosen_with_their_tokens():
    texts = tokens([3, 0, 2, 4])
    chosen = texts[torch.tensor([3, 0, 1])]
    assert chosen.lengths_T.tolist() == [4, 3, 0]
    torch.testing.assert_close(chosen.x_ND, torch.cat([texts.x_ND[5:9], texts.x_ND[:3]]))


def test_scores_equal_those_of_sentence_transformers():
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.multi_vector_encoder.scoring import colbert_scores

    both = tokens([3, 5, 2]), tokens([6, 1, 4, 4], seed=1)
    parts = [texts.x_ND.split(texts.lengths_T.tolist()) for texts in both]
    padded = [torch.nn.utils.rnn.pad_sequence(each, batch_first=True) for each in parts]
    masks = [torch.arange(x.shape[1])[None] < t.lengths_T[:, None] for x, t in zip(padded, both, strict=True)]
    expected = colbert_scores(padded[0], padded[1][:, None], queries_mask=masks[0], documents_mask=masks[1][:, None])
    torch.testing.assert_close(maxsim(*both), expected.view(3, 4), atol=1e-6, rtol=1e-5)


def test_losses_of_scores_are_naive_sums():
    texts, targets = tokens([3, 2, 4, 2, 5, 3]), targets_of([3, 3])
    scores = naive_maxsim(texts, texts)
    logits = 1.5 * scores[[0, 3]][:, [1, 4, 2, 5]]
    expected = np.mean([np.log(np.exp(row).sum()) - row[place] for place, row in enumerate(logits)])
    assert float(MultipleNegatives(scale=1.5)(texts, targets)) == pytest.approx(expected, abs=1e-5)
    gaps = [max(0.0, scores[a, a + 2] - scores[a, a + 1] + 0.3) for a in (0, 3)]
    assert float(Triplet(margin=0.3)(texts, targets)) == pytest.approx(np.mean(gaps), abs=1e-5)
    pairs = targets_of([2, 2, 2], scores=[0.1, 0.9, 0.5])
    similar = [scores[n, n + 1] for n in (0, 2, 4)]
    terms = [np.exp(similar[low] - similar[high]) for high, low in ((1, 0), (1, 2), (2, 0))]
    assert float(CoSENT(scale=1.0)(texts, pairs)) == pytest.approx(np.log1p(sum(terms)), abs=1e-5)
    assert float(SimCSE(scale=1.0)(texts, targets_of([2, 2, 2]))) > 0


def test_a_teacher_is_compared_by_the_mean_of_maxima():
    texts, teacher = tokens([3, 2, 4]), torch.randn(3, 7, generator=torch.Generator().manual_seed(3))
    unit = (teacher / teacher.norm(dim=1, keepdim=True)).double().numpy()
    student = naive_maxsim(texts, texts) / np.array([[3], [2], [4]])
    loss = Distillation(vectors=0.0, similarities=2.0)(texts, targets_of([1, 1, 1], teacher=teacher))
    assert float(loss) == pytest.approx(2.0 * np.square(student - unit @ unit.T).mean(), abs=1e-5)


def test_flops_is_a_naive_sum():
    x, chosen = weights(5), torch.tensor([True, False, True, True, False])
    rows = [row for row, inside in zip(x.double().tolist(), chosen.tolist(), strict=True) if inside]
    expected = sum((sum(column) / 3) ** 2 for column in zip(*rows, strict=True))
    assert float(flops(x, chosen)) == pytest.approx(expected, rel=1e-6)
    assert float(flops(x, torch.zeros(5, dtype=torch.bool))) == 0.0


@pytest.mark.parametrize(("progress", "share"), [(0.0, 0.0), (0.1, 0.25), (0.2, 1.0), (0.9, 1.0)])
def test_the_weight_of_flops_grows_quadratically(progress, share):
    x, targets = weights(6), targets_of([3, 3])
    loss = Splade(inner=MultipleNegatives(scale=1.0), query_weight=0.1, document_weight=0.2, warm_up=0.2)
    queries = torch.tensor([True, False, False, True, False, False])
    expected = MultipleNegatives(scale=1.0)(WeightVectors(x), targets)
    expected = expected + share * (0.1 * flops(x, queries) + 0.2 * flops(x, ~queries))
    assert float(loss(x, targets, progress=progress)) == pytest.approx(float(expected), rel=1e-6)


def test_texts_without_a_partner_are_documents():
    x = weights(3)
    loss = Splade(inner=Distillation(vectors=0.0), query_weight=9.0, document_weight=0.5)
    teacher = torch.eye(3)
    plain = Distillation(vectors=0.0)(WeightVectors(x), targets_of([1, 1, 1], teacher=teacher))
    expected = float(plain) + 0.5 * float(flops(x, torch.ones(3, dtype=torch.bool)))
    assert float(loss(x, targets_of([1, 1, 1], teacher=teacher))) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("texts", [2, 4])
def test_splade_equals_sentence_transformers(texts):
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.sparse_encoder import losses

    x = weights(texts * 4).requires_grad_()
    ours = Splade(inner=MultipleNegatives(scale=1.0), query_weight=0.03, document_weight=0.02)
    columns = list(x.view(-1, texts, x.shape[1]).unbind(1))
    model = Columns(9)
    inner = losses.SparseMultipleNegativesRankingLoss(model)
    their = losses.SpladeLoss(model, inner, document_regularizer_weight=0.02, query_regularizer_weight=0.03)
    expected = sum(their([{"sentence_embedding": column} for column in columns], None).values())
    found = ours(x, targets_of([texts] * 4))
    assert found.item() == pytest.approx(expected.item(), abs=1e-6)
    gradients = [torch.autograd.grad(value, x, retain_graph=True)[0] for value in (found, expected)]
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-5)


def test_a_warm_up_of_nothing_is_refused():
    with pytest.raises(UsageError):
        Splade(warm_up=0.0)
