"""Noise: what is masked, substituted, deleted, inserted and moved, against a plain loop; rates; what always holds."""

from __future__ import annotations

import bisect
import functools
import itertools
from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch, edges
from larvatus.core.errors import DataError, RecipeError
from larvatus.core.pretraining_targets import MaskedTokens, PairLabels
from larvatus.core.rng import random_bits, stream
from larvatus.data.corruption import Corruption, CorruptionConfig, MaskingConfig, MaskVocabulary, NoiseConfig, corrupt
from larvatus.data.corruption.noise import INSERTED, NoisyText, add_noise
from larvatus.data.corruption.replacement import CorruptionInput
from larvatus.models.recipes import read_recipe

CLS, SEP, MASK, UNK = 0, 1, 2, 3
SPECIAL = frozenset({CLS, SEP, MASK, UNK})
SIZE = 60
COUNTS = np.array([10**6] * 4 + [1000 // (rank + 1) for rank in range(SIZE - 4)])
VOCABULARY = MaskVocabulary(mask_id=MASK, size=SIZE, special_ids=SPECIAL, counts=COUNTS)
ALL = {"mask": 0.1, "substitute": 0.05, "delete": 0.1, "insert": 0.08, "reorder": 0.2}


def make(rows: list[list[list[int]]], unknown: frozenset[int] = frozenset()) -> TrainingBatch[Ints]:
    """``[CLS] words [SEP] words [SEP]``: of each sequence its stretches, of these the sizes of words."""
    draw = stream(1, "test noise")
    ids, words, segments = [], [], []
    for row in rows:
        ids.append([CLS])
        words.append([-1])
        segments.append([0])
        count = 0
        for segment, sizes in enumerate(row):
            own = np.repeat(count + np.arange(len(sizes)), sizes).tolist()
            drawn = draw.integers(4, SIZE, size=len(own)).tolist()
            ids[-1] += [UNK if word in unknown else token for word, token in zip(own, drawn, strict=True)]
            words[-1] += own
            count += len(sizes)
            ids[-1].append(SEP)
            words[-1].append(-1)
            segments[-1] += [segment] * (sum(sizes) + 1)
    labels = PairLabels(labels=np.arange(len(rows)) % 2)
    tokens = TokenBatch.of(ids, words=words, segments=segments)
    return TrainingBatch(tokens=tokens, targets={PairLabels: labels})


def text_of(batch: TrainingBatch[Ints], *, first: int = 0, epoch: int = 0, limit: int | None = None) -> CorruptionInput:
    return CorruptionInput(batch.tokens, VOCABULARY, 7, epoch, first + np.arange(batch.tokens.count), limit)


def apply(
    batch: TrainingBatch[Ints], config: CorruptionConfig, *, first: int = 0, limit: int | None = None
) -> TrainingBatch[Ints]:
    items = first + np.arange(batch.tokens.count)
    return corrupt(batch, config, vocabulary=VOCABULARY, seed=7, epoch=0, items=items, limit=limit)


rows = st.lists(st.lists(st.lists(st.integers(1, 4), max_size=15), min_size=1, max_size=2), min_size=0, max_size=5)
shares = st.sampled_from([0.0, 0.05, 0.2, 0.3, 1.0])
configs = st.builds(
    lambda mask, substitute, delete, **others: NoiseConfig(
        **{k: v / max(1.0, mask + substitute + delete) for k, v in (("mask", mask), ("substitute", substitute))},
        delete=delete / max(1.0, mask + substitute + delete),
        **others,
    ),
    mask=st.sampled_from([0.05, 0.2, 1.0]),
    substitute=shares,
    delete=shares,
    insert=shares,
    reorder=shares,
    window=st.integers(2, 5),
    units=st.sampled_from(["words", "tokens"]),
    replacement=st.sampled_from(["unigram", "uniform"]),
)
unknowns = st.frozensets(st.integers(0, 14), max_size=3)
limits = st.one_of(st.none(), st.integers(8, 60))


# — the plain loop —


class Naive:
    """The module's words as loops over one sequence."""

    def __init__(self, tokens: TokenBatch[Ints], config: NoiseConfig, item: int, limit: int | None) -> None:
        self.config, self.item, self.limit = config, item, limit
        self.ids, self.words, self.segments = tokens.ids.tolist(), tokens.words.tolist(), tokens.segments.tolist()

    def bits(self, purpose: str, place: int) -> list[int]:
        bits: list[int] = random_bits(7, purpose, 0, items=np.array([self.item]), draws=np.array([place]))[
            :, 0
        ].tolist()
        return bits

    def random_token(self, purpose: str, place: int) -> int:
        high, low, *_ = self.bits(purpose, place)
        uniform = ((high << 21) | (low >> 11)) / 2**53
        ordinary = [v for v in range(SIZE) if v not in SPECIAL]
        if self.config.replacement == "uniform":
            return ordinary[int(uniform * len(ordinary))]
        sums = list(itertools.accumulate(int(COUNTS[v]) for v in ordinary))
        return ordinary[bisect.bisect_right(sums, int(uniform * sums[-1]))]

    def ordinary(self, unit: list[int]) -> bool:
        return all(self.words[i] != -1 and self.ids[i] not in SPECIAL for i in unit)

    def units(self) -> list[list[int]]:
        units: list[list[int]] = []
        for i, word in enumerate(self.words):
            if self.config.units == "words" and i and word != -1 and word == self.words[i - 1]:
                units[-1].append(i)
            else:
                units.append([i])
        return units

    def reordered(self, units: list[list[int]]) -> list[list[int]]:
        window, out = self.config.window, list(units)
        phase, rank, windows = self.bits("noise/windows", 0)[0] * window >> 32, 0, [[]]
        for u, unit in enumerate(units):
            if not self.ordinary(unit):
                windows.append([])
                rank = 0
                continue
            if (rank + phase) % window == 0:
                windows.append([])
            windows[-1].append(u)
            rank += 1
        for members in windows:
            if len(members) > 1 and self.bits("noise/order", units[members[0]][0])[0] / 2**32 < self.config.reorder:
                cycle = sorted(members, key=lambda u: self.bits("noise/order", units[u][0])[1])
                for here, there in zip(cycle, cycle[1:] + cycle[:1], strict=True):
                    out[here] = units[there]
        return out

    def __call__(self) -> list[tuple[int, int, bool, int, int]]:
        """Of each token of the noisy text: id, origin, whether it is asked for, word, segment."""
        config = self.config
        units = self.reordered(self.units())
        starts = [0, *itertools.accumulate(len(unit) for unit in units)]
        draws = [self.bits("noise", start) for start in starts[:-1]]
        fates = []
        for unit, bits in zip(units, draws, strict=True):
            share = bits[0] / 2**32
            limits = itertools.accumulate((config.mask, config.substitute, config.delete))
            fate = next((f for f, edge in zip("msd", limits, strict=True) if share < edge), "k")
            fates.append(fate if self.ordinary(unit) else "k")
        stretch: list[int] = []
        for u in range(len(units) + 1):  # the end is a border as a special token is
            if u < len(units) and self.words[units[u][0]] != -1:
                stretch.append(u)
                continue
            if stretch and all(fates[v] == "d" for v in stretch):
                fates[max(stretch, key=lambda v: draws[v][0])] = "k"
            stretch = []
        size = sum(len(unit) for unit, fate in zip(units, fates, strict=True) if fate != "d")
        inserted = set()
        for u in sorted(range(len(units)), key=lambda u: draws[u][2]):
            fits = self.limit is None or size + len(units[u]) <= self.limit
            if fits and self.ordinary(units[u]) and draws[u][1] / 2**32 < config.insert:
                size += len(units[u])
                inserted.add(u)
        out: list[tuple[int, int, bool, object, int]] = []
        for u, unit in enumerate(units):
            places = range(starts[u], starts[u + 1])
            for source, place in zip(unit, places, strict=True):
                token = {"m": MASK, "s": self.random_token("noise/substitute", place)}.get(fates[u], self.ids[source])
                asked = fates[u] in "ms" or source != place
                if fates[u] != "d":
                    out.append((token, place, asked, self.words[source], self.segments[place]))
            if u in inserted:
                new = [self.random_token("noise/insert", place) for place in places]
                out += [(token, INSERTED, False, f"new {u}", self.segments[starts[u]]) for token in new]
        numbered, last, count = [], None, -1
        for token, origin, asked, word, segment in out:
            count += word not in (-1, last)
            last = word
            numbered.append((token, origin, asked, -1 if word == -1 else count, segment))
        return numbered


def rows_of(noisy: NoisyText, batch: TrainingBatch[Ints]) -> list[list[tuple[int, int, bool, int, int]]]:
    before, after = edges(batch.tokens.lengths), edges(noisy.tokens.lengths).tolist()
    out = []
    for b, (first, last) in enumerate(itertools.pairwise(after)):
        origins = noisy.origins[first:last]
        origins = np.where(origins == INSERTED, INSERTED, origins - before[b])
        columns = [noisy.tokens.ids, noisy.asked, noisy.tokens.words, noisy.tokens.segments]
        ids, asked, words, segments = (column[first:last].tolist() for column in columns)
        out.append(list(zip(ids, origins.tolist(), asked, words, segments, strict=True)))
    return out


@given(rows=rows, config=configs, unknown=unknowns, limit=limits, first=st.integers(0, 9))
@settings(max_examples=150)
def test_all_sequences_at_once_get_the_noise_of_the_plain_loop(
    rows: list[list[list[int]]], config: NoiseConfig, unknown: frozenset[int], limit: int | None, first: int
) -> None:
    """The loop sees one sequence at a time: so this also says that noise does not depend on the batch."""
    batch = make(rows, unknown)
    noisy = add_noise(text_of(batch, first=first, limit=limit), config)
    theirs = [Naive(batch.cut(i, i + 1).tokens, config, first + i, limit)() for i in range(batch.tokens.count)]
    assert rows_of(noisy, batch) == theirs


# — what always holds —


@given(rows=rows, config=configs, unknown=unknowns, limit=limits)
@settings(max_examples=150)
def test_the_noisy_batch_is_whole(
    rows: list[list[list[int]]], config: NoiseConfig, unknown: frozenset[int], limit: int | None
) -> None:
    batch = make(rows, unknown)
    copy = batch.tokens.map(np.copy)
    out, noisy = apply(batch, config, limit=limit), add_noise(text_of(batch, limit=limit), config)
    tokens, masked = out.tokens, out.targets[MaskedTokens]
    for name in ("ids", "lengths", "positions", "segments", "words"):
        assert np.array_equal(getattr(batch.tokens, name), getattr(copy, name))  # the input is not touched
        assert getattr(tokens, name).dtype == np.int64
        assert np.array_equal(getattr(tokens, name), getattr(noisy.tokens, name))
    assert out.targets[PairLabels] is batch.targets[PairLabels]
    assert tokens.lengths.sum() == tokens.size == len(tokens.words) == len(tokens.segments) == len(tokens.positions)
    if limit is not None:
        assert np.all(tokens.lengths <= np.maximum(limit, batch.tokens.lengths))
    assert np.all(np.diff(masked.places) > 0)
    assert np.array_equal(masked.ids, copy.ids[noisy.origins[masked.places]])
    assert not set(masked.ids.tolist()) & SPECIAL
    kept = noisy.origins[noisy.origins != INSERTED]
    assert np.all(np.diff(kept) > 0)  # origins are in order: each original place at most once
    untouched = ~noisy.asked & (noisy.origins != INSERTED)
    assert np.array_equal(tokens.ids[untouched], copy.ids[noisy.origins[untouched]])
    for b in range(batch.tokens.count):
        check_sequence(batch.cut(b, b + 1).tokens, out.cut(b, b + 1).tokens)


def check_sequence(before: TokenBatch[Ints], after: TokenBatch[Ints]) -> None:
    fixed = [(i, s) for i, s in zip(before.ids, before.segments, strict=True) if i in (CLS, SEP, UNK)]
    now = [(i, s) for i, s in zip(after.ids, after.segments, strict=True) if i in (CLS, SEP, UNK)]
    assert now == fixed  # special tokens: all there, in their order and segments
    assert (after.ids[0], after.ids[-1]) == (CLS, SEP)
    assert np.array_equal(after.words == -1, np.isin(after.ids, [CLS, SEP]))
    assert after.positions.tolist() == list(range(after.size))
    assert np.all(np.diff(after.segments) >= 0)
    named = after.words[after.words >= 0]
    assert np.all(np.isin(np.diff(named, prepend=-1), [0, 1]))  # the word-span contract: counted without a gap
    assert not len(named) or named[0] == 0
    for stretch in (0, 1):  # text that was there is never gone altogether
        there, here = (((t.segments == stretch) & (t.words >= 0)).any() for t in (before, after))
        assert there == here


@given(rows=rows, config=configs, cut=st.integers(0, 5), limit=limits)
@settings(max_examples=60)
def test_noise_does_not_depend_on_the_batch(
    rows: list[list[list[int]]], config: NoiseConfig, cut: int, limit: int | None
) -> None:
    batch = make(rows)
    cut = min(cut, batch.tokens.count)
    whole = apply(batch, config, limit=limit)
    for first, last in ((0, cut), (cut, batch.tokens.count)):
        alone, part = apply(batch.cut(first, last), config, first=first, limit=limit), whole.cut(first, last)
        for name in ("ids", "lengths", "positions", "segments", "words"):
            assert np.array_equal(getattr(alone.tokens, name), getattr(part.tokens, name))
        for name in ("places", "ids"):
            assert np.array_equal(getattr(alone.targets[MaskedTokens], name), getattr(part.targets[MaskedTokens], name))


@given(
    rows=rows, window=st.integers(2, 5), units=st.sampled_from(["words", "tokens"]), delete=st.sampled_from([0, 0.3])
)
@settings(max_examples=100)
def test_reordering_keeps_the_tokens_and_moves_no_unit_far(
    rows: list[list[list[int]]], window: int, units: str, delete: float
) -> None:
    batch = make(rows)
    config = msgspec.convert(
        {"type": "noise", "mask": 0.0, "reorder": 1.0, "window": window, "units": units, "delete": delete}, NoiseConfig
    )
    noisy = add_noise(text_of(batch), config)
    for b in range(batch.tokens.count):
        before = batch.cut(b, b + 1).tokens
        after = TrainingBatch(tokens=noisy.tokens, targets={}).cut(b, b + 1).tokens
        assert Counter(after.ids.tolist()) <= Counter(before.ids.tolist())
        assert delete or Counter(after.ids.tolist()) == Counter(before.ids.tolist())
    distinct = TokenBatch.of([[CLS, *range(4, 34), SEP]], words=[[-1, *range(30), -1]])
    moved = add_noise(text_of(TrainingBatch(tokens=distinct, targets={})), config).tokens.ids[1:-1] - 4
    if not delete:
        far = np.abs(moved - np.arange(30))
        assert far.max() < window
        assert (far == 0).sum() <= 2  # a window of a single unit, at either end


def test_noise_is_fresh_each_epoch_and_item() -> None:
    batch = make([[[1] * 40]] * 2)

    def ids(**options: int) -> tuple[int, ...]:
        return tuple(add_noise(text_of(batch, **options), NoiseConfig(**ALL)).tokens.ids.tolist())

    assert ids() == ids()
    assert len({ids(), ids(epoch=1), ids(first=5)}) == 3


# — rates —


@functools.cache
def many_tokens() -> TrainingBatch[Ints]:
    """1,600 sequences of words of one to three pieces, 255 tokens in all on average."""
    sizes = stream(3, "test noise").choice([1, 1, 1, 2, 3], size=(1_600, 160))
    return make([[row.tolist()] for row in sizes])


@pytest.mark.parametrize("units", [pytest.param("words", marks=pytest.mark.proof), "tokens"])
def test_rates_over_400_000_tokens(units: str) -> None:
    batch = many_tokens()
    config = msgspec.convert({"type": "noise", **ALL, "units": units}, NoiseConfig)
    noisy = add_noise(text_of(batch), config)
    total = int((batch.tokens.words >= 0).sum())
    assert total > 400_000
    ids, there = noisy.tokens.ids, noisy.origins != INSERTED
    found = {
        "mask": (ids == MASK).sum(),
        "delete": batch.tokens.size - there.sum(),
        "insert": (~there).sum(),
        "rate": noisy.asked.sum(),
    }
    for name, count in found.items():
        assert abs(count / total - getattr(config, name)) < 0.003, name
    drawn = ids[~there]
    weights = np.where(np.arange(SIZE) < 4, 0, COUNTS)
    assert (
        stats.chisquare(np.bincount(drawn, minlength=SIZE)[4:], (weights / weights.sum() * len(drawn))[4:]).pvalue
        > 1e-3
    )
    for name in ("substitute", "reorder"):  # alone, where they can be told apart
        only = msgspec.convert({"type": "noise", "mask": 0.0, name: 0.2, "units": units}, NoiseConfig)
        alone = add_noise(text_of(batch), only)
        assert alone.tokens.size == batch.tokens.size
        assert abs(alone.asked.sum() / total - 0.2) < 0.004


def test_masks_alone_have_the_statistics_of_plain_masking() -> None:
    batch = make([[[1] * 64]] * 5_000)
    noise = apply(batch, NoiseConfig(mask=0.15))
    plain = apply(batch, MaskingConfig(rate=0.15, mask=1.0, random=0.0, keep=0.0))
    for name in ("lengths", "positions", "segments", "words"):
        assert np.array_equal(getattr(noise.tokens, name), getattr(plain.tokens, name))
    ours, theirs = noise.targets[MaskedTokens], plain.targets[MaskedTokens]
    assert np.array_equal(np.flatnonzero(noise.tokens.ids == MASK), ours.places)
    assert abs(ours.count / (64 * 5_000) - 0.15) < 4 * np.sqrt(0.15 * 0.85 / (64 * 5_000))
    assert abs(theirs.count / (64 * 5_000) - 0.15) < 0.01  # ten of 64
    assert stats.chisquare(np.bincount(ours.places % 66, minlength=66)[1:65]).pvalue > 0.001
    a_sequence = np.histogram(ours.places, bins=edges(batch.tokens.lengths))[0]
    seen = np.bincount(np.clip(a_sequence, 4, 16), minlength=17)[4:17]
    law = stats.binom.pmf(np.arange(65), 64, 0.15)
    expected = np.concatenate([[law[:5].sum()], law[5:16], [law[16:].sum()]]) * 5_000
    assert stats.chisquare(seen, expected).pvalue > 0.001  # each token for itself


# — length —


@pytest.mark.parametrize("units", ["words", "tokens"])
def test_text_is_packed_so_that_nearly_all_insertions_fit(units: str) -> None:
    config = msgspec.convert({"type": "noise", "insert": 0.1, "delete": 0.02, "units": units}, NoiseConfig)
    room = config.text_length(128)
    assert 105 < room < 128 / 1.08
    batch = make([[[1, 2] * ((room - 2) // 3)]] * 2_000)
    noisy = add_noise(text_of(batch, limit=128), config)
    free = add_noise(text_of(batch), config)
    assert noisy.tokens.lengths.max() <= 128 < free.tokens.lengths.max()
    assert (noisy.origins == INSERTED).sum() / (free.origins == INSERTED).sum() > 0.98


def test_the_length_of_text_follows_the_noise() -> None:
    assert NoiseConfig(delete=0.5).text_length(512) == 512
    assert NoiseConfig(insert=0.05, delete=0.2, mask=0.5).text_length(512) == 512
    assert NoiseConfig(insert=1.0).text_length(8) == 8
    for length in (64, 128, 512):
        n = NoiseConfig(insert=0.1, delete=0.05).text_length(length)
        assert n * 1.05 + 2 * np.sqrt(n * 0.15) <= length < (n + 1) * 1.05 + 2 * np.sqrt((n + 1) * 0.15)
    assert MaskingConfig().text_length(512) == 512


def test_where_there_is_no_room_nothing_is_inserted_and_where_some_goes_as_much_may_come() -> None:
    batch = make([[[1] * 30]] * 50)
    full = add_noise(text_of(batch, limit=32), NoiseConfig(insert=0.5))
    assert np.array_equal(full.origins, np.arange(batch.tokens.size))
    both = add_noise(text_of(batch, limit=32), NoiseConfig(insert=0.5, delete=0.2))
    assert set(both.tokens.lengths.tolist()) == {32}


# — what cannot work —


def test_a_block_in_which_chance_hides_nothing_is_refused() -> None:
    call = Corruption(NoiseConfig(mask=1e-9), VOCABULARY, 7, limit=32)
    with pytest.raises(DataError, match=r"nothing can be hidden in 1 sequences of 4 tokens.*raise corruption\.mask"):
        call(make([[[1, 1]]]), 0, 0)
    assert Corruption(NoiseConfig(mask=1.0), VOCABULARY, 7)(make([[[1, 1]]]), 0, 0).targets[MaskedTokens].count == 2


def test_random_tokens_by_frequency_need_counts_only_where_there_are_any() -> None:
    bare = MaskVocabulary(mask_id=MASK, size=SIZE, special_ids=SPECIAL)
    batch = make([[[1] * 50]])
    Corruption(NoiseConfig(mask=0.5, delete=0.2, reorder=0.3), bare, 7)(batch, 0, 0)
    for name in ("substitute", "insert"):
        with pytest.raises(RecipeError, match=r'set corruption\.replacement = "uniform"'):
            Corruption(msgspec.convert({"type": "noise", name: 0.5}, NoiseConfig), bare, 7)(batch, 0, 0)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["corruption.delete=1.5"], "corruption.delete = 1.5 must lie between 0 and 1"),
        (["corruption.reorder=nan"], "corruption.reorder"),
        (["corruption.mask=0.7", "corruption.delete=0.5"], "mask + substitute + delete = 1.2 must be at most 1"),
        (["corruption.mask=0", "corruption.delete=0.1"], "only deletes and inserts leaves no place with something to"),
        (["corruption.window=1"], "corruption.window = 1 must lie between 2 and 1,000"),
        (["corruption.units=letters"], "corruption.units"),
        (["corruption.rate=0.2"], "corruption.rate is not a setting"),
        (["corruption.delet=0.2"], "did you mean corruption.delete?"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: list[str], line: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read_recipe("bert", settings=["corruption.type=noise", *settings])
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_worked_example_of_the_docstring() -> None:
    """The cat sat on the mat, 100,000 times: among their noise is that of the example."""
    the, cat, sat, on, mat = range(10, 15)
    row, count = [CLS, the, cat, sat, on, the, mat, SEP], 100_000
    one = TrainingBatch(tokens=TokenBatch.of([row], words=[[-1, *range(6), -1]]), targets={})
    many = TokenBatch(
        ids=np.tile(row, count),
        lengths=np.full(count, 8),
        positions=np.tile(np.arange(8), count),
        segments=np.zeros(8 * count, dtype=np.int64),
        words=np.tile(one.tokens.words, count),
    )
    config = NoiseConfig(mask=0.2, delete=0.2, insert=0.2, reorder=0.5, window=2)
    noisy = add_noise(text_of(TrainingBatch(tokens=many, targets={})), config)
    eight = np.flatnonzero(noisy.tokens.lengths == 8)
    places = edges(noisy.tokens.lengths)[eight][:, None] + np.arange(8)
    origins = np.where(noisy.origins == INSERTED, INSERTED, noisy.origins % 8)[places]
    same = (origins == [0, 1, 2, 3, 5, INSERTED, 6, 7]) & (noisy.asked[places] == np.isin(np.arange(8), [2, 3, 6]))
    same &= (noisy.tokens.ids[places] == MASK) == (np.arange(8) == 6)
    item = int(eight[np.flatnonzero(same.all(1))[0]])

    out = apply(one, config, first=item)
    ids = out.tokens.ids.tolist()
    assert ids[:5] + ids[6:] == [CLS, the, sat, cat, the, MASK, SEP]
    assert out.tokens.words.tolist() == [-1, 0, 1, 2, 3, 4, 5, -1]
    targets = out.targets[MaskedTokens]
    assert (targets.places.tolist(), targets.ids.tolist()) == ([2, 3, 6], [cat, sat, mat])
