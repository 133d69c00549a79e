"""Span masking (SpanBERT): the law of the lengths, uniform starts, whole words, the budget, one decision a span."""

from __future__ import annotations

import functools

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from larvatus.batch import Ints, MaskedTokens, PairLabels, SpanTargets, TokenBatch, TrainingBatch, edges, ranges
from larvatus.corrupt import Corruption, CorruptionConfig, MaskVocabulary, SpansConfig, corrupt
from larvatus.corrupt.replacement import Text
from larvatus.corrupt.spans import Spans, Words, draw_spans
from larvatus.errors import DataError, RecipeError
from larvatus.rng import random_bits, stream

CLS, SEP, MASK, UNK = 0, 1, 2, 3
SPECIAL = frozenset({CLS, SEP, MASK, UNK})
SIZE = 50
COUNTS = np.array([10**6] * 4 + [1000 // (rank + 1) for rank in range(SIZE - 4)])
VOCABULARY = MaskVocabulary(mask_id=MASK, size=SIZE, special_ids=SPECIAL, counts=COUNTS)
PLAIN = SpansConfig()


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


def text_of(batch: TrainingBatch[Ints], *, first: int = 0, epoch: int = 0) -> Text:
    return Text(batch.tokens, VOCABULARY, 7, epoch, first + np.arange(batch.tokens.count))


def hide(batch: TrainingBatch[Ints], config: SpansConfig = PLAIN, *, first: int = 0) -> TrainingBatch[Ints]:
    items = first + np.arange(batch.tokens.count)
    return corrupt(batch, config, vocabulary=VOCABULARY, seed=7, epoch=0, items=items)


@functools.cache
def many() -> TrainingBatch[Ints]:
    """100,000 sequences of 100 words of one or two pieces: a first span of ten words always fits the budget."""
    draw = stream(2, "test spans")
    count, words = 100_000, 100
    sizes = draw.choice([1, 1, 1, 2], size=(count, words + 2))
    sizes[:, [0, -1]] = 1
    lengths = sizes.sum(1)
    names = np.tile(np.concatenate([[-1], np.arange(words), [-1]]), (count, 1))
    ids = draw.integers(4, SIZE, size=int(lengths.sum()))
    edge = edges(lengths)
    ids[edge[:-1]], ids[edge[1:] - 1] = CLS, SEP
    flat = np.repeat(names.ravel(), sizes.ravel())
    zeros = np.zeros_like(ids)
    return TrainingBatch(
        tokens=TokenBatch(ids=ids, lengths=lengths, positions=ranges(lengths), segments=zeros, words=flat), targets={}
    )


@functools.cache
def drawn() -> tuple[Words, Spans]:
    text = text_of(many())
    words = Words.of(text, rate=PLAIN.rate)
    return words, draw_spans(words, PLAIN, text)


# — the law —


def test_the_law_is_the_geometric_one_renormalised_which_has_the_papers_mean_of_3_8() -> None:
    lengths = np.arange(1, 11)
    mean = PLAIN.law @ lengths
    assert mean == pytest.approx((5 - 15 * 0.8**10) / (1 - 0.8**10))  # E[l | l ≤ 10] in closed form
    assert round(float(mean), 1) == 3.8
    assert round((1 - 0.8**10) / 0.2, 1) == 4.5  # E[min(l, 10)]: not what is published
    assert PLAIN.law[1:] / PLAIN.law[:-1] == pytest.approx(np.full(9, 0.8))
    assert SpansConfig(geometric=1.0).law.tolist() == [1.0] + [0.0] * 9


def test_span_lengths_over_100_000_sequences_follow_the_law_and_end_at_ten() -> None:
    _, spans = drawn()
    first = spans.lengths[spans.rounds == 0]
    assert len(first) == 100_000
    lengths = np.arange(1, 11)
    mean = PLAIN.law @ lengths
    deviation = np.sqrt(PLAIN.law @ lengths**2 - mean**2)
    assert abs(first.mean() - mean) < 4 * deviation / np.sqrt(len(first))
    assert stats.chisquare(np.bincount(first, minlength=11)[1:], PLAIN.law * len(first)).pvalue > 0.001
    assert spans.lengths.max() == 10


def lengths_by_law_and_budget(budget: int, draw: np.random.Generator) -> list[int]:
    """Spans of one sequence from the law and the budget alone, as if there were room for them anywhere."""
    lengths = []
    while budget:
        wanted, taken = int(draw.choice(10, p=PLAIN.law)) + 1, 0
        while taken < wanted:
            size = int(draw.choice([1, 1, 1, 2])) if taken or budget > 1 else 1  # the first word is one that fits
            if size > budget:
                break
            budget, taken = budget - size, taken + 1
        lengths.append(taken)
        budget = budget if taken == wanted else 0
    return lengths


def test_the_mean_of_all_spans_is_that_of_the_law_less_what_the_last_span_is_cut_by() -> None:
    words, spans = drawn()
    draw = stream(5, "test spans")
    budgets = draw.choice(words.budgets, size=1_500)
    expected = np.array([n for budget in budgets for n in lengths_by_law_and_budget(int(budget), draw)])
    error = np.sqrt(expected.var() / len(expected) + spans.lengths.var() / len(spans.lengths))
    assert abs(spans.lengths.mean() - expected.mean()) < 4 * error
    assert abs(spans.lengths.mean() - 3.27) < 0.02  # five spans a sequence, one of them cut
    full = text_of(make([[1] * 510] * 1_000))
    lengths = draw_spans(Words.of(full, rate=PLAIN.rate), PLAIN, full).lengths
    assert 3.6 < lengths.mean() < 3.8  # at the published length the cut hardly shows


def test_starts_are_uniform_among_those_consistent_with_the_length() -> None:
    _, spans = drawn()
    first = spans.rounds == 0
    starts = spans.words[first] % 100
    for length in (1, 3, 10):
        seen = np.bincount(starts[spans.lengths[first] == length], minlength=100)
        assert seen[101 - length :].sum() == 0
        assert stats.chisquare(seen[: 101 - length]).pvalue > 0.001


# — the budget, words, targets —


def test_the_budget_over_100_000_sequences_is_kept_and_missed_by_less_than_a_word() -> None:
    words, spans = drawn()
    spent = np.zeros(100_000, dtype=np.int64)
    tokens = words.ends[spans.words + spans.lengths - 1] - words.firsts[spans.words]
    np.add.at(spent, words.sequences[spans.words], tokens)
    assert np.array_equal(words.budgets, np.rint(0.15 * (many().tokens.lengths - 2)).astype(np.int64))
    short = words.budgets - spent
    assert set(np.unique(short)) == {0, 1}  # words have at most two tokens
    assert 0.147 < spent.sum() / (many().tokens.lengths - 2).sum() <= 0.1505


rows = st.lists(st.lists(st.integers(1, 5), max_size=40), min_size=1, max_size=6)
configs = st.builds(
    SpansConfig, rate=st.floats(0.02, 1.0), geometric=st.sampled_from([0.05, 0.2, 1.0]), longest=st.integers(1, 12)
)


@given(sizes=rows, config=configs, unknown=st.frozensets(st.integers(0, 39), max_size=4))
@settings(max_examples=150)
def test_targets_are_whole_words_in_spans_that_never_overlap(
    sizes: list[list[int]], config: SpansConfig, unknown: frozenset[int]
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
    for left, right in set(zip(spans.left.tolist(), spans.right.tolist(), strict=True)):
        assert set(range(left + 1, right)) <= hidden
        assert sequence[left] == sequence[right]
        assert len({names[i] for i in range(left + 1, right)}) <= config.longest


def naive(batch: TrainingBatch[Ints], config: SpansConfig, item: int) -> list[tuple[int, int, int]]:
    """The module's words as a loop over one sequence: (first token, one past the last, decision)."""
    ids, words = batch.tokens.ids.tolist(), batch.tokens.words.tolist()
    spans: list[list[int]] = []
    for i, word in enumerate(words):
        if i and words[i - 1] == word:
            spans[-1].append(i)
        else:
            spans.append([i])
    good = [not {ids[i] for i in word} & SPECIAL and word[0] > 0 and word[-1] < len(ids) - 1 for word in spans]
    total = sum(len(word) for word, fine in zip(spans, good, strict=True) if fine)
    left, found = min(total, max(1, round(config.rate * total))), []
    law = np.cumsum(config.law)
    for k in range(10**6):
        free = [0] * (len(spans) + 1)
        for w in reversed(range(len(spans))):
            free[w] = free[w + 1] + 1 if good[w] else 0
        fit = [w for w in range(len(spans)) if free[w] and len(spans[w]) <= left]
        if not fit:
            return sorted(found)
        bits = random_bits(7, "spans", 0, items=np.array([item]), draws=np.array([k]))[:, 0].tolist()
        length = min(int((law <= bits[0] / 2**32).sum()) + 1, config.longest, max(free[w] for w in fit))
        starts = [w for w in fit if free[w] >= length]
        start = starts[bits[1] * len(starts) >> 32]
        taken = 0
        while taken < length and len(spans[start + taken]) <= left:
            left -= len(spans[start + taken])
            good[start + taken] = False
            taken += 1
        left = 0 if taken < length else left
        found.append((spans[start][0], spans[start + taken - 1][-1] + 1, bits[2]))
    raise AssertionError("spans without end")


@given(sizes=rows, config=configs, unknown=st.frozensets(st.integers(0, 39), max_size=4), first=st.integers(0, 9))
@settings(max_examples=150)
def test_all_sequences_at_once_have_the_spans_that_the_plain_loop_draws(
    sizes: list[list[int]], config: SpansConfig, unknown: frozenset[int], first: int
) -> None:
    """The loop sees one sequence at a time: so this also says that spans do not depend on the batch."""
    batch = make(sizes, unknown)
    text = text_of(batch, first=first)
    words = Words.of(text, rate=config.rate)
    spans = draw_spans(words, config, text).in_order()
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
def test_what_is_hidden_does_not_depend_on_the_batch(sizes: list[list[int]], config: SpansConfig, cut: int) -> None:
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


def test_one_decision_for_a_whole_span_80_10_10_over_100_000_sequences() -> None:
    batch = many()
    out = hide(batch)
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
        hide(batch, SpansConfig(mask=m, random=r, keep=k, rate=0.5, replacement="uniform"))
        for m, r, k in ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, 1.0, 0.0))
    )
    assert np.all(hidden.tokens.ids[hidden.targets[MaskedTokens].places] == MASK)
    assert np.array_equal(kept.tokens.ids, batch.tokens.ids)
    assert kept.targets[MaskedTokens].count > 20
    assert MASK not in other.tokens.ids
    assert not np.array_equal(other.tokens.ids, batch.tokens.ids)


