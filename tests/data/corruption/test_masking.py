from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch, ranges
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import MaskedTokens, PairLabels
from larvatus.core.rng import random_bits, stream
from larvatus.data.corruption import CorruptionConfig, MaskingConfig, MaskVocabulary, WholeWordConfig, corrupt
from larvatus.data.corruption.noise import take_fitting

CLS, SEP, MASK, PAD, UNK = 0, 1, 2, 3, 4
SPECIAL = frozenset({CLS, SEP, MASK, PAD, UNK})
SIZE = 40
COUNTS = np.array(
    [10**6] * 5 + [1000 // (rank + 1) for rank in range(SIZE - 5)]
)  # Zipf, and specials that must not count
VOCABULARY = MaskVocabulary(mask_id=MASK, size=SIZE, special_ids=SPECIAL, counts=COUNTS)
WAYS = [MaskingConfig(), WholeWordConfig()]


def make(sizes: Sequence[Sequence[int]], item: int = 0) -> TrainingBatch[Ints]:
    """Sequences of words of the given sizes, as ``[CLS] words [SEP]``; labels, to see other targets survive."""
    draw = stream(1, "test masking", 0, item)
    ids, words = [], []
    for sequence in sizes:
        ids.append([CLS, *draw.integers(5, SIZE, size=sum(sequence)).tolist(), SEP])
        words.append([-1, *np.repeat(np.arange(len(sequence)), sequence).tolist(), -1])
    labels = np.arange(len(sizes), dtype=np.int64) % 2
    return TrainingBatch(tokens=TokenBatch.of(ids, words=words), targets={PairLabels: PairLabels(labels=labels)})


def long_batch(sequences: int, words: int) -> TrainingBatch[Ints]:
    """Many sequences of words of one to four pieces."""
    draw = stream(2, "test masking")
    sizes = draw.choice([1, 1, 1, 1, 2, 2, 3, 4], size=(sequences, words))
    lengths = sizes.sum(1) + 2
    flat_words = np.concatenate([np.concatenate([[-1], np.repeat(np.arange(words), row), [-1]]) for row in sizes])
    ids = draw.integers(5, SIZE, size=int(lengths.sum()))
    edges = np.cumsum(lengths)
    ids[edges - lengths], ids[edges - 1] = CLS, SEP
    tokens = TokenBatch(
        ids=ids, lengths=lengths, positions=ranges(lengths), segments=np.zeros_like(ids), words=flat_words
    )
    return TrainingBatch(tokens=tokens, targets={})


def hide(
    batch: TrainingBatch[Ints],
    config: CorruptionConfig,
    *,
    epoch: int = 0,
    seed: int = 7,
    first: int = 0,
    vocabulary: MaskVocabulary = VOCABULARY,
) -> TrainingBatch[Ints]:
    items = np.arange(first, first + batch.tokens.count)
    return corrupt(batch, config, vocabulary=vocabulary, seed=seed, epoch=epoch, items=items)


def chosen_by_sequence(batch: TrainingBatch[Ints]) -> list[int]:
    edges = np.concatenate([[0], np.cumsum(batch.tokens.lengths)])
    return np.histogram(batch.targets[MaskedTokens].places, bins=edges)[0].tolist() if batch.tokens.count else []


sequences = st.lists(st.lists(st.integers(1, 5), max_size=40), max_size=8)


@given(sizes=sequences, rate=st.floats(0.01, 1.0), epoch=st.integers(0, 3))
@settings(max_examples=150)
def test_every_sequence_has_exactly_its_share_of_tokens_chosen(sizes: list[list[int]], rate: float, epoch: int) -> None:
    batch = make(sizes)
    out = hide(batch, MaskingConfig(rate=rate), epoch=epoch)
    totals = [sum(sequence) for sequence in sizes]
    wanted = [max(1, round(rate * total)) if total else 0 for total in totals]
    assert chosen_by_sequence(out) == wanted
    assert out.targets[MaskedTokens].count == sum(wanted)


@given(sizes=sequences, config=st.sampled_from(WAYS))
@settings(max_examples=100)
def test_only_chosen_tokens_change_and_targets_are_what_was_there(
    sizes: list[list[int]], config: CorruptionConfig
) -> None:
    batch = make(sizes)
    before = batch.tokens.ids.copy()
    out = hide(batch, config)
    masked = out.targets[MaskedTokens]
    assert np.array_equal(batch.tokens.ids, before)  # the input is not touched
    assert np.array_equal(masked.ids, before[masked.places])
    assert np.all(np.diff(masked.places) > 0)
    changed = np.flatnonzero(out.tokens.ids != before)
    assert set(changed) <= set(masked.places)
    assert not set(masked.ids.tolist()) & SPECIAL
    assert set(out.tokens.ids[changed].tolist()) <= {MASK, *range(5, SIZE)}
    assert out.targets[PairLabels] is batch.targets[PairLabels]
    assert out.tokens.words is batch.tokens.words


def test_special_ids_in_the_text_are_never_chosen_even_inside_words() -> None:
    batch = TrainingBatch(tokens=TokenBatch.of([[7, UNK, 8, PAD]], words=[[0, 1, 2, 3]]), targets={})
    out = hide(batch, MaskingConfig(rate=1.0))
    assert out.targets[MaskedTokens].places.tolist() == [0, 2]


def greedy(sizes: list[int], room: int) -> list[bool]:
    """One unit after another."""
    taken, total = [], 0
    for size in sizes:
        fits = total + size <= room
        total += size * fits
        taken.append(fits)
    return taken


@given(cases=st.lists(st.tuples(st.lists(st.integers(1, 6), min_size=1, max_size=25), st.integers(0, 20)), max_size=6))
@settings(max_examples=200)
def test_all_sequences_at_once_take_the_units_that_the_greedy_loop_takes(cases: list[tuple[list[int], int]]) -> None:
    sizes = np.array([size for row, _ in cases for size in row], dtype=np.int64)
    where = np.array([i for i, (row, _) in enumerate(cases) for _ in row], dtype=np.int64)
    room = np.array([room for _, room in cases], dtype=np.int64)
    fast = take_fitting(sizes, where, room)
    assert fast.tolist() == [taken for row, room in cases for taken in greedy(row, room)]


def words_in_window(sequence: list[int], keys: list[int], start: float, rate: float) -> set[int]:
    """Which words are hidden: word after word around the circle, in the order of their keys."""
    total = sum(sequence)
    window = min(total, max(1.0, rate * total))
    chosen, begins = set(), 0
    for word in sorted(range(len(sequence)), key=lambda n: keys[n]):
        # the window goes from start · total on, and on again from 0 where it passes the end
        if start * total <= begins < start * total + window or begins < start * total + window - total:
            chosen.add(word)
        begins += sequence[word]
    return chosen


@given(sizes=sequences, rate=st.floats(0.05, 1.0))
@settings(max_examples=100)
def test_whole_words_are_those_that_begin_in_a_window_of_the_rate(sizes: list[list[int]], rate: float) -> None:
    batch = make(sizes)
    places = hide(batch, WholeWordConfig(rate=rate)).targets[MaskedTokens].places
    start = 0
    for item, sequence in enumerate(sizes):
        inside = {int(p) - start - 1 for p in places if start <= p < start + sum(sequence) + 2}
        edges = np.concatenate([[0], np.cumsum(sequence)]).astype(int)
        names = np.full(len(sequence), item)
        keys = random_bits(7, "mask", 0, items=names, draws=edges[:-1] + 1)[0].tolist()
        place = float(random_bits(7, "whole-words", 0, items=np.array([item]), draws=np.array([0]))[0, 0]) / 2**32
        chosen = words_in_window(sequence, keys, place, rate)
        assert inside == {i for word in chosen for i in range(edges[word], edges[word + 1])}
        assert abs(len(inside) - min(sum(sequence), max(1, rate * sum(sequence)))) < max([1, *sequence])
        start += sum(sequence) + 2


@pytest.mark.parametrize("config", WAYS)
def test_masks_do_not_depend_on_the_batch_a_sequence_comes_in(config: CorruptionConfig) -> None:
    batch = make([[1, 2, 3] * 5, [1] * 30, [2, 1] * 9, [4, 1, 1, 1, 1]])
    whole = hide(batch, config, first=100)
    for first, last in ((0, 2), (2, 3), (1, 4)):
        alone = hide(batch.cut(first, last), config, first=100 + first)
        part = whole.cut(first, last)
        assert np.array_equal(alone.tokens.ids, part.tokens.ids)
        assert np.array_equal(alone.targets[MaskedTokens].places, part.targets[MaskedTokens].places)
        assert np.array_equal(alone.targets[MaskedTokens].ids, part.targets[MaskedTokens].ids)


@pytest.mark.parametrize("config", WAYS)
def test_masks_are_fresh_each_epoch_seed_and_item_and_fixed_within(config: CorruptionConfig) -> None:
    batch = make([[1] * 60] * 4)

    def places(**options: int) -> list[int]:
        return hide(batch, config, **options).targets[MaskedTokens].places.tolist()

    assert places(epoch=3) == places(epoch=3)
    seen = [places(), places(epoch=1), places(seed=8), places(first=50)]
    assert all(a != b for i, a in enumerate(seen) for b in seen[:i])
    one = hide(batch, config).cut(0, 1).targets[MaskedTokens].places.tolist()
    other = hide(batch, config).cut(1, 2).targets[MaskedTokens].places.tolist()
    assert one != other  # the same text as another item


@pytest.mark.parametrize("config", [WAYS[0], *(pytest.param(way, marks=pytest.mark.proof) for way in WAYS[1:])])
def test_400_000_masked_tokens_have_the_stated_rate_split_and_frequencies(config: CorruptionConfig) -> None:
    batch = long_batch(10_000, 160)
    out = hide(batch, config)
    masked = out.targets[MaskedTokens]
    assert masked.count >= 400_000
    ordinary = int((batch.tokens.words >= 0).sum())
    assert abs(masked.count / ordinary - 0.15) < 0.001
    now = out.tokens.ids[masked.places]
    hidden = now == MASK
    assert abs(hidden.mean() - 0.8) < 0.003
    weights = np.where(np.arange(SIZE) < 5, 0, COUNTS) / COUNTS[5:].sum()
    changed = ~hidden & (now != masked.ids)
    # a token drawn at random is by chance the one it replaces: then it looks kept
    drawn = changed.sum() / (1 - weights[masked.ids].mean())
    assert abs(drawn / masked.count - 0.1) < 0.003
    assert abs((len(now) - hidden.sum() - drawn) / masked.count - 0.1) < 0.003
    # which tokens: among those that replaced a given word w, every other word v has the share weight_v / (1 − weight_w)
    observed = np.bincount(now[changed], minlength=SIZE)
    replaced = np.bincount(masked.ids[changed], minlength=SIZE)
    shares = np.where(np.eye(SIZE, dtype=bool), 0, weights[None, :]) / (1 - weights)[:, None]
    assert stats.chisquare(observed[5:], (replaced @ shares)[5:]).pvalue > 0.001
    assert observed[:5].sum() == 0


def test_uniform_replacements_are_uniform_over_ordinary_tokens() -> None:
    out = hide(long_batch(2_000, 150), MaskingConfig(mask=0.0, random=1.0, keep=0.0, rate=0.5, replacement="uniform"))
    observed = np.bincount(out.tokens.ids[out.targets[MaskedTokens].places], minlength=SIZE)
    assert observed[:5].sum() == 0
    assert stats.chisquare(observed[5:]).pvalue > 0.001


def test_every_token_of_a_sequence_is_chosen_equally_often() -> None:
    batch = make([[1] * 20] * 20_000)
    places = hide(batch, MaskingConfig(rate=0.25)).targets[MaskedTokens].places
    assert stats.chisquare(np.bincount(places % 22, minlength=22)[1:21]).pvalue > 0.001


def test_one_way_only_and_no_text_at_all() -> None:
    batch = make([[1] * 20] * 3)
    everything = hide(batch, MaskingConfig(rate=1.0, mask=1.0, random=0.0, keep=0.0))
    assert (everything.tokens.ids == MASK).sum() == 60
    kept = hide(batch, WholeWordConfig(mask=0.0, random=0.0, keep=1.0))
    assert np.array_equal(kept.tokens.ids, batch.tokens.ids)
    assert kept.targets[MaskedTokens].count == 9
    assert hide(make([]), MaskingConfig()).targets[MaskedTokens].count == 0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"rate": 1.5}, "corruption.rate = 1.5 must be above 0 and at most 1"),
        ({"rate": 0.0}, "corruption.rate = 0.0 must be above 0 and at most 1"),
        ({"mask": -0.1}, "corruption.mask = -0.1"),
        ({"rate": float("nan")}, "corruption.rate = nan"),
        ({"mask": 0.5}, r"mask \+ random \+ keep = 0.7 must be 1; set corruption.keep = 0.4"),
        ({"mask": 1.0, "keep": 0.0}, "lower corruption.mask or corruption.random"),
    ],
)
@pytest.mark.parametrize("kind", ["tokens", "whole-words"])
def test_settings_that_make_no_sense_are_refused_also_when_read_from_a_file(
    kind: str, wrong: dict[str, float], says: str
) -> None:
    with pytest.raises(RecipeError, match=says):
        msgspec.convert({"type": kind, **wrong}, CorruptionConfig)


def test_settings_are_a_tagged_union_and_strict() -> None:
    assert msgspec.convert({"type": "whole-words", "rate": 0.2}, CorruptionConfig) == WholeWordConfig(rate=0.2)
    with pytest.raises(msgspec.ValidationError, match="rat"):
        msgspec.convert({"type": "tokens", "rat": 0.2}, CorruptionConfig)


def test_drawing_by_frequency_needs_counts() -> None:
    batch = make([[1] * 200])
    for counts, says in ((None, "uniform"), (np.zeros(SIZE, np.int64), "are 0"), (COUNTS[:-1], "39 counts")):
        bare = MaskVocabulary(mask_id=MASK, size=SIZE, special_ids=SPECIAL, counts=counts)
        with pytest.raises(RecipeError, match=says):
            hide(batch, MaskingConfig(), vocabulary=bare)
        hide(batch, MaskingConfig(replacement="uniform"), vocabulary=bare)


def test_items_must_name_every_sequence() -> None:
    with pytest.raises(ValueError, match="1 items for 2 sequences"):
        corrupt(make([[1], [1]]), MaskingConfig(), vocabulary=VOCABULARY, seed=1, epoch=0, items=np.array([1]))
