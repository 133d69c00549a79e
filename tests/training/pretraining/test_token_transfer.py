"""Rows of a new vocabulary against plain float64 loops: FOCUS, WECHSEL, means, copies, static vectors."""

import math

import numpy as np
import pytest
import torch

from larvatus.data.text.vocabularies import WordPieceConfig, train_vocabulary
from larvatus.training.pretraining import static_vectors as statics
from larvatus.training.pretraining.static_vectors import (
    CooccurrenceCounts,
    aligned,
    factorise,
    positive_pmi,
    static_vectors,
)
from larvatus.training.pretraining.token_transfer import RowTransfer, copies, focus, means, sparsemax, wechsel

NEW, OLD, D = 30, 20, 6


@pytest.fixture
def random():
    return np.random.default_rng(0)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def naive_sparsemax(scores):
    """The threshold by bisection: Σ max(0, s - τ) = 1."""
    low, high = min(scores) - 1, max(scores)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(0.0, s - middle) for s in scores) > 1 else (low, middle)
    return [max(0.0, s - low) for s in scores]


def test_sparsemax_is_the_projection_onto_probabilities(random):
    scores = random.normal(size=(40, 9)) * 2
    for row, weights in zip(scores.tolist(), sparsemax(scores), strict=True):
        np.testing.assert_allclose(weights, naive_sparsemax(row), atol=1e-12)
    assert (sparsemax(scores) == 0).any()


def test_focus_by_loops(random):
    vectors = unit(random.normal(size=(NEW, D)))
    vectors[[3, 7]] = 0  # not seen in the text: one shared, one not
    shared = np.full(NEW, -1)
    shared[:12] = random.permutation(OLD)[:12]
    shared[7], shared[12] = -1, 5
    old = torch.tensor(random.normal(size=(OLD, 4)))
    new = RowTransfer.of(NEW, {**focus(vectors, shared), **copies(shared)}).apply(old, name="words", seed=0)
    anchors = [t for t in range(NEW) if shared[t] >= 0 and any(vectors[t])]
    for token in range(NEW):
        if shared[token] >= 0:
            expected = old[shared[token]]
        elif not any(vectors[token]):
            continue
        else:
            near = [sum(float(a * b) for a, b in zip(vectors[token], vectors[t], strict=True)) for t in anchors]
            expected = torch.zeros(4, dtype=torch.float64)
            for weight, anchor in zip(naive_sparsemax(near), anchors, strict=True):
                expected += weight * old[shared[anchor]]
        torch.testing.assert_close(new[token], expected, rtol=0, atol=1e-10)


def test_wechsel_by_loops(random):
    vectors, old_vectors = unit(random.normal(size=(NEW, D))), unit(random.normal(size=(OLD, D)))
    vectors[2], old_vectors[4] = 0, 0
    old = torch.tensor(random.normal(size=(OLD, 4)))
    new = RowTransfer.of(NEW, wechsel(vectors, old_vectors)).apply(old, name="words", seed=0)
    for token in set(range(NEW)) - {2}:
        near = sorted(((float(vectors[token] @ old_vectors[o]), o) for o in range(OLD) if o != 4), reverse=True)[:10]
        total = sum(math.exp(s / 0.1) for s, _ in near)
        expected = sum(math.exp(s / 0.1) / total * old[o] for s, o in near)
        torch.testing.assert_close(new[token], expected, rtol=0, atol=1e-10)


def test_means_and_copies_by_loops_and_the_rest_as_the_old_rows_vary(random):
    old = torch.tensor(random.normal(size=(OLD, 3)) * [1.0, 5.0, 0.1] + [0.0, 2.0, -1.0], dtype=torch.float32)
    parts = [(1, 2, 2), (), (7,), *([()] * 997)]
    rows = RowTransfer.of(1000, means(parts))
    new = rows.apply(old, name="words", seed=3)
    assert new.dtype == old.dtype
    naive = (old[1].double() + old[2].double() + old[2].double()) / 3
    torch.testing.assert_close(new[0].double(), naive, rtol=1e-6, atol=1e-7)
    assert torch.equal(new[2], old[7])
    sampled = new[3:].double()
    torch.testing.assert_close(sampled.mean(0), old.double().mean(0), rtol=0, atol=0.4)
    torch.testing.assert_close(sampled.std(0), old.double().std(0, correction=0), rtol=0.1, atol=0)
    assert torch.equal(new, rows.apply(old, name="words", seed=3))
    assert not torch.equal(new, rows.apply(old, name="words", seed=4))
    assert rows.apply(old[:, 0], name="bias", seed=3).shape == (1000,)


