"""What a whole block is corrupted to, quickly, against the plain way: the same numbers, bit by bit."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.core.arrays import Bits, Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.pretraining_targets import PairLabels
from larvatus.core.rng import _AT_ONCE, philox, random_bits
from larvatus.data.corruption import (
    Corruption,
    CorruptionConfig,
    MaskingConfig,
    MaskVocabulary,
    NGramsConfig,
    NoiseConfig,
    SampledConfig,
    SpanCorruptionConfig,
    WholeWordConfig,
    corrupt,
    masking,
)
from larvatus.data.corruption.masking import budgets, by_sequence_at_random

VOCABULARY = MaskVocabulary(mask_id=3, size=50, special_ids={0, 1, 2, 3}, counts=np.arange(50))


def plain_philox(counter: Bits, key: tuple[int, int]) -> Bits:
    """Salmon et al. 2011, round by round."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        left, right = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1 = (right >> shift) ^ c1 ^ np.uint64(k0), right & low
        c2, c3 = (left >> shift) ^ c3 ^ np.uint64(k1), left & low
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3])


@pytest.mark.parametrize("count", [0, 1, _AT_ONCE, 2 * _AT_ONCE + 7])
def test_the_random_numbers_are_those_of_the_plain_rounds(count: int) -> None:
    generator = np.random.default_rng(count)
    counter = generator.integers(0, 1 << 32, (4, count), dtype=np.uint64)
    kept, key = counter.copy(), (0xDEADBEEF, 0x12345678)
    assert np.array_equal(philox(counter, key), plain_philox(kept, key))
    assert np.array_equal(counter, kept), "what is given stays as it is"
    items, draws = generator.integers(0, 1 << 62, (2, count))
    bits = random_bits(7, "mask", 3, items=items, draws=draws)
    i, d = items.astype(np.uint64), draws.astype(np.uint64)
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    name = int.from_bytes(hashlib.blake2b(b"7\x00mask\x003", digest_size=8).digest(), "little")
    words = np.stack([i & low, i >> shift, d & low, d >> shift])
    assert np.array_equal(bits, plain_philox(words, (name & 0xFFFFFFFF, name >> 32)))


@given(
    lengths=st.lists(st.integers(0, 40), max_size=12),
    highest=st.sampled_from([0, 1, 3, (1 << 32) - 1]),
    seed=st.integers(0, 99),
    rate=st.floats(0.01, 1.0),
)
@settings(max_examples=150, deadline=None)
def test_the_order_and_the_choice_are_those_of_a_stable_sort_even_of_equal_numbers(
    lengths: list[int], highest: int, seed: int, rate: float
) -> None:
    sequences = np.repeat(np.arange(len(lengths)), lengths)
    keys = np.random.default_rng(seed).integers(0, highest, len(sequences), dtype=np.uint64, endpoint=True)
    order = np.argsort((sequences.astype(np.uint64) << np.uint64(32)) | keys, kind="stable")
    assert np.array_equal(by_sequence_at_random(keys, sequences), order)
    present = np.bincount(sequences, minlength=len(lengths))
    rank = np.arange(len(order)) - np.repeat(np.cumsum(present) - present, present)
    chosen = order[rank < np.repeat(budgets(present, rate), present)]
    quick = MaskingConfig(rate=rate).choose(keys, sequences, sequences, count=len(lengths))
    assert sorted(quick.tolist()) == sorted(chosen.tolist())


def test_more_than_sixteen_bits_can_tell_apart_are_sorted_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    sequences = np.repeat(np.arange(9), 5)
    keys = np.random.default_rng(1).integers(0, 3, len(sequences), dtype=np.uint64)
    quick = by_sequence_at_random(keys, sequences)
    monkeypatch.setattr(masking, "_PLACES", 8)
    assert np.array_equal(by_sequence_at_random(keys, sequences), quick)


def text(seed: int) -> TrainingBatch[Ints]:
    generator = np.random.default_rng(seed)
    ids, words = [], []
    for length in generator.integers(4, 30, 40).tolist():
        ids.append([1, *generator.integers(4, 50, length).tolist(), 2])
        words.append([-1, *(np.arange(length) // 2).tolist(), -1])
    labels = PairLabels(labels=generator.integers(0, 2, len(ids)))
    return TrainingBatch(tokens=TokenBatch.of(ids, words=words), targets={PairLabels: labels})


CONFIGS = [
    MaskingConfig(),
    SampledConfig(),
    WholeWordConfig(),
    SpanCorruptionConfig(),
    NGramsConfig(),
    NoiseConfig(delete=0.2),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.__struct_config__.tag)
def test_a_block_in_parts_is_the_block_corrupted_at_once(
    config: CorruptionConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = text(3)
    first = 5 << 32
    items = first + np.arange(batch.tokens.count)
    whole = corrupt(batch, config, vocabulary=VOCABULARY, seed=1, epoch=2, items=items, limit=64)
    monkeypatch.setattr("larvatus.data.corruption.AT_ONCE", 100)
    parts = Corruption(config, VOCABULARY, seed=1, limit=64)(batch, 2, first)
    assert list(parts.targets) == list(whole.targets)
    expected: list[Ints] = []
    whole.map(lambda array: expected.append(array) or array)
    actual: list[Ints] = []
    parts.map(lambda array: actual.append(array) or array)
    assert all(map(np.array_equal, actual, expected))
