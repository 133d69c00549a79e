"""The best tree against all trees, one by one."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.errors import NumericsError
from larvatus.data.labelled.trees import find_cycle
from larvatus.tasks.parse.spanning_tree import best_tree


def reaches_root(heads: tuple[int, ...], word: int) -> bool:
    for _ in heads:
        word = heads[word - 1] if word else 0
    return word == 0


@cache
def all_trees(words: int) -> Ints:
    """[T, N] every tree with one root; a tree is found by walking from each word."""
    rows = [
        heads
        for heads in product(range(words + 1), repeat=words)
        if heads.count(0) == 1 and all(reaches_root(heads, word) for word in range(1, words + 1))
    ]
    return np.array(rows, np.int64)


def score(scores: Doubles, heads: Ints) -> float:
    return float(scores[heads, np.arange(len(heads))].sum())


def test_there_are_as_many_trees_as_cayley_says() -> None:
    assert [len(all_trees(words)) for words in range(1, 6)] == [words ** (words - 1) for words in range(1, 6)]


@given(st.integers(1, 6).flatmap(lambda n: arrays(np.float64, (n + 1, n), elements=st.integers(-9, 9))), st.data())
def test_no_tree_is_better(scores: Doubles, data: st.DataObject) -> None:
    scores[0] += data.draw(st.sampled_from([0.0, 40.0, -40.0]))  # many roots are tempting, or none
    heads = best_tree(scores)
    trees = all_trees(scores.shape[1])
    assert (trees == heads).all(1).any()
    assert score(scores, heads) == max(score(scores, tree) for tree in trees)


@pytest.mark.parametrize("seed", range(20))
def test_single_precision_scores_of_a_model_give_the_best_tree(seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = (random.normal(size=(6, 5)) * 10).astype(np.float32)
    trees = all_trees(5)
    best = max(trees, key=lambda tree: score(scores.astype(np.float64), tree))
    assert best_tree(scores).tolist() == best.tolist()


def test_many_words_and_ties_give_a_tree() -> None:
    for scores in (np.zeros((301, 300)), np.random.default_rng(0).normal(size=(301, 300))):
        heads = best_tree(scores).tolist()
        assert heads.count(0) == 1
        assert find_cycle(heads) is None


def test_scores_that_are_no_numbers_are_refused() -> None:
    scores = np.zeros((3, 2))
    scores[1, 1] = np.nan
    with pytest.raises(NumericsError, match="not finite"):
        best_tree(scores)