def test_rows_are_kept_in_a_file(tmp_path, random):
    rows = RowTransfer.of(NEW, {**means([(1, 2), (), (3,)]), 29: (np.array([4]), np.array([0.25]))})
    rows.write(tmp_path / "rows.safetensors")
    again = RowTransfer.read(tmp_path / "rows.safetensors")
    assert all(np.array_equal(a, b) for a, b in zip(vars(rows).values(), vars(again).values(), strict=True))


def naive_pairs(texts, size):
    """[V, V] weights of pairs by loops."""
    matrix = np.zeros((size, size))
    for ids in texts:
        for i, left in enumerate(ids):
            for j, right in enumerate(ids):
                if 0 < abs(i - j) <= 5:
                    matrix[left, right] += 1 / abs(i - j)
    return matrix


def test_pairs_and_pmi_by_loops(random, monkeypatch):
    monkeypatch.setattr(statics, "PAIRS_AT_ONCE", 50)  # merged often
    texts = [random.integers(0, 8, size=n) for n in (13, 1, 0, 40, 7)]
    counts = CooccurrenceCounts(8)
    for first, last in ((0, 2), (2, 5)):
        batch = texts[first:last]
        counts.add(np.concatenate(batch), np.array([len(ids) for ids in batch]))
    keys, weights = counts.total()
    matrix = np.zeros(64)
    matrix[keys] = weights
    naive = naive_pairs(texts, 8)
    np.testing.assert_allclose(matrix.reshape(8, 8), naive, atol=1e-12)
    rows, columns = np.divmod(keys, 8)
    contexts = naive.sum(0) ** 0.75
    for row, column, value in zip(rows, columns, positive_pmi(rows, columns, weights, size=8), strict=True):
        joint = naive[row, column] / naive.sum()
        chance = naive[row].sum() / naive.sum() * contexts[column] / contexts.sum()
        assert value == pytest.approx(max(0.0, math.log(joint / chance)))


def test_factors_are_the_leading_singular_vectors(random):
    texts = [random.integers(0, 40, size=400)]
    keys = np.flatnonzero(naive_pairs(texts, 40).ravel())
    weights, (rows, columns) = naive_pairs(texts, 40).ravel()[keys], np.divmod(keys, 40)
    vectors = factorise(rows, columns, weights, size=40, dimensions=39, seed=0)
    dense = np.zeros((40, 40))
    dense[rows, columns] = positive_pmi(rows, columns, weights, size=40)
    left, sizes, _ = np.linalg.svd(dense)
    expected = unit(left[:, :39] * np.sqrt(sizes[:39]))
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-6)


def test_words_of_the_same_contexts_have_near_vectors():
    """Two classes of words that never meet in a sentence: nouns of one resemble each other, not those of the other."""
    random = np.random.default_rng(1)
    sides = [(["boat", "ship", "canoe"], "sails the sea"), (["oak", "elm", "beech"], "grows a leaf")]
    texts = [f"the {random.choice(nouns)} {rest}" for nouns, rest in sides for _ in range(200)]
    tokenizer = train_vocabulary(texts, WordPieceConfig(size=300), allow_smaller=True)
    vectors = static_vectors(texts, tokenizer, seed=0, dimensions=8)
    boat, ship, oak = (vectors[tokenizer.id(word)] for word in ("boat", "ship", "oak"))
    assert boat @ ship > 0.9 > boat @ oak + 0.3
    assert np.array_equal(vectors, static_vectors(texts, tokenizer, seed=0, dimensions=8))
    assert not vectors[sorted(tokenizer.special_ids)].any()


def test_an_alignment_turns_vectors_onto_their_translations(random):
    there = unit(random.normal(size=(50, D)))
    turn, _ = np.linalg.qr(random.normal(size=(D, D)))
    here = there @ turn.T
    pairs = [(here[n], there[n]) for n in range(20)]
    np.testing.assert_allclose(aligned(here, pairs), there, atol=1e-10)
