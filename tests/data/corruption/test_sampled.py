"""Masking for a generator: who is masked and who kept, and draws that belong to the token, not to the batch."""

from __future__ import annotations

import numpy as np
from scipy import stats

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.pretraining_targets import MaskedTokens, ReplacedTokens
from larvatus.core.rng import stream
from larvatus.data.corruption import Corruption, MaskingConfig, MaskVocabulary, SampledConfig, corrupt

KNOWN = MaskVocabulary(mask_id=3, size=60, special_ids={0, 1, 2, 3, 4})


def make(sequences: int, length: int = 40) -> TrainingBatch[Ints]:
    draw = stream(3, "test sampled")
    rows = [[1, *draw.integers(5, 60, size=length).tolist(), 2] for _ in range(sequences)]
    words = [[-1, *range(length), -1]] * sequences
    return TrainingBatch(tokens=TokenBatch.of(rows, words=words), targets={})


def hide(batch: TrainingBatch[Ints], *, epoch: int = 0, first: int = 0) -> TrainingBatch[Ints]:
    return Corruption(SampledConfig(), KNOWN, 7)(batch, epoch, first)


def test_of_the_chosen_85_in_100_are_masked_the_rest_kept_as_released() -> None:
    batch = make(2_000)
    hidden = hide(batch)
    masked = hidden.targets[MaskedTokens]
    seen = hidden.tokens.ids[masked.places]
    assert masked.count == 2_000 * 6
    assert stats.binomtest(int((seen == 3).sum()), masked.count, 0.85).pvalue > 0.001
    assert np.array_equal(seen[seen != 3], masked.ids[seen != 3])
    assert np.array_equal(masked.ids, batch.tokens.ids[masked.places])


def test_tokens_are_chosen_as_by_plain_masking() -> None:
    batch, items = make(20), np.arange(20)
    plain = corrupt(batch, MaskingConfig(replacement="uniform"), vocabulary=KNOWN, seed=7, epoch=0, items=items)
    assert np.array_equal(plain.targets[MaskedTokens].places, hide(batch).targets[MaskedTokens].places)


def test_draws_are_uniform_of_the_hidden_alone_and_nothing_is_replaced_yet() -> None:
    hidden = hide(make(2_000))
    found, places = hidden.targets[ReplacedTokens], hidden.targets[MaskedTokens].places
    assert found.count == hidden.tokens.size
    assert not found.labels.any()
    assert not np.delete(found.draws, places).any()
    assert stats.kstest(found.draws[places] / 2**32, "uniform").pvalue > 0.001
    masked = hidden.tokens.ids[places] == 3  # what samples a token says nothing of what hid it
    assert stats.ks_2samp(found.draws[places][masked], found.draws[places][~masked]).pvalue > 0.001


def test_a_draw_belongs_to_seed_epoch_item_and_place_whatever_the_batch() -> None:
    batch = make(30)
    whole = hide(batch).targets[ReplacedTokens].draws
    parts = [hide(batch.cut(i, i + 5), first=i).targets[ReplacedTokens].draws for i in range(0, 30, 5)]
    assert np.array_equal(np.concatenate(parts), whole)
    again = hide(batch, epoch=1).targets[ReplacedTokens].draws
    assert not np.intersect1d(whole[whole > 0], again[again > 0]).size
