"""N-gram masking (ALBERT): p(n) ∝ 1/n, whole words, the rate, who decides; and recipes that leave no room for it."""

from __future__ import annotations

import functools

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch, edges
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import MaskedTokens, SpanTargets
from larvatus.core.rng import stream
from larvatus.data.corruption import CorruptionConfig, MaskVocabulary, NGramsConfig, corrupt
from larvatus.data.corruption.replacement import CorruptionInput
from larvatus.data.corruption.spans import MaskableWords, sample_spans
from larvatus.models.recipes import read_recipe
from tests.data.corruption.sequences import random_words

CLS, SEP, MASK = 0, 1, 2
SIZE = 50
VOCABULARY = MaskVocabulary(mask_id=MASK, size=SIZE, special_ids={CLS, SEP, MASK}, counts=np.arange(SIZE))
PLAIN = NGramsConfig()


def make(sizes: list[list[int]]) -> TrainingBatch[Ints]:
    """``[CLS] words [SEP]`` with words of these sizes."""
    draw = stream(1, "test n-grams")
    ids = [[CLS, *draw.integers(3, SIZE, size=sum(row)).tolist(), SEP] for row in sizes]
    words = [[-1, *np.repeat(np.arange(len(row)), row).tolist(), -1] for row in sizes]
    return TrainingBatch(tokens=TokenBatch.of(ids, words=words), targets={})


def hide(batch: TrainingBatch[Ints], config: CorruptionConfig = PLAIN, *, first: int = 0) -> TrainingBatch[Ints]:
    items = first + np.arange(batch.tokens.count)
    return corrupt(batch, config, vocabulary=VOCABULARY, seed=7, epoch=0, items=items)


@functools.cache
def many() -> TrainingBatch[Ints]:
    """6,000 sequences of 200 words of one or two pieces."""
    return random_words("test n-grams", 6_000, 200, cls=CLS, sep=SEP, ids=(3, SIZE))


def words_of_spans(batch: TrainingBatch[Ints], spans: SpanTargets[Ints]) -> Ints:
    """How many words each hidden n-gram has, counted in the text itself."""
    starts = np.flatnonzero(spans.place == 0)
    places = spans.left + 1 + spans.place
    new = batch.tokens.words[places] != batch.tokens.words[places - 1]
    counts: Ints = np.add.reduceat(new.astype(np.int64), starts)
    return counts


def test_the_law_is_one_over_n() -> None:
    assert pytest.approx([6 / 11, 3 / 11, 2 / 11]) == PLAIN.law
    assert NGramsConfig(longest=1).law.tolist() == [1.0]
    assert (PLAIN.rate, PLAIN.mask, PLAIN.random, PLAIN.keep, PLAIN.longest) == (0.15, 0.8, 0.1, 0.1, 3)


def test_n_grams_over_6_000_sequences_follow_the_law() -> None:
    batch = many()
    text = CorruptionInput(batch.tokens, VOCABULARY, 7, 0, np.arange(batch.tokens.count))
    drawn = sample_spans(MaskableWords.of(text), PLAIN, text).lengths
    assert len(drawn) == pytest.approx(6_000 * 30 / PLAIN.mean, rel=0.005)
    assert stats.chisquare(np.bincount(drawn, minlength=4)[1:], PLAIN.law * len(drawn)).pvalue > 0.001
    lengths = words_of_spans(batch, hide(batch).targets[SpanTargets])
    shares = np.bincount(lengths, minlength=4)[1:] / len(lengths)
    assert np.abs(shares - PLAIN.law).max() < 0.005  # some 18 a sequence, now and then one parted by its end
    assert len(shares) == 3


def test_15_percent_of_tokens_are_hidden_and_of_words_within_an_n_gram() -> None:
    batch = many()
    places = hide(batch).targets[MaskedTokens].places
    new = batch.tokens.words[places] != batch.tokens.words[places - 1]
    words = np.histogram(places[new], bins=edges(batch.tokens.lengths))[0]
    assert np.abs(words - 30).max() <= 3
    assert abs(len(places) / (batch.tokens.lengths - 2).sum() - 0.15) < 0.001


