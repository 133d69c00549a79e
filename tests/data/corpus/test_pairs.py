"""Pairs of segments: what stands in A and B, what comes how often, how full they are; against plain loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.core.batch import edges
from larvatus.core.pretraining_targets import OrderLabels, PairLabels
from larvatus.data.corpus.block import TextBlock
from larvatus.data.corpus.packing import PackingConfig, SentenceOrderPackingConfig, SentencePairsConfig
from tests.data.corpus.test_packing import FIRST, blocks, document_of, packed, taken_apart

Places = tuple[int, int]
"""Where a stretch starts and ends."""


def pairs_of(block: TextBlock, config: PackingConfig, length: int, seed: int = 0) -> list[tuple[Places, Places, int]]:
    """A, B and label of each pair, as places in the block; every stretch must be contiguous."""
    batch = packed(block, config, length, seed)
    pairs = []
    for sequence, label in zip(taken_apart(batch), batch.targets[config.gives[0]].labels.tolist(), strict=True):
        a, b = sequence.stretches
        assert a == list(range(a[0], a[-1] + 1))
        assert b == list(range(b[0], b[-1] + 1))
        pairs.append(((a[0], a[-1] + 1), (b[0], b[-1] + 1), label))
    return pairs


def large_block(seed: int = 0, documents: int = 1500, longest: int = 50) -> TextBlock:
    """Sentences of 1 to `longest` tokens, documents of 1 to 30 sentences; a token's id says where it stands."""
    random = np.random.default_rng(seed)
    lengths = [random.integers(1, longest, random.integers(1, 31)) for _ in range(documents)]
    sentences = edges(np.concatenate(lengths))
    return TextBlock(
        ids=np.arange(FIRST, FIRST + sentences[-1]),
        words=np.ones(int(sentences[-1]), np.bool_),
        sentences=sentences,
        documents=sentences[edges(np.array([len(document) for document in lengths]))],
        numbers=np.arange(documents),
    )


