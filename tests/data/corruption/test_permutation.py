"""Factorisation orders: all alike, of the sequence alone, the last sixth predicted; nothing of the text is changed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import IGNORE, PaddedSizes
from larvatus.core.rng import stream
from larvatus.data.corruption import Corruption, MaskVocabulary, PermutationConfig
from larvatus.data.corruption.permutation import PermutedTokens

KNOWN = MaskVocabulary(mask_id=6, size=60, special_ids=set(range(9)))
WHOLE = PermutationConfig()
ORDERED = PermutationConfig(context="ordered")


def make(lengths: list[int]) -> TrainingBatch[Ints]:
    """Texts of so many ordinary tokens, with <sep> <cls> behind each."""
    draw = stream(3, "test permutation")
    rows = [[*draw.integers(9, 60, size=length).tolist(), 4, 3] for length in lengths]
    words = [[*range(length), -1, -1] for length in lengths]
    return TrainingBatch(tokens=TokenBatch.of(rows, words=words), targets={})


def ordered(batch: TrainingBatch[Ints], config: PermutationConfig = WHOLE, *, epoch: int = 0, first: int = 0):
    return Corruption(config, KNOWN, 7)(batch, epoch, first)


def test_every_order_of_a_text_is_as_likely_as_any_other() -> None:
    order = ordered(make([4] * 24_000), ORDERED).targets[PermutedTokens].order.reshape(-1, 6)
    assert not order[:, 4:].any()  # special tokens are seen by all
    kinds, counts = np.unique(order[:, :4], axis=0, return_counts=True)
    assert sorted(map(tuple, kinds.tolist())) == sorted(itertools.permutations(range(1, 5)))
    assert stats.chisquare(counts).pvalue > 0.001


def test_every_place_is_predicted_as_often_and_an_order_says_nothing_of_its_neighbour() -> None:
    target = ordered(make([12] * 6_000)).targets[PermutedTokens]
    places = (target.places % 14).reshape(-1, 2)  # 2 of 12
    assert stats.chisquare(np.bincount(places.ravel(), minlength=12)).pvalue > 0.001
    assert abs(np.corrcoef(places[:-1, 0], places[1:, 0])[0, 1]) < 0.05


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.sampled_from([WHOLE, ORDERED]))
def test_the_last_sixth_is_predicted_from_the_rest_and_no_token_is_changed(
    lengths: list[int], config: PermutationConfig
) -> None:
    if not any(lengths):
        return
    batch = make(lengths)
    after = ordered(batch, config)
    target = after.targets[PermutedTokens]
    assert after.tokens is batch.tokens or np.array_equal(after.tokens.ids, batch.tokens.ids)
    assert np.array_equal(target.ids, batch.tokens.ids[target.places])
    assert np.all(np.diff(target.places) > 0)
    before = 0
    for length in lengths:
        order = target.order[before : before + length]
        mine = target.places[(target.places >= before) & (target.places < before + length + 2)] - before
        assert len(mine) == (max(1, round(length / 6)) if length else 0)
        assert sorted(order[mine].tolist()) == list(range(length - len(mine) + 1, length + 1))  # the last
        rest = np.delete(order, mine)
        assert sorted(rest.tolist()) == ([0] * len(rest) if config is WHOLE else list(range(1, len(rest) + 1)))
        before += length + 2


def test_an_order_belongs_to_seed_epoch_item_and_place_whatever_the_batch() -> None:
    batch = make([5, 17, 40, 3, 22, 9])
    whole = ordered(batch).targets[PermutedTokens]
    parts = [ordered(batch.cut(i, i + 1), first=i).targets[PermutedTokens] for i in range(6)]
    assert np.array_equal(np.concatenate([part.order for part in parts]), whole.order)
    assert not np.array_equal(ordered(batch, epoch=1).targets[PermutedTokens].order, whole.order)
    assert not np.array_equal(ordered(batch, first=1).targets[PermutedTokens].order, whole.order)


def test_cut_and_joined_again_it_is_the_same_and_filler_is_counted_nowhere() -> None:
    batch = ordered(make([5, 17, 8]))
    target = batch.targets[PermutedTokens]
    again = TrainingBatch.join([batch.cut(0, 1), batch.cut(1, 3)]).targets[PermutedTokens]
    for name in ("order", "places", "ids"):
        assert np.array_equal(getattr(again, name), getattr(target, name))
    filled = target.filled(PaddedSizes(tokens=50, sequences=8, targets=9))
    assert (len(filled.order), filled.count) == (50, 9)
    assert filled.ids[target.count :].tolist() == [IGNORE] * (9 - target.count)
    assert filled.places[target.count :].tolist() == [49] * (9 - target.count)


def test_a_share_that_cannot_be_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"corruption\.rate"):
        PermutationConfig(rate=0.0)