@given(
    sizes=st.lists(st.lists(st.integers(1, 5), max_size=40), min_size=1, max_size=6),
    config=st.builds(NGramsConfig, rate=st.floats(0.02, 1.0), longest=st.integers(1, 5)),
    cut=st.integers(0, 6),
)
@settings(max_examples=120)
def test_whole_words_within_the_longest_whatever_the_batch(
    sizes: list[list[int]], config: NGramsConfig, cut: int
) -> None:
    batch = make(sizes)
    out = hide(batch, config)
    spans, places = out.targets[SpanTargets], set(out.targets[MaskedTokens].places.tolist())
    tokens = batch.tokens
    names = list(zip(np.repeat(np.arange(tokens.count), tokens.lengths).tolist(), tokens.words.tolist(), strict=True))
    chosen = {names[place] for place in places}
    assert {place for place, name in enumerate(names) if name in chosen} == places
    if spans.count:
        assert words_of_spans(batch, spans).max() <= config.longest
    cut = min(cut, tokens.count)
    for first, last in ((0, cut), (cut, tokens.count)):
        alone, part = hide(batch.cut(first, last), config, first=first), out.cut(first, last)
        assert np.array_equal(alone.tokens.ids, part.tokens.ids)
        assert np.array_equal(alone.targets[MaskedTokens].places, part.targets[MaskedTokens].places)


@pytest.mark.parametrize("decision", ["tokens", "n-grams"])
def test_80_10_10_for_each_token_or_once_for_an_n_gram(decision: str) -> None:
    batch = many()
    out = hide(batch, msgspec.convert({"type": "n-grams", "decision": decision}, NGramsConfig))
    spans, now = out.targets[SpanTargets], out.tokens.ids[out.targets[MaskedTokens].places]
    starts = np.flatnonzero(spans.place == 0)
    tokens = np.diff(starts, append=len(now))
    masked = np.add.reduceat((now == MASK).astype(np.int64), starts)
    three = masked[tokens == 3]
    expected = stats.binom.pmf(np.arange(4), 3, 0.8) if decision == "tokens" else np.array([0.2, 0, 0, 0.8])
    assert np.abs(np.bincount(three, minlength=4) / len(three) - expected).max() < 0.015
    assert abs((now == MASK).mean() - 0.8) < 0.005
    weights = np.where(np.arange(SIZE) < 3, 0, np.arange(SIZE))
    kept = 0.1 + 0.1 * (weights / weights.sum())[spans.ids].mean()  # a random token is by chance the same
    assert abs((now == spans.ids).mean() - kept) < 0.005


# — recipes that leave no room —


@pytest.mark.parametrize(
    ("name", "settings", "line"),
    [
        ("spanbert", ["phases.0.length=16"], "14 tokens of text at corruption.rate = 0.15 may hide 2, too few for a "),
        ("spanbert", ["corruption.rate=0.001"], "may hide 1, too few for a span of 3.8 words (the mean); lengthen the"),
        ("bert", ["corruption.type=n-grams", "phases.0.length=8"], "may hide 1, too few for a span of 1.6 words"),
        (
            "bert",
            ["corruption.type=n-grams", "corruption.rate=0.5"],
            "0.5 is more than spans of 1.6 words (the mean) that",
        ),
        ("spanbert", ["corruption.rate=0.8"], "set it to at most 0.65, or raise corruption.longest"),
        ("bert", ["corruption.type=n-grams", "corruption.longest=0"], "corruption.longest = 0 must lie between 1 and"),
        ("bert", ["corruption.type=n-grams", "corruption.decision=words"], "corruption.decision"),
    ],
)
def test_recipes_that_leave_no_budget_for_an_average_span_are_refused(
    name: str, settings: list[str], line: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        read_recipe(name, settings=settings)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_recipes_at_the_edge_are_read() -> None:
    assert read_recipe("spanbert", settings=["phases.0.length=32"]).phases[0].length == 32
    assert read_recipe("bert", settings=["corruption.type=n-grams", "phases.0.length=16"]).corruption == PLAIN
