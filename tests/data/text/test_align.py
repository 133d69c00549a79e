"""The word-span contract, over every kind of vocabulary and hostile Unicode."""

from __future__ import annotations

import numpy as np
import pytest
import tokenizers as library
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers

from larvatus.core.errors import DataError
from larvatus.data.text.align import align, align_spans, align_words
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import segment_words
from tests.data.text.conftest import EVERY
from tests.data.text.hostile import hostile_unicode

KINDS = st.sampled_from(sorted(EVERY))


@pytest.fixture(scope="module")
def chapter() -> Tokenizer:
    """A vocabulary that cuts the chapter's sentence as the chapter does (section 11.5.1)."""
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "Mt",
        ".",
        "San",
        "##itas",
        "is",
        "in",
        "Sunshine",
        "Canyon",
    ]
    made = library.Tokenizer(models.WordPiece({piece: index for index, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return Tokenizer.from_library(made)


def test_the_chapters_example_given_as_words(chapter):
    words = ["Mt.", "Sanitas", "is", "in", "Sunshine", "Canyon", "."]
    found = align_words(words, chapter)
    pieces = [chapter.token(index) for index in found.ids]
    assert pieces == ["Mt", ".", "San", "##itas", "is", "in", "Sunshine", "Canyon", "."]
    assert [list(found.tokens_of_word(word)) for word in range(7)] == [[0, 1], [2, 3], [4], [5], [6], [7], [8]]
    assert found.words.tolist() == [0, 0, 1, 1, 2, 3, 4, 5, 6]
    assert [found.word_text(word) for word in range(7)] == words


def test_the_chapters_example_as_text(chapter):
    text = "Mt. Sanitas is in Sunshine Canyon."
    found = align(text, chapter)
    assert found.words.tolist() == [0, 1, 2, 2, 3, 4, 5, 6, 7]
    assert found.chars_of_token(3) == (7, 11)
    assert found.token_at(8) == 3
    assert found.token_at(3) is None  # the space
    assert found.tokens_of_chars(4, 14) == range(2, 5)
    assert found.words_of_chars(4, 14) == range(2, 4)
    assert found.tokens_of_chars(0, 0) == range(0, 0)
    assert [(text[slice(*found.chars_of_word(word))]) for word in range(3)] == ["Mt", ".", "Sanitas"]


def test_an_unknown_word_is_covered(chapter):
    found = align("is Zürich in", chapter)
    assert found.ids.tolist() == [9, 1, 10]
    assert found.tokens_of_word(1) == range(1, 2)


@settings(max_examples=300)
@given(text=hostile_unicode(), kind=KINDS)
def test_every_token_points_at_the_characters_it_came_from(tokenizers, text, kind):
    found = tokenizers[kind].encode(text)
    starts, ends = found.spans[:, 0], found.spans[:, 1]
    assert (starts <= ends).all()
    assert (np.diff(starts) >= 0).all()
    assert (np.diff(ends) >= 0).all()
    assert len(found) == 0 or (starts[0] >= 0 and ends[-1] <= len(text))
    for token, word in enumerate(found.words.tolist()):
        start, end = found.chars_of_token(token)
        assert word == _naive_word(text, start, end, found.word_spans.tolist())
        if word >= 0 and text[start:end].strip():
            assert token in found.tokens_of_word(word)


def _naive_word(text: str, start: int, end: int, spans: list[list[int]]) -> int:
    inside = {char: word for word, (low, high) in enumerate(spans) for char in range(low, high)}
    for char in range(start, end):
        if char in inside:
            return inside[char]
    if end > start and text[start:end].isspace():
        return inside.get(end, -1)
    return -1


@settings(max_examples=300)
@given(text=hostile_unicode(), kind=KINDS)
def test_every_word_is_covered_and_round_trips_hold(tokenizers, text, kind):
    tokenizer = tokenizers[kind]
    found = tokenizer.encode(text)
    uncovered = set(found.uncovered)
    for word, (start, end) in enumerate(found.word_spans.tolist()):
        tokens = found.tokens_of_word(word)
        assert tokens == found.tokens_of_chars(start, end)
        assert found.words_of_chars(start, end) == range(word, word + 1)
        assert (word in uncovered) == (not tokens)
        naive = [t for t, (low, high) in enumerate(found.spans.tolist()) if low < end and high > start]
        assert [t for t in tokens if found.spans[t, 0] < found.spans[t, 1]] == naive
        if not tokens:  # only what the vocabulary's normaliser deletes may go without
            assert tokenizer.library.normalizer is not None
            assert not tokenizer.library.normalizer.normalize_str(text[start:end]).strip()
    for char in range(len(text)):
        token = found.token_at(char)
        if token is not None:
            assert found.spans[token, 0] <= char < found.spans[token, 1]


@settings(max_examples=100)
@given(text=hostile_unicode(), kind=KINDS)
def test_many_texts_at_once_are_encoded_as_one_by_one(tokenizers, text, kind):
    tokenizer = tokenizers[kind]
    one, other = tokenizer.encode_many([text, text + " end"])
    assert np.array_equal(one.ids, tokenizer.encode(text).ids)
    assert np.array_equal(one.words, tokenizer.encode(text).words)
    assert np.array_equal(other.spans, tokenizer.encode(text + " end").spans)
    assert [ids.tolist() for ids in tokenizer.encode_fast([text, text + " end"])] == [
        one.ids.tolist(),
        other.ids.tolist(),
    ]


@settings(max_examples=100)
@given(
    words=st.lists(st.sampled_from(["Mt.", "don't", "中文", "é", "e\u0301", "😀", "a b", "x"]), max_size=6), kind=KINDS
)
def test_words_given_by_the_caller_keep_their_number(tokenizers, words, kind):
    found = align_words(words, tokenizers[kind])
    assert [found.word_text(word) for word in range(len(words))] == words
    for word in range(len(words)):
        own = [t for t in found.tokens_of_word(word) if found.word_of_token(t) == word]
        assert own


def test_a_word_that_normalisation_deletes_is_listed(tokenizers):
    found = align_words(["a", "\u0301", "b"], tokenizers["wordpiece"])
    assert found.uncovered == [1]
    assert found.tokens_of_word(1) == range(1, 1)


def test_words_that_are_no_words_are_refused(tokenizers):
    with pytest.raises(DataError, match="word 2 of 3 is empty"):
        align_words(["a", "", "b"], tokenizers["wordpiece"])
    for spans in ([(0, 2), (1, 3)], [(2, 2)], [(0, 9)], [(-1, 2)]):
        with pytest.raises(DataError, match="in order"):
            align("abc", tokenizers["wordpiece"], spans)


def test_empty_text(tokenizers):
    for tokenizer in tokenizers.values():
        found = tokenizer.encode("")
        assert len(found) == 0
        assert found.uncovered == []
        assert align_spans("", found.ids, found.spans, segment_words("")).word_starts.tolist() == []


def test_lone_surrogates_are_refused_by_name(tokenizers):
    for tokenizer in tokenizers.values():
        with pytest.raises(DataError, match=r"U\+D800 at character 2"):
            tokenizer.encode("ab\ud800c")
        with pytest.raises(DataError, match=r"text 2 holds a lone surrogate U\+DFFF"):
            tokenizer.encode_flat(["fine", "\udfff"])
