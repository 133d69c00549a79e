"""The Unigram trainer against direct sums over all segmentations of each word."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import digamma

from larvatus.data.text.vocabularies.lattice import build_lattice, inner_lattice
from larvatus.data.text.vocabularies.unigram import _digamma, _seeds, learn_unigram

WORDS = [("▁banana", 4), ("▁bandana", 3), ("▁an", 6), ("▁ban", 2)]


def segmentations(word: str, pieces: set[str]) -> list[list[str]]:
    if not word:
        return [[]]
    return [
        [word[:end], *rest]
        for end in range(1, len(word) + 1)
        if word[:end] in pieces
        for rest in segmentations(word[end:], pieces)
    ]


@pytest.fixture
def setting():
    words = sorted(WORDS)
    text = "".join(word for word, _ in words)
    lengths = np.asarray([len(word) for word, _ in words])
    counts = np.asarray([float(count) for _, count in words])
    seeds = _seeds(text, lengths, counts, 2)
    lattice = build_lattice(lengths, counts, seeds.place, seeds.length, seeds.piece)
    scores = np.log(np.random.Generator(np.random.Philox(key=1)).dirichlet(np.ones(len(seeds.pieces))))
    return words, seeds, lattice, scores


def test_expected_counts_are_posterior_sums_over_segmentations(setting):
    words, seeds, lattice, scores = setting
    probability = dict(zip(seeds.pieces, np.exp(scores), strict=True))
    naive = dict.fromkeys(seeds.pieces, 0.0)
    for word, count in words:
        ways = segmentations(word, set(seeds.pieces))
        weights = [math.prod(probability[piece] for piece in way) for way in ways]
        for way, weight in zip(ways, weights, strict=True):
            for piece in way:
                naive[piece] += count * weight / sum(weights)
    assert np.allclose(lattice.expected(scores), list(naive.values()), rtol=1e-10)


def test_best_segmentations_are_the_best_of_all(setting):
    words, seeds, lattice, scores = setting
    score = dict(zip(seeds.pieces, scores, strict=True))
    naive = dict.fromkeys(seeds.pieces, 0.0)
    for word, count in words:
        for piece in max(segmentations(word, set(seeds.pieces)), key=lambda way: sum(score[piece] for piece in way)):
            naive[piece] += count
    assert lattice.best_counts(scores).tolist() == list(naive.values())


def test_what_stands_in_for_a_piece_is_its_best_other_segmentation(setting):
    _, seeds, _, scores = setting
    score = dict(zip(seeds.pieces, scores, strict=True))
    inner = inner_lattice(seeds.place, seeds.length, seeds.piece, len(seeds.pieces))
    for piece, best in zip(seeds.pieces, inner.best_score(scores), strict=True):
        others = [sum(score[p] for p in way) for way in segmentations(piece, set(seeds.pieces) - {piece})]
        assert best == pytest.approx(max(others, default=-math.inf))


def test_pieces_can_be_dropped_from_a_lattice(setting):
    words, seeds, lattice, scores = setting
    dropped = np.asarray([len(piece) == 3 for piece in seeds.pieces])
    left = set(np.asarray(seeds.pieces)[~dropped].tolist())
    score = dict(zip(seeds.pieces, scores, strict=True))
    best = lattice.without(dropped).best_score(scores[~dropped])
    for (word, _), found in zip(words, best, strict=True):
        assert found == pytest.approx(max(sum(score[piece] for piece in way) for way in segmentations(word, left)))


def test_seeds_are_the_repeated_branching_substrings(setting):
    words, seeds, _, _ = setting
    text = "\0".join(word for word, count in words for _ in range(count))
    places = {text[i:j] for i in range(len(text)) for j in range(i + 1, min(i + 17, len(text) + 1))}
    naive = set()
    for piece in places:
        if "\0" in piece:
            continue
        following = {
            text[i + len(piece) : i + len(piece) + 1] or "\0" for i in range(len(text)) if text.startswith(piece, i)
        }
        if len(piece) == 1 or (text.count(piece) >= 2 and (len(following) > 1 or following == {"\0"})):
            naive.add(piece)
    assert set(seeds.pieces) == naive


def test_digamma_is_scipys():
    x = np.asarray([0.5, 0.7, 1.0, 2.5, 6.0, 10.0, 1e3, 1e9])
    assert np.allclose(_digamma(x), digamma(x), rtol=1e-8)


def test_pieces_stay_inside_words():
    words = [("▁well-known.", 9), ("▁known.", 9), ("▁中文abc", 9), ("▁中文", 9)]
    pieces = [piece for piece, _ in learn_unigram(words, size=25, coverage=1.0, min_count=2)]
    assert "▁known" in pieces or "known" in pieces
    assert not any("-" in piece[1:] or "." in piece[1:] or ("文" in piece and "a" in piece) for piece in pieces)
    assert {"中", "文"} <= set("".join(pieces))
