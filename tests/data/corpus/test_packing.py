"""Packings: every token of the block comes, within the limit, in sequences that read as the paper says."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.core import rng
from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch, edges
from larvatus.core.errors import DataError, RecipeError
from larvatus.core.pretraining_targets import OrderLabels
from larvatus.data.corpus.block import TextBlock
from larvatus.data.corpus.format import CorpusCounts
from larvatus.data.corpus.packing import (
    DocumentsConfig,
    FullSentencesConfig,
    PackingConfig,
    SentenceOrderPackingConfig,
    SentencePairsConfig,
    SingleSegmentConfig,
    pack,
)
from larvatus.data.text.template import Template

CLS, SEP, FIRST = 1, 2, 10
FRAME = Template.bert(CLS, SEP)
ALL: list[PackingConfig] = [
    SentencePairsConfig(),
    FullSentencesConfig(),
    SingleSegmentConfig(),
    DocumentsConfig(),
    SentenceOrderPackingConfig(),
]


@st.composite
def blocks(draw: st.DrawFn, least_documents: int = 2) -> TextBlock:
    """Documents of sentences of ragged lengths; the id of a token says where in the block it stands."""
    sizes = draw(
        st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=8), min_size=least_documents, max_size=8),
        label="sizes",
    )
    count = sum(map(sum, sizes))
    words = rng.stream(draw(st.integers(0, 9)), "words").random(count) < draw(st.sampled_from([0.1, 0.7, 1.0]))
    ids = iter(range(FIRST, FIRST + count))
    block = TextBlock.of([[[next(ids) for _ in range(n)] for n in document] for document in sizes])
    words[block.sentences[:-1]] = True
    return TextBlock(block.ids, words, block.sentences, block.documents, block.numbers)


@dataclass
class Sequence_:
    """A sequence taken apart again: its stretches of text, as places in the block."""

    ids: list[int]
    segments: list[int]
    words: list[int]

    @property
    def stretches(self) -> list[list[int]]:
        found: list[list[int]] = [[]]
        for i in self.ids[1:]:
            if i == SEP:
                found.append([])
            else:
                found[-1].append(i - FIRST)
        return found[:-1]


def taken_apart(batch: TrainingBatch[Ints]) -> list[Sequence_]:
    t, edge = batch.tokens, edges(batch.tokens.lengths)
    return [
        Sequence_(*(array[a:b].tolist() for array in (t.ids, t.segments, t.words))) for a, b in pairwise(edge.tolist())
    ]


def packed(block: TextBlock, config: PackingConfig, length: int, seed: int = 0) -> TrainingBatch[Ints]:
    return pack(block, config, length=length, template=FRAME, random=rng.stream(seed, "test"))


FRAMES = {
    "two separators": Template.roberta(CLS, SEP),
    "none": Template.bert(None, None),
    "an opening alone": Template.bert(CLS, None),
}


@pytest.mark.parametrize("template", FRAMES.values(), ids=list(FRAMES))
@pytest.mark.parametrize("config", ALL, ids=lambda config: config.__struct_config__.tag)
@given(block=blocks(), length=st.integers(8, 64))
@settings(max_examples=15, deadline=None)
def test_every_frame_dresses_the_stretches_that_berts_does(
    config: PackingConfig, template: Template, block: TextBlock, length: int
) -> None:
    """With the same room for text; only the special tokens and segments around it are others."""
    sequence = template.for_texts(config.texts)
    longer = length + sequence.special_count - FRAME.for_texts(config.texts).special_count
    batch = pack(block, config, length=longer, template=template, random=rng.stream(0, "test"))
    assert batch.tokens.lengths.max(initial=0) <= longer
    if isinstance(config, FullSentencesConfig):
        if not sequence.gaps[-1]:  # no separators between documents: the limit holds more text
            text = batch.tokens.ids[batch.tokens.words >= 0]
            assert sorted(text.tolist()) == block.ids.tolist()
            assert batch.tokens.size == len(block.ids) + sequence.opening * batch.tokens.count
            return
        assert batch.tokens.ids.tolist() == packed(block, config, length).tokens.ids.tolist()
        return
    plain, others = taken_apart(packed(block, config, length)), taken_apart(batch)
    for bert, other in zip(plain, others, strict=True):
        texts = [np.array(stretch) + FIRST for stretch in bert.stretches]
        words = [np.array(row) for row in np.split(bert.words, np.flatnonzero(np.array(bert.ids) == SEP))]
        assert other.ids == sequence.ids(*texts).tolist()
        assert other.segments == sequence.segments(*map(len, texts)).tolist()
        assert other.words == sequence.fill(-1, *(row[row >= 0] for row in words[: len(texts)])).tolist()
    for kind in config.gives:
        same = packed(block, config, length).targets[kind].labels
        assert batch.targets[kind].labels.tolist() == same.tolist()


def document_of(block: TextBlock, place: int) -> int:
    return int(np.searchsorted(block.documents, place, side="right")) - 1


@pytest.mark.parametrize("config", ALL, ids=lambda config: config.__struct_config__.tag)
@given(block=blocks(), length=st.integers(8, 64), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_no_token_is_lost_and_no_sequence_is_too_long(
    config: PackingConfig, block: TextBlock, length: int, seed: int
) -> None:
    batch = packed(block, config, length, seed)
    assert batch.tokens.lengths.max(initial=0) <= length
    assert batch.tokens.size == batch.tokens.lengths.sum()
    seen = np.bincount(batch.tokens.ids, minlength=FIRST + len(block.ids))[FIRST:]
    if not config.gives:  # for pairs see test_pairs.py
        assert (seen == 1).all()
    assert set(batch.targets) == set(config.gives)


@pytest.mark.parametrize("config", ALL, ids=lambda config: config.__struct_config__.tag)
@given(block=blocks(), length=st.integers(8, 64))
@settings(max_examples=40, deadline=None)
def test_a_sequence_is_laid_out_as_a_loop_would_lay_it_out(
    config: PackingConfig, block: TextBlock, length: int
) -> None:
    batch = packed(block, config, length)
    for sequence in taken_apart(batch):
        assert sequence.ids[0] == CLS
        assert sequence.ids[-1] == SEP
        ids, segments, words, word = [CLS], [0], [-1], -1
        for number, stretch in enumerate(sequence.stretches):
            assert stretch == list(range(stretch[0], stretch[0] + len(stretch))), "a stretch is contiguous text"
            segment = number if config.gives else 0
            for k, place in enumerate(stretch):
                word += bool(k == 0 or block.words[place])
                ids.append(FIRST + place)
                segments.append(segment)
                words.append(word)
            ids.append(SEP)
            segments.append(segment)
            words.append(-1)
        assert (ids, segments, words) == (sequence.ids, sequence.segments, sequence.words)
    assert batch.tokens.positions.tolist() == [i for n in batch.tokens.lengths.tolist() for i in range(n)]


def test_the_two_segments_are_cut_at_sentences_where_there_are_two() -> None:
    block = TextBlock.of([[[FIRST + 5 * s + i for i in range(5)] for s in range(40)]])
    for sequence in taken_apart(packed(block, SentenceOrderPackingConfig(), 40)):
        assert all(stretch[0] % 5 == 0 and len(stretch) % 5 == 0 for stretch in sequence.stretches)


def test_swapped_sets_how_many_are() -> None:
    block = TextBlock.of([[[FIRST + i] * 4 for i in range(50)] for _ in range(4)])
    for share in (0.0, 1.0):
        labels = packed(block, SentenceOrderPackingConfig(swapped=share), 32).targets[OrderLabels].labels
        assert labels.tolist() == [int(share)] * len(labels)


def test_parts_of_one_document_are_never_random_to_each_other() -> None:
    block = TextBlock.of([[[10 + 20 * d + i for i in range(5)] for _ in range(3)] for d in range(6)])
    block = TextBlock(block.ids, block.words, block.sentences, block.documents, numbers=np.array([0, 7, 0, 7, 0, 7]))
    batch = packed(block, SentencePairsConfig(random=1.0), 16)
    for a, b in (sequence.stretches for sequence in taken_apart(batch)):
        assert {(i // 20) % 2 for i in a} != {(i // 20) % 2 for i in b}


@given(block=blocks(), length=st.integers(8, 64))
@settings(max_examples=40, deadline=None)
def test_full_sentences_fill_up_and_put_one_separator_between_documents(block: TextBlock, length: int) -> None:
    sequences = sorted(taken_apart(packed(block, FullSentencesConfig(), length)), key=lambda s: s.ids[1])
    borders = set(block.documents.tolist())
    starts = set(block.sentences.tolist())
    for sequence, after in pairwise(sequences):
        for stretch, next_stretch in pairwise(sequence.stretches):
            assert next_stretch[0] == stretch[-1] + 1
            assert next_stretch[0] in borders
        for stretch in sequence.stretches:
            assert not borders & set(stretch[1:]), "a document border inside a sequence without a separator"
        first = after.ids[1] - FIRST
        sentence = min(start for start in starts if start > first) - first
        assert len(sequence.ids) + min(sentence, length - 2) + (first in borders) > length, "more would have fitted"


@pytest.mark.parametrize("config", [SingleSegmentConfig(), DocumentsConfig()], ids=["single-segment", "documents"])
@given(block=blocks(least_documents=1), length=st.integers(8, 64))
@settings(max_examples=40, deadline=None)
def test_single_segments_and_documents_stay_within_a_document(
    config: PackingConfig, block: TextBlock, length: int
) -> None:
    sequences = [sequence.stretches for sequence in taken_apart(packed(block, config, length))]
    assert all(len(stretches) == 1 for stretches in sequences)
    assert all(len({document_of(block, place) for place in stretches[0]}) == 1 for stretches in sequences)
    sizes = np.diff(block.documents)
    fewest = int(np.ceil(sizes / (length - 2)).sum())
    if isinstance(config, DocumentsConfig) and block.words.all():
        assert len(sequences) == fewest, "windows are as few as they can be"


def test_a_long_sentence_is_cut_at_words_and_a_long_word_where_it_must() -> None:
    words = [True] * 6 + [False] * 3 + [True] + [False] * 30
    block = TextBlock.of([[list(range(FIRST, FIRST + 40))]], words)
    sequences = sorted(s.stretches[0] for s in taken_apart(packed(block, SingleSegmentConfig(), 10)))
    assert [s[0] for s in sequences] == [0, 5, 9, 17, 25, 33]


@pytest.mark.parametrize("config", [SentencePairsConfig(), SentenceOrderPackingConfig()])
def test_lengths_vary_and_a_tenth_of_the_pairs_is_short(config: PackingConfig) -> None:
    block = TextBlock.of([[[5] * 8 for _ in range(200)] for _ in range(20)])
    lengths = packed(block, config, 128).tokens.lengths
    assert np.mean(lengths > 110) > 0.8
    assert 0.04 < np.mean(lengths < 100) < 0.16


@pytest.mark.parametrize("config", [FullSentencesConfig(), SentenceOrderPackingConfig()])
def test_the_order_is_shuffled_and_hangs_on_the_stream_alone(config: PackingConfig) -> None:
    block = TextBlock.of([[[FIRST + i] * 4 for i in range(50)] for _ in range(4)])
    one, same, other = (packed(block, config, 32, seed) for seed in (1, 1, 2))
    for kind in config.gives:
        assert one.targets[kind].labels.tolist() == same.targets[kind].labels.tolist()
    assert one.tokens.ids.tolist() == same.tokens.ids.tolist()
    assert one.tokens.ids.tolist() != other.tokens.ids.tolist()
    firsts = one.tokens.ids[edges(one.tokens.lengths)[:-1] + 1].tolist()
    assert firsts != sorted(firsts)


def test_sentence_pairs_of_one_document_are_refused_with_the_way_out() -> None:
    with pytest.raises(DataError, match="two documents"):
        packed(TextBlock.of([[[5, 6], [7, 8]]]), SentencePairsConfig(), 16)
    with pytest.raises(DataError, match=r"at least two documents.*blank lines"):
        SentencePairsConfig().check(CorpusCounts(documents=1, sentences=50, words=1, tokens=1))


def test_a_sentence_pair_task_without_sentences_is_refused() -> None:
    with pytest.raises(DataError, match=r"without sentences.*--sentences"):
        SentencePairsConfig().check(CorpusCounts(documents=9, sentences=9, words=90, tokens=90))
    with pytest.raises(DataError, match=r"without sentences.*--sentences"):
        SentenceOrderPackingConfig().check(CorpusCounts(documents=9, sentences=9, words=90, tokens=90))
    SentencePairsConfig().check(CorpusCounts(documents=9, sentences=10, words=90, tokens=90))
    SentenceOrderPackingConfig().check(CorpusCounts(documents=1, sentences=2, words=90, tokens=90))
    FullSentencesConfig().check(CorpusCounts(documents=9, sentences=9, words=90, tokens=90))


@pytest.mark.parametrize("config", ALL, ids=lambda config: config.__struct_config__.tag)
def test_a_length_that_holds_nothing_is_refused(config: PackingConfig) -> None:
    with pytest.raises(RecipeError, match="too few"):
        packed(TextBlock.of([[[5], [6]], [[7], [8]]]), config, 2)
