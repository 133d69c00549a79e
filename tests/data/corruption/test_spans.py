"""Span masking (SpanBERT): the law of the lengths, uniform starts, whole words, the rate, one decision a span."""

from __future__ import annotations

import functools
import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch, edges, ranges
from larvatus.core.errors import DataError, RecipeError
from larvatus.core.pretraining_targets import MaskedTokens, PairLabels, SpanTargets
from larvatus.core.rng import random_bits, stream
from larvatus.data.corruption import Corruption, CorruptionConfig, MaskVocabulary, SpanCorruptionConfig, corrupt
from larvatus.data.corruption.replacement import CorruptionInput
from larvatus.data.corruption.spans import MaskableWords, MaskedSpans, sample_spans
from tests.data.corruption.sequences import random_words

CLS, SEP, MASK, UNK = 0, 1, 2, 3
SPECIAL = frozenset({CLS, SEP, MASK, UNK})
SIZE = 50
COUNTS = np.array([10**6] * 4 + [1000 // (rank + 1) for rank in range(SIZE - 4)])
VOCABULARY = MaskVocabulary(mask_id=MASK, size=SIZE, special_ids=SPECIAL, counts=COUNTS)
PLAIN = SpanCorruptionConfig()


def make(sizes: list[list[int]], unknown: frozenset[int] = frozenset()) -> TrainingBatch[Ints]:
    """``[CLS] words [SEP]`` with words of these sizes; the n-th word of a sequence is [UNK] for n in `unknown`."""
    draw = stream(1, "test spans")
    ids, words = [], []
    for row in sizes:
        pieces = [[UNK] if n in unknown else draw.integers(4, SIZE, size=k).tolist() for n, k in enumerate(row)]
        ids.append([CLS, *(piece for word in pieces for piece in word), SEP])
        words.append([-1, *(n for n, word in enumerate(pieces) for _ in word), -1])
    labels = PairLabels(labels=np.arange(len(sizes)) % 2)
    return TrainingBatch(tokens=TokenBatch.of(ids, words=words), targets={PairLabels: labels})


def text_of(batch: TrainingBatch[Ints], *, first: int = 0, epoch: int = 0) -> CorruptionInput:
    return CorruptionInput(batch.tokens, VOCABULARY, 7, epoch, first + np.arange(batch.tokens.count))


def hide(batch: TrainingBatch[Ints], config: SpanCorruptionConfig = PLAIN, *, first: int = 0) -> TrainingBatch[Ints]:
    items = first + np.arange(batch.tokens.count)
    return corrupt(batch, config, vocabulary=VOCABULARY, seed=7, epoch=0, items=items)


@functools.cache
def many() -> TrainingBatch[Ints]:
    """100,000 sequences of 100 words of one or two pieces."""
    return random_words("test spans", 100_000, 100, cls=CLS, sep=SEP, ids=(4, SIZE))


def alike(count: int, *, words: int) -> TrainingBatch[Ints]:
    """Sequences of so many words of one piece."""
    row, names = [CLS, *range(4, 4 + words), SEP], [-1, *range(words), -1]
    ids, flat = np.tile(np.minimum(row, SIZE - 1), count), np.tile(names, count)
    ids[len(row) - 1 :: len(row)] = SEP
    lengths = np.full(count, len(row))
    tokens = TokenBatch(ids=ids, lengths=lengths, positions=ranges(lengths), segments=np.zeros_like(ids), words=flat)
    return TrainingBatch(tokens=tokens, targets={})


@functools.cache
def drawn() -> tuple[MaskableWords, MaskedSpans]:
    text = text_of(many())
    words = MaskableWords.of(text)
    return words, sample_spans(words, PLAIN, text)


@functools.cache
def hidden_of_many() -> TrainingBatch[Ints]:
    return hide(many())


# — the law —


def test_the_law_is_the_geometric_one_renormalised_which_has_the_papers_mean_of_3_8() -> None:
    lengths = np.arange(1, 11)
    mean = PLAIN.law @ lengths
    assert mean == pytest.approx((5 - 15 * 0.8**10) / (1 - 0.8**10))  # E[l | l ≤ 10] in closed form
    assert round(float(mean), 1) == 3.8
    assert round((1 - 0.8**10) / 0.2, 1) == 4.5  # E[min(l, 10)]: not what is published
    assert PLAIN.law[1:] / PLAIN.law[:-1] == pytest.approx(np.full(9, 0.8))
    assert SpanCorruptionConfig(geometric=1.0).law.tolist() == [1.0] + [0.0] * 9


@pytest.mark.proof
def test_lengths_of_all_spans_of_100_000_sequences_follow_the_law_and_end_at_ten() -> None:
    """All of them, not only the first of each sequence: none is cut because a budget was spent."""
    _, spans = drawn()
    lengths = np.arange(1, 11)
    mean = PLAIN.law @ lengths
    deviation = np.sqrt(PLAIN.law @ lengths**2 - mean**2)
    assert len(spans.lengths) == pytest.approx(100_000 * 15 / mean, rel=0.005)
    assert abs(spans.lengths.mean() - mean) < 4 * deviation / np.sqrt(len(spans.lengths))
    assert stats.chisquare(np.bincount(spans.lengths, minlength=11)[1:], PLAIN.law * len(spans.lengths)).pvalue > 0.001


def test_in_the_text_of_long_sequences_spans_follow_the_law_but_for_those_at_the_ends() -> None:
    """At the published length, counted in the text: a span that would run over an end becomes two shorter ones."""
    batch = alike(1_500, words=510)
    spans = hide(batch).targets[SpanTargets]
    starts = np.flatnonzero(spans.place == 0)
    lengths = np.diff(starts, append=spans.count)
    place = spans.left[starts] % 512
    inner = (place > 0) & (place + lengths + 1 < 511)
    assert 0.98 < inner.mean() < 0.995
    assert stats.chisquare(np.bincount(lengths, minlength=11)[1:], PLAIN.law * len(lengths)).pvalue > 0.001
    assert abs(lengths.mean() - PLAIN.mean) < 0.05


def test_every_word_of_a_sequence_is_hidden_equally_often_also_the_first_and_the_last() -> None:
    batch = alike(40_000, words=30)
    places = hide(batch).targets[MaskedTokens].places % 32
    assert stats.chisquare(np.bincount(places, minlength=32)[1:31]).pvalue > 0.001
    assert len(places) / (30 * 40_000) == pytest.approx(0.15, rel=0.01)


@pytest.mark.proof
def test_starts_are_uniform_on_the_circle() -> None:
    _, spans = drawn()
    first = spans.rounds == 0
    starts = spans.words[first] % 100
    for length in (1, 3, 10):
        assert stats.chisquare(np.bincount(starts[spans.lengths[first] == length], minlength=100)).pvalue > 0.001


# — the rate, words, targets —


@pytest.mark.proof
def test_the_rate_is_met_on_average_and_missed_by_at_most_the_longest_span() -> None:
    words, spans = drawn()
    spent = np.zeros(100_000, dtype=np.int64)
    np.add.at(spent, words.sequences[spans.words], spans.lengths)
    assert np.abs(spent - 15).max() <= 10
    assert abs(spent.mean() - 15) < 4 * spent.std() / np.sqrt(100_000) < 0.06
    tokens = hidden_of_many().targets[MaskedTokens].count
    assert tokens / (many().tokens.lengths - 2).sum() == pytest.approx(0.15, abs=0.0005)


rows = st.lists(st.lists(st.integers(1, 5), max_size=40), min_size=1, max_size=6)
configs = st.builds(
    SpanCorruptionConfig,
    rate=st.floats(0.02, 1.0),
    geometric=st.sampled_from([0.05, 0.2, 1.0]),
    longest=st.integers(1, 12),
)


@given(sizes=rows, config=configs, unknown=st.frozensets(st.integers(0, 39), max_size=4))
@settings(max_examples=150)
def test_targets_are_whole_words_in_spans_that_never_overlap_or_touch(
    sizes: list[list[int]], config: SpanCorruptionConfig, unknown: frozenset[int]
) -> None:
    batch = make(sizes, unknown)
    tokens = batch.tokens
    out = hide(batch, config)
    masked, spans = out.targets[MaskedTokens], out.targets[SpanTargets]
    assert out.targets[PairLabels] is batch.targets[PairLabels]
    assert np.all(np.diff(masked.places) > 0)  # so no token is in two spans
    assert np.array_equal(spans.ids, masked.ids)
    assert np.array_equal(masked.ids, tokens.ids[masked.places])
    assert np.array_equal(masked.places, spans.left + 1 + spans.place)
    assert np.all((spans.left < masked.places) & (masked.places < spans.right))
    assert not set(masked.ids.tolist()) & SPECIAL
    assert set(np.flatnonzero(out.tokens.ids != tokens.ids)) <= set(masked.places.tolist())
    hidden, sequence = set(masked.places.tolist()), np.repeat(np.arange(tokens.count), tokens.lengths)
    names = list(zip(sequence.tolist(), tokens.words.tolist(), strict=True))
    whole = {name: {i for i, other in enumerate(names) if other == name} for name in {names[i] for i in hidden}}
    assert all(places <= hidden for places in whole.values())
    assert not hidden & {*spans.left.tolist(), *spans.right.tolist()}
    for left, right in set(zip(spans.left.tolist(), spans.right.tolist(), strict=True)):
        assert set(range(left + 1, right)) <= hidden
        assert sequence[left] == sequence[right]
        assert len({names[i] for i in range(left + 1, right)}) <= config.longest


def naive(batch: TrainingBatch[Ints], config: SpanCorruptionConfig, item: int) -> list[tuple[int, int, int]]:
    """The module's words as a loop over one sequence: (first token, one past the last, decision)."""
    ids, words = batch.tokens.ids.tolist(), batch.tokens.words.tolist()
    spans: list[list[int]] = []
    for i, word in enumerate(words):
        if i and words[i - 1] == word:
            spans[-1].append(i)
        else:
            spans.append([i])
    good = [not {ids[i] for i in word} & SPECIAL and word[0] > 0 and word[-1] < len(ids) - 1 for word in spans]
    circle = [word for word, fine in zip(spans, good, strict=True) if fine]
    count, free, found, law = len(circle), [True] * sum(good), [], np.cumsum(config.law)

    def room(start: int) -> int:
        return next((n for n in range(count) if not free[(start + n) % count]), count)

    left = max(1.0, config.rate * count)
    for k in range(10**6):
        bits = random_bits(7, "spans", 0, items=np.array([item]), draws=np.array([k]))[:, 0].tolist()
        left -= age(config, bits[3] / 2**32) if k == 0 else 0
        if left <= 0 or not any(free):
            return sorted(found)
        length = min(int((law <= bits[0] / 2**32).sum()) + 1, config.longest, max(map(room, range(count))))
        starts = [w for w in range(count) if room(w) >= length]
        start = starts[bits[1] * len(starts) >> 32]
        left -= length
        for n in range(-1, length + 1):
            free[(start + n) % count] = False
        pieces = sorted(i for n in range(length) for i in circle[(start + n) % count])
        cuts = [0, *(n for n in range(1, len(pieces)) if pieces[n] != pieces[n - 1] + 1), len(pieces)]
        found += [(pieces[a], pieces[b - 1] + 1, bits[2]) for a, b in itertools.pairwise(cuts)]
    raise AssertionError("spans without end")


def age(config: SpanCorruptionConfig, share: float) -> float:
    """x with P(d ≤ x) = share, by bisection of 1 − Σ_{l > x} (l − x) P(l) / Σ l P(l)."""
    lengths = np.arange(1, config.longest + 1)
    low, high = 0.0, float(config.longest)
    for _ in range(80):
        x = (low + high) / 2
        below = 1 - np.maximum(lengths - x, 0) @ config.law / (lengths @ config.law)
        low, high = (x, high) if below < share else (low, x)
    return low


@given(sizes=rows, config=configs, unknown=st.frozensets(st.integers(0, 39), max_size=4), first=st.integers(0, 9))
@settings(max_examples=150)
def test_all_sequences_at_once_have_the_spans_that_the_plain_loop_draws(
    sizes: list[list[int]], config: SpanCorruptionConfig, unknown: frozenset[int], first: int
) -> None:
    """The loop sees one sequence at a time: so this also says that spans do not depend on the batch."""
    batch = make(sizes, unknown)
    text = text_of(batch, first=first)
    words = MaskableWords.of(text)
    spans = sample_spans(words, config, text).within_runs(words)
    ends = words.ends[spans.words + spans.lengths - 1]
    ours = list(zip(words.firsts[spans.words].tolist(), ends.tolist(), spans.bits.tolist(), strict=True))
    edge = edges(batch.tokens.lengths).tolist()
    theirs = [
        (a + edge[i], b + edge[i], bits)
        for i in range(batch.tokens.count)
        for a, b, bits in naive(batch.cut(i, i + 1), config, first + i)
    ]
    assert ours == theirs


@given(sizes=rows, config=configs, cut=st.integers(0, 6))
@settings(max_examples=80)
def test_what_is_hidden_does_not_depend_on_the_batch(
    sizes: list[list[int]], config: SpanCorruptionConfig, cut: int
) -> None:
    batch = make(sizes)
    cut = min(cut, batch.tokens.count)
    whole = hide(batch, config)
    for first, last in ((0, cut), (cut, batch.tokens.count)):
        alone, part = hide(batch.cut(first, last), config, first=first), whole.cut(first, last)
        assert np.array_equal(alone.tokens.ids, part.tokens.ids)
        for kind, names in ((MaskedTokens, ("places", "ids")), (SpanTargets, ("left", "right", "place", "ids"))):
            for name in names:
                assert np.array_equal(getattr(alone.targets[kind], name), getattr(part.targets[kind], name))


def test_spans_are_fresh_each_epoch_and_item() -> None:
    batch = make([[1] * 80] * 2)

    def places(**options: int) -> list[int]:
        text = text_of(batch, **options)
        return PLAIN.hide(text).places_M.tolist()

    assert places() == places()
    assert len({tuple(p) for p in (places(), places(epoch=1), places(first=5))}) == 3


# — one decision a span —


@pytest.mark.proof
def test_one_decision_for_a_whole_span_80_10_10_over_100_000_sequences() -> None:
    out = hidden_of_many()
    spans, now = out.targets[SpanTargets], out.tokens.ids[out.targets[MaskedTokens].places]
    starts = np.flatnonzero(spans.place == 0)
    tokens = np.diff(starts, append=len(now))
    masked = np.add.reduceat((now == MASK).astype(np.int64), starts)
    assert set(np.unique(masked / tokens)) == {0.0, 1.0}  # all of a span or nothing
    same = np.add.reduceat((now == spans.ids).astype(np.int64), starts) == tokens
    long = tokens >= 6  # so long that random tokens are never all the same as before by chance
    count = int(long.sum())
    for share, seen in ((0.8, masked[long] > 0), (0.1, same[long])):
        assert abs(seen.mean() - share) < 4 * np.sqrt(share * (1 - share) / count)
    random = long & (masked == 0) & ~same
    assert abs(random[long].mean() - 0.1) < 4 * np.sqrt(0.09 / count)
    drawn_ids = now[np.repeat(random, tokens)]  # token by token, by frequency
    weights = COUNTS[4:] / COUNTS[4:].sum()
    assert stats.chisquare(np.bincount(drawn_ids, minlength=SIZE)[4:], weights * len(drawn_ids)).pvalue > 0.001


def test_one_way_only() -> None:
    batch = make([[2, 1] * 20])
    hidden, kept, other = (
        hide(batch, SpanCorruptionConfig(mask=m, random=r, keep=k, rate=0.5, replacement="uniform"))
        for m, r, k in ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, 1.0, 0.0))
    )
    assert np.all(hidden.tokens.ids[hidden.targets[MaskedTokens].places] == MASK)
    assert np.array_equal(kept.tokens.ids, batch.tokens.ids)
    assert kept.targets[MaskedTokens].count > 20
    assert MASK not in other.tokens.ids
    assert not np.array_equal(other.tokens.ids, batch.tokens.ids)