@st.composite
def blocks_of_languages(draw: st.DrawFn) -> TextBlock:
    block = draw(blocks())
    count = len(block.numbers)
    numbers = draw(st.sampled_from([np.arange(count), np.arange(count) % 2]))
    languages = draw(st.sampled_from([None, np.arange(count) % 3, np.arange(count) // 2 % 2]))
    return TextBlock(block.ids, block.words, block.sentences, block.documents, numbers, languages)


@given(block=blocks_of_languages(), length=st.integers(5, 64), seed=st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_next_is_adjacent_and_random_is_of_another_document_of_the_language(
    block: TextBlock, length: int, seed: int
) -> None:
    for a, b, label in pairs_of(block, SentencePairsConfig(), length, seed):
        home, other = document_of(block, a[0]), document_of(block, b[0])
        assert document_of(block, a[1] - 1) == home
        assert document_of(block, b[1] - 1) == other
        assert a[1] - a[0] + b[1] - b[0] + 3 <= length
        if label == 0:
            assert b[0] == a[1]
            assert home == other
        else:
            assert block.numbers[home] != block.numbers[other]
            if block.languages is not None and block.languages[home] != block.languages[other]:
                tongues = [block.numbers[block.languages == block.languages[d]] for d in (home, other)]
                assert min(len(set(t.tolist())) for t in tongues) == 1, "another document of the language was there"


@pytest.mark.parametrize("config", [SentencePairsConfig(), SentenceOrderPackingConfig()])
@given(block=blocks_of_languages(), length=st.integers(5, 64), seed=st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_only_documents_that_have_no_pair_are_left_out(
    config: PackingConfig, block: TextBlock, length: int, seed: int
) -> None:
    seen = np.bincount(packed(block, config, length, seed).tokens.ids, minlength=FIRST + len(block.ids))[FIRST:]
    order = isinstance(config, SentenceOrderPackingConfig)
    units = np.diff(np.searchsorted(block.sentences, block.documents)) if order else np.diff(block.documents)
    kept = np.repeat(units > 1, np.diff(block.documents))
    assert (seen[kept] >= 1).all()
    assert not seen[~kept].any()


@given(block=blocks(least_documents=1), length=st.integers(5, 64), seed=st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_the_order_of_whole_sentences_or_of_parts_of_both(block: TextBlock, length: int, seed: int) -> None:
    borders = set(block.sentences.tolist())
    for a, b, label in pairs_of(block, SentenceOrderPackingConfig(), length, seed):
        earlier, later = (b, a) if label else (a, b)
        assert document_of(block, earlier[0]) == document_of(block, later[1] - 1)
        assert earlier[1] <= later[0]
        assert borders & set(range(earlier[1], later[0] + 1)), "they are of different sentences"


@pytest.mark.parametrize("length", [64, 128])
def test_true_and_random_pairs_hold_the_same_segments_and_lengths(length: int) -> None:
    """The same seed with all pairs next, and with all random: A and B are the same, B with another A of like length."""
    block = large_block(documents=700)
    true = pairs_of(block, SentencePairsConfig(random=0.0), length)
    random = pairs_of(block, SentencePairsConfig(random=1.0), length)
    assert {label for *_, label in true} == {0}
    assert {label for *_, label in random} == {1}
    for side in (0, 1):
        assert Counter(pair[side] for pair in true) == Counter(pair[side] for pair in random)
    size_of_b = {a: b[1] - b[0] for a, b, _ in true}
    apart = [abs(size_of_b[a] - (b[1] - b[0])) for a, b, _ in random]
    assert np.mean(np.array(apart) == 0) > 0.9
    assert max(apart) <= length // 8
    seen = np.bincount(packed(block, SentencePairsConfig(), length).tokens.ids)[FIRST:]
    assert seen.mean() < 1.05, "hardly any token comes twice"


def naive_next(sizes: list[int], room: int, random: Random) -> Iterator[int]:
    """Lengths of the pairs of one document, sentence by sentence."""
    queue, done = list(sizes), 0
    while queue:
        target = room if random.random() >= 0.1 else random.randint(2, room)
        take, total = 1, queue[0]
        while take < len(queue) and total + queue[take] <= room and (take == 1 or total < target):
            total += queue[take]
            take += 1
        if take == 1 and room - total >= room // 8:
            if len(queue) > 1:  # the beginning of the next one, and its rest waits
                part = min(room - total, max(1, queue[1] - room // 8))
                queue[1] -= part
                yield total + part
                done += total + part
                queue.pop(0)
                continue
            if done:  # what stands before it: whole sentences if one fits
                before = [e for e in edges(np.array(sizes)).tolist() if e < done and done - e <= room - total]
                yield total + (done - min(before) if before else room - total)
                return
        if sum(sizes) > 1:
            yield total
        done += total
        del queue[:take]


def naive_order(sizes: list[int], room: int, random: Random) -> Iterator[int]:
    """The same for the order; long documents are gathered in one direction, which lengths do not show."""
    sizes = sizes if random.random() < 0.5 else sizes[::-1]
    at = 0
    while at < len(sizes) and len(sizes) > 1:
        target = room if random.random() >= 0.1 else random.randint(2, room)
        at = min(at, len(sizes) - 2)
        two, limit = sizes[at] + sizes[at + 1], room
        if two > room:
            limit = target = (room - 4) * -(-two // (room - 4))
        end = at + 2
        while end < len(sizes) and sum(sizes[at:end]) < target and sum(sizes[at : end + 1]) <= limit:
            end += 1
        total = sum(sizes[at:end])
        parts = -(-total // room)
        yield from [total // parts + (k < total % parts) for k in range(parts)]
        at = end


@pytest.mark.parametrize(
    ("config", "naive"), [(SentencePairsConfig(), naive_next), (SentenceOrderPackingConfig(), naive_order)]
)
@pytest.mark.parametrize("length", [64, 128, 512])
def test_pairs_are_as_full_as_those_of_a_plain_loop(
    config: PackingConfig, naive: Callable[[list[int], int, Random], Iterator[int]], length: int
) -> None:
    """Distributions of lengths, by the largest difference of their cumulative shares (Kolmogorov and Smirnov)."""
    block = large_block(documents=800)
    ours = np.concatenate([packed(block, config, length, seed).tokens.lengths - 3 for seed in range(3)])
    random = Random(1)
    sentences = np.diff(block.sentences).tolist()
    first = np.searchsorted(block.sentences, block.documents).tolist()
    documents = [sentences[a:b] for a, b in pairwise(first)]
    theirs = np.array([n for _ in range(3) for document in documents for n in naive(document, length - 3, random)])
    grid = np.arange(length)
    shares = [np.searchsorted(np.sort(lengths), grid, side="right") / len(lengths) for lengths in (ours, theirs)]
    assert np.abs(shares[0] - shares[1]).max() < 0.03
    assert ours.mean() == pytest.approx(theirs.mean(), rel=0.01)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (SentencePairsConfig(), PairLabels),
        pytest.param(SentenceOrderPackingConfig(), OrderLabels, marks=pytest.mark.proof),
    ],
)
def test_100_000_pairs_are_half_of_either_label_however_short_the_documents(config: PackingConfig, kind: type) -> None:
    """50% ± 0.5, with many documents of one sentence and of one token, where released scripts are biased."""
    block = large_block(documents=5000)
    lengths = np.random.default_rng(1).choice([1, 1, 2, 5, 20], 30_000)
    first = edges(lengths)
    first = first[first < len(block.sentences) - 1]
    block = TextBlock(
        ids=np.zeros(len(block.ids), np.uint16),
        words=block.words,
        sentences=block.sentences,
        documents=np.append(block.sentences[first], block.sentences[-1]),
        numbers=np.arange(len(first)),
    )
    labels = np.concatenate([packed(block, config, 32, seed).targets[kind].labels for seed in (0, 1)])
    assert len(labels) > 100_000
    assert abs(labels.mean() - 0.5) < 0.005


def test_a_document_that_outweighs_all_others_still_gets_random_pairs_of_theirs() -> None:
    small = [[[FIRST] * 7, [FIRST] * 9, [FIRST] * 4] for _ in range(5)]
    block = TextBlock.of([[[FIRST + 1] * (5 + i % 11) for i in range(400)], *small])
    labels = packed(block, SentencePairsConfig(), 64).targets[PairLabels].labels
    assert 0.3 < labels.mean() < 0.7