# — what cannot work —


def test_a_sequence_in_which_no_word_fits_has_no_targets_and_a_batch_of_such_is_refused() -> None:
    short, long = [[9]], [[1] * 30]
    mixed = hide(make(short + long))
    assert mixed.targets[SpanTargets].count == 4
    assert mixed.targets[SpanTargets].left.min() >= 11  # none in the first sequence
    call = Corruption(PLAIN, VOCABULARY, 7)
    assert call(make(short + long), 0, 0).targets[MaskedTokens].count == 4
    with pytest.raises(DataError, match=r"nothing can be hidden in 2 sequences of 22 tokens.*raise corruption\.rate"):
        call(make(short + short), 0, 0)
    nothing = Corruption(SpansConfig(rate=0.0), VOCABULARY, 7)(make(long), 0, 0)
    assert nothing.targets[SpanTargets].count == 0


def test_without_special_tokens_around_it_a_text_keeps_its_first_and_last_word() -> None:
    batch = TrainingBatch(tokens=TokenBatch.of([[7, 8, 9, 10, 11]], words=[[0, 0, 1, 2, 3]]), targets={})
    out = hide(batch, SpansConfig(rate=1.0))
    assert out.targets[MaskedTokens].places.tolist() == [2, 3]
    assert hide(make([])).targets[SpanTargets].count == 0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"geometric": 0.0}, "corruption.geometric = 0.0 must lie above 0"),
        ({"geometric": float("nan")}, "corruption.geometric = nan"),
        ({"geometric": 1.5}, "corruption.geometric = 1.5"),
        ({"longest": 0}, "corruption.longest = 0 must lie between 1 and 1000"),
        ({"rate": 1.5}, "corruption.rate = 1.5"),
        ({"mask": 0.5}, "set corruption.keep = 0.4"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        msgspec.convert({"type": "spans", **wrong}, CorruptionConfig)
