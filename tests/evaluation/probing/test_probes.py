"""Probes on vectors whose content is known, and against naive loops and scikit-learn."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from larvatus.evaluation.probing.amnesic import Eraser
from larvatus.evaluation.probing.examples import ProbeData
from larvatus.evaluation.probing.features import Scaler
from larvatus.evaluation.probing.run import (
    ProbingSettings,
    _Fit,
    baseline_answers,
    code_lengths,
    expected_layer,
    measure,
)
from larvatus.evaluation.probing.structural import (
    Trees,
    chain_scores,
    control_heads,
    probe_trees,
    spanning_edges,
    tree_distances,
)
from larvatus.evaluation.probing.training import fit_linear, fit_mlp, log_probabilities, online_parts

TEXTS, WORDS, TYPES, CLASSES, SIZE = 150, 10, 60, 4, 24


def made_data(labels, types):
    """Texts of ten words, with these labels and word types."""
    spans = [[(2 * n, 2 * n + 1) for n in range(WORDS)] for _ in range(TEXTS)]
    parts = np.where(np.arange(TEXTS) % 5 == 4, 2, np.where(np.arange(TEXTS) % 10 == 3, 1, 0))
    return ProbeData(
        task="tag",
        source="made up",
        texts=["x " * WORDS] * TEXTS,
        spans=spans,
        parts=parts,
        units=np.arange(TEXTS * WORDS)[:, None],
        owners=np.repeat(np.arange(TEXTS), WORDS),
        labels=labels,
        types=[f"type {n}" for n in types],
        names=tuple("abcd"),
        heads=(),
        scored=(),
        notes=(),
    )


@pytest.fixture(scope="module")
def made():
    """Layer 0 knows only the word type, layer 1 only the label, layer 2 nothing; labels do not follow from types."""
    rng = np.random.default_rng(0)
    types = rng.integers(0, TYPES, TEXTS * WORDS)
    labels = rng.integers(0, CLASSES, TEXTS * WORDS)
    noise = rng.normal(size=(3, TEXTS * WORDS, SIZE))
    names = rng.normal(size=(TYPES, SIZE))
    vectors = noise.copy()
    vectors[0] = 3 * names[types] + 0.1 * noise[0]
    vectors[1, :, :CLASSES] += 6 * np.eye(CLASSES)[labels]
    return made_data(labels, types), vectors.astype(np.float32)


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_selectivity_shows_which_layer_knows_labels_and_which_word_types(made, kind):
    data, vectors = made
    measured = measure(vectors, data, ProbingSettings(probe=kind, description_length=False), control=True)
    right, control = measured.right[kind].mean(1), measured.control[kind].mean(1)
    chance = (np.bincount(data.control_labels(0)) / len(data.labels)).max()
    assert right[1] > 0.95
    assert abs(right[0] - 1 / CLASSES) < 0.1
    assert control[0] > right[0] + 0.2  # it tells types, whose control labels are fixed
    assert abs(control[1] - chance) < 0.12  # it tells no type, so there is nothing to memorise
    assert abs(right[2] - 1 / CLASSES) < 0.1
    assert (right - control)[1] > 0.5 > 0 > (right - control)[0]


def test_a_layer_does_not_depend_on_the_others_and_seeds_are_exact(made):
    data, vectors = made
    linear = ProbingSettings(probe="linear")
    alone, together = measure(vectors[1:2], data, linear), measure(vectors, data, linear)
    np.testing.assert_allclose(together.bits["linear"][1], alone.bits["linear"][0], rtol=1e-4, atol=1e-5)
    mlp = ProbingSettings(probe="mlp", description_length=False)
    first, second = measure(vectors[:2], data, mlp), measure(vectors[:2], data, mlp)
    assert np.array_equal(first.right["mlp"], second.right["mlp"])
    assert (measure(vectors[1:2], data, mlp).right["mlp"][0] == first.right["mlp"][1]).mean() > 0.99


def test_control_labels_belong_to_word_types_and_have_the_frequencies_of_the_labels(made):
    data, _ = made
    rare = dataclasses.replace(data, labels=np.where(data.labels == 0, 0, 1), names=("a", "b"))
    many = dataclasses.replace(rare, types=[f"type {n}" for n in range(len(rare.types))])
    assert abs((many.control_labels(0) == 0).mean() - (rare.labels == 0).mean()) < 0.05
    labels = rare.control_labels(0)
    assert len(set(zip(rare.types, labels.tolist(), strict=True))) == len(set(rare.types))
    assert not np.array_equal(labels, rare.control_labels(1))


def test_a_linear_probe_is_the_logistic_regression_of_scikit_learn():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 300, 8))
    x[1] *= np.geomspace(0.1, 10, 8)
    y = rng.integers(0, 3, 300)
    x[:, :, 0] += y
    w = fit_linear(
        torch.cat([torch.from_numpy(x), torch.ones(2, 300, 1)], 2).double(), torch.from_numpy(y), 3, tolerance=1e-9
    )
    for group in range(2):
        reference = LogisticRegression(C=1 / (0.01 * 300), tol=1e-10, max_iter=5_000).fit(x[group], y)
        ours = log_probabilities(torch.cat([torch.from_numpy(x[group]), torch.ones(300, 1)], 1)[None], [w[group][None]])
        np.testing.assert_allclose(ours[0].exp().numpy(), reference.predict_proba(x[group]), atol=1e-5)


def test_an_mlp_learns_what_no_linear_probe_can():
    rng = np.random.default_rng(2)
    signs = rng.choice([-1.0, 1.0], size=(2_000, 2))
    x = np.concatenate([signs + 0.2 * rng.normal(size=signs.shape), np.ones((2_000, 1))], 1)
    y = torch.from_numpy((signs[:, 0] * signs[:, 1] > 0).astype(np.int64))
    x = torch.from_numpy(x).float()[None]
    split = (np.arange(1_400), np.arange(1_400, 1_600))
    mlp = fit_mlp(x, y, 2, split=split, hidden=16, seed=0)
    linear = fit_linear(x[:, :1_400], y[:1_400], 2)
    right = [(log_probabilities(x[:, 1_600:], w)[0].argmax(-1) == y[1_600:]).float().mean() for w in (mlp, [linear])]
    assert right[0] > 0.98
    assert right[1] < 0.65


def test_the_online_code_equals_a_naive_loop(made):
    data, vectors = made
    train = data.of(0)
    x = torch.from_numpy(vectors)
    x = Scaler.of(x[:, train])(x)
    y = torch.from_numpy(data.labels)
    bits = code_lengths(_Fit("linear", x, data, ProbingSettings()), y)
    texts = np.unique(data.owners[train])
    parts = [texts[part].tolist() for part in online_parts(np.full(len(texts), WORDS), 0)]
    assert sorted(text for part in parts for text in part) == texts.tolist()
    expected, known = 0.0, []
    for number, part in enumerate(parts):
        rows = [row for row in train.tolist() if data.owners[row] in part]
        if number == 0:
            expected += len(rows) * math.log2(CLASSES)
        else:
            w = fit_linear(x[1:2, sorted(known)], y[sorted(known)], CLASSES)[0].double()
            for row in rows:
                logits = (x[1, row].double() @ w).numpy()
                expected += -math.log2(math.exp(logits[y[row]]) / sum(math.exp(each) for each in logits))
        known += rows
    assert bits[1].sum() == pytest.approx(expected, rel=1e-3)
    assert bits[2].sum() > len(train) * math.log2(CLASSES)  # noise compresses nothing
    assert bits[1].sum() < 0.5 * len(train) * math.log2(CLASSES)


def test_cumulative_mixes_find_the_layer_that_knows():
    rng = np.random.default_rng(3)
    labels, types = rng.integers(0, CLASSES, TEXTS * WORDS), rng.integers(0, TYPES, TEXTS * WORDS)
    vectors = rng.normal(size=(4, TEXTS * WORDS, SIZE))
    vectors[2, :, :CLASSES] += 4 * np.eye(CLASSES)[labels]
    data = made_data(labels, types)
    measured = measure(
        vectors.astype(np.float32), data, ProbingSettings(probe="linear", description_length=False), mixes=True
    )
    assert measured.mixing.argmax() == 2
    assert measured.mixing.sum() == pytest.approx(1)
    assert expected_layer(measured.mix_right.mean(1)) == pytest.approx(2, abs=0.25)
    assert np.isnan(expected_layer(np.array([0.9, 0.8])))


def test_baselines_are_those_of_counting(made):
    data, _ = made
    test = data.of(2)
    answers = baseline_answers(dataclasses.replace(data, labels=np.array([hash(t) % 4 for t in data.types])))
    assert answers["majority of the word type"].mean() == 1
    assert baseline_answers(data)["majority"].mean() == pytest.approx(
        (data.labels[test] == np.bincount(data.labels[data.of(0)]).argmax()).mean()
    )


def random_heads(rng, count):
    """A random tree."""
    order = rng.permutation(count)
    heads = np.zeros(count, np.int64)
    for place in range(1, count):
        heads[order[place]] = order[rng.integers(0, place)] + 1
    return heads


def test_tree_distances_and_spanning_trees_are_those_of_networkx_like_loops():
    rng = np.random.default_rng(4)
    for _ in range(20):
        heads = random_heads(rng, 9)
        far = np.full((9, 9), 99)
        np.fill_diagonal(far, 0)
        for word, head in enumerate(heads):
            if head:
                far[word, head - 1] = far[head - 1, word] = 1
        for k in range(9):  # Floyd and Warshall
            far = np.minimum(far, far[:, k : k + 1] + far[k : k + 1, :])
        assert np.array_equal(tree_distances(heads), far)
        wanted = {tuple(sorted((word, int(head) - 1))) for word, head in enumerate(heads) if head}
        assert spanning_edges(far + 0.1 * rng.random((9, 9)).clip(0, 0.5)) == wanted
    assert (control_heads(rng.random(12)) == 0).sum() == 1


@pytest.fixture(scope="module")
def planted():
    """Sentences whose words are points with the squared distances of a tree, rotated into noise; and noise only."""
    rng = np.random.default_rng(5)
    count, words, size = 160, 8, 32
    heads = [random_heads(rng, words) for _ in range(count)]
    basis = np.linalg.qr(rng.normal(size=(size, words)))[0]
    vectors = np.zeros((2, count * words, size))
    for n, tree in enumerate(heads):
        for word in range(words):
            at, path = word, np.zeros(words)
            while tree[at]:
                path[at] = 1  # one axis for each edge: the squared distance of two words is the number of edges
                at = tree[at] - 1
            vectors[0, n * words + word] = basis @ path
    vectors += 0.02 * rng.normal(size=vectors.shape)
    parts = np.where(np.arange(count) % 5 == 4, 2, np.where(np.arange(count) % 10 == 3, 1, 0))
    scored = [np.ones(words, bool)] * count
    return vectors.astype(np.float32), Trees(np.arange(count + 1) * words, heads, scored, parts)


def test_the_structural_probe_recovers_a_planted_tree_metric(planted):
    vectors, trees = planted
    scores = probe_trees(vectors, trees, seed=0)
    share = {
        name: (rows := getattr(scores, name).sum(1))[:, 0] / rows[:, 1]
        for name in ("uuas", "spearman", "depth_spearman", "root")
    }
    assert share["uuas"][0] > 0.95
    assert share["spearman"][0] > 0.9
    assert share["depth_spearman"][0] > 0.9
    assert share["root"][0] > 0.95
    assert share["uuas"][1] < 0.45
    chain = chain_scores(trees).sum(0)
    assert chain[0] / chain[1] < 0.45  # random trees do not join neighbours


def test_an_eraser_removes_what_is_planted_and_random_directions_do_not():
    rng = np.random.default_rng(6)
    y = rng.choice(4, size=2_000, p=[0.4, 0.3, 0.2, 0.1])
    x = rng.normal(size=(2_000, 32))
    x[:, :4] += 4 * np.eye(4)[y]
    x = torch.from_numpy(x @ rng.normal(size=(32, 32))).float()
    z = torch.from_numpy(y)

    def accuracy(vectors):
        scaled = Scaler.of(vectors[None])(vectors[None])
        w = LogisticRegression(max_iter=2_000).fit(scaled[0].numpy(), y)
        return w.score(scaled[0].numpy(), y)

    eraser, random = Eraser.of(x, z, 4), Eraser.of(x, z, 4, random=0)
    assert eraser.basis_DK.shape == random.basis_DK.shape == (32, 3)
    majority = (y == 0).mean()
    assert accuracy(x) > 0.95
    assert accuracy(eraser(x)) == pytest.approx(majority, abs=0.01)
    assert accuracy(random(x)) > 0.85
    erased = eraser(x)
    np.testing.assert_allclose(erased.mean(0), x.mean(0), atol=1e-4)
    torch.testing.assert_close(eraser(erased), erased, atol=1e-3, rtol=1e-3)