# — what cannot work —


def test_a_word_longer_than_the_rate_is_hidden_now_and_then_and_text_without_words_is_refused() -> None:
    alone = hide(make([[9]] * 1_000)).targets[MaskedTokens].count / 9
    assert alone / 1_000 == pytest.approx(1 / PLAIN.mean, abs=0.06)  # P(d < 1)
    call = Corruption(PLAIN, VOCABULARY, 7)
    with pytest.raises(
        DataError, match=r"nothing can be hidden in 2 sequences of 6 tokens: it has no word of ordinary"
    ):
        call(make([[1], [1]], unknown=frozenset({0})), 0, 0)
    unlucky = next(i for i in range(50) if not hide(make([[1]]), first=i).targets[MaskedTokens].count)
    assert call(make([[1]]), 0, unlucky).targets[MaskedTokens].count == 0  # by chance: no reason to stop


def test_without_special_tokens_around_it_a_text_keeps_its_first_and_last_word() -> None:
    batch = TrainingBatch(tokens=TokenBatch.of([[7, 8, 9, 10, 11]], words=[[0, 0, 1, 2, 3]]), targets={})
    hidden = [hide(batch, first=item).targets[MaskedTokens].places.tolist() for item in range(100)]
    assert {place for places in hidden for place in places} == {2, 3}
    assert hide(make([])).targets[SpanTargets].count == 0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"geometric": 0.0}, "corruption.geometric = 0.0 must be above 0"),
        ({"geometric": float("nan")}, "corruption.geometric = nan"),
        ({"geometric": 1.5}, "corruption.geometric = 1.5"),
        ({"longest": 0}, "corruption.longest = 0 must lie between 1 and 1,000"),
        ({"rate": 1.5}, "corruption.rate = 1.5"),
        ({"mask": 0.5}, "set corruption.keep = 0.4"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        msgspec.convert({"type": "spans", **wrong}, CorruptionConfig)
