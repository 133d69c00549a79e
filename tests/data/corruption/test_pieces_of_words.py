"""How often a word is hidden does not depend on how many pieces it has: real text, short sequences, all such maskings.

Real text is Python's documentation under a vocabulary so small that many words have several pieces. A word of a
sequence is hidden with probability 0.15 exactly; what was seen is compared with that, the deviation measured between
sequences, for words of one sequence are not independent.
"""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.pretraining_targets import MaskedTokens, SpanTargets
from larvatus.data.corruption import (
    CorruptionConfig,
    MaskVocabulary,
    NGramsConfig,
    SpanCorruptionConfig,
    WholeWordConfig,
    corrupt,
)

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, UNK, CLS, SEP, MASK = range(5)
SIZE = 800
VOCABULARY = MaskVocabulary(mask_id=MASK, size=SIZE, special_ids=range(5), counts=np.ones(SIZE, dtype=np.int64))
KINDS = [WholeWordConfig(), SpanCorruptionConfig(), NGramsConfig()]


@functools.cache
def encoded() -> tuple[list[int], list[int]]:
    """Tokens of some of Python's documentation, and the word of each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pydoc_data.topics import topics
    text = [topics[name] for name in sorted(topics)][:40]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=SPECIALS, show_progress=False)
    tokenizer.train_from_iterator(text, trainer)
    found = tokenizer.encode("\n".join(text))
    return found.ids, found.word_ids


@functools.cache
def packed(length: int) -> TrainingBatch[Ints]:
    """``[CLS] … [SEP]`` of at most `length` tokens and of whole words only."""
    ids, names = encoded()
    rows, words, start = [], [], 0
    while start + length - 2 < len(ids):
        end = start + length - 2
        while names[end] == names[end - 1]:
            end -= 1
        rows.append([CLS, *ids[start:end], SEP])
        words.append([-1, *(name - names[start] for name in names[start:end]), -1])
        start = end
    return TrainingBatch(tokens=TokenBatch.of(rows, words=words), targets={})


def counted(length: int, config: CorruptionConfig, *, epochs: int) -> tuple[Ints, Ints]:
    """[E · B, 7] words of each sequence by their pieces (six and more together), and how many of them were hidden."""
    batch = packed(length)
    tokens = batch.tokens
    sequence = np.repeat(np.arange(tokens.count), tokens.lengths)
    new = np.ones(tokens.size, dtype=np.bool_)
    new[1:] = (tokens.words[1:] != tokens.words[:-1]) | (sequence[1:] != sequence[:-1])
    first = np.flatnonzero(new)
    pieces = np.minimum(np.diff(first, append=tokens.size), 6)
    may = (tokens.words[first] >= 0) & (tokens.ids[first] != UNK)
    first, cell = first[may], (sequence[first] * 7 + pieces)[may]
    there, hidden = [], []
    for epoch in range(epochs):
        out = corrupt(batch, config, vocabulary=VOCABULARY, seed=3, epoch=epoch, items=np.arange(tokens.count))
        chosen = np.zeros(tokens.size, dtype=np.bool_)
        chosen[out.targets[MaskedTokens].places] = True
        there.append(np.bincount(cell, minlength=7 * tokens.count).reshape(-1, 7))
        hidden.append(np.bincount(cell[chosen[first]], minlength=7 * tokens.count).reshape(-1, 7))
    return np.concatenate(there), np.concatenate(hidden)


@pytest.mark.parametrize("length", [64, 128])
@pytest.mark.parametrize("config", KINDS, ids=lambda config: config.__struct_config__.tag)
def test_words_of_one_to_six_pieces_are_hidden_equally_often(config: CorruptionConfig, length: int) -> None:
    there, hidden = counted(length, config, epochs=20)
    surplus = hidden - 0.15 * there  # its expectation is 0 in each sequence, whatever the pieces
    deviation = np.sqrt((surplus**2).sum(0))[1:]
    assert (np.abs(surplus.sum(0)[1:]) < 4 * deviation).all()
    assert (4 * deviation < 0.13 * 0.15 * there.sum(0)[1:]).all()  # an eighth more or less is seen
    sizes = np.arange(7)
    rate = (hidden @ sizes).sum() / (there @ sizes).sum()
    assert abs(rate - 0.15) < 4 * np.sqrt(((surplus @ sizes) ** 2).sum()) / (there @ sizes).sum() < 0.0025


@pytest.mark.parametrize("length", [64, 128])
def test_a_sequence_misses_the_share_of_whole_words_by_less_than_its_longest_word(length: int) -> None:
    batch = packed(length)
    out = corrupt(batch, WholeWordConfig(), vocabulary=VOCABULARY, seed=3, epoch=0, items=np.arange(batch.tokens.count))
    places = out.targets[MaskedTokens].places
    edges = np.concatenate([[0], np.cumsum(batch.tokens.lengths)])
    for number in range(batch.tokens.count):
        one = batch.cut(number, number + 1).tokens
        ordinary = one.words[~np.isin(one.ids, range(5))]
        inside = ((places >= edges[number]) & (places < edges[number + 1])).sum()
        assert abs(inside - 0.15 * len(ordinary)) < np.bincount(ordinary).max()


@pytest.mark.parametrize("config", KINDS[1:], ids=lambda config: config.__struct_config__.tag)
def test_the_tokens_just_outside_a_span_are_never_hidden(config: CorruptionConfig) -> None:
    batch = packed(128)
    spans = 0
    for epoch in range(10):
        out = corrupt(batch, config, vocabulary=VOCABULARY, seed=3, epoch=epoch, items=np.arange(batch.tokens.count))
        hidden, targets = set(out.targets[MaskedTokens].places.tolist()), out.targets[SpanTargets]
        assert not hidden & {*targets.left.tolist(), *targets.right.tolist()}
        spans += int((targets.place == 0).sum())
    assert spans > 20_000
