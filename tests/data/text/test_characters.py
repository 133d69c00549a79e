"""Vocabularies of bytes with the words that are predicted: any text is read, words are told from tokens alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from larvatus.core.batch import TokenBatch
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import train_vocabulary
from larvatus.data.text.vocabularies.characters import INSIDE, UNKNOWN, WORDS, CharactersConfig, Lexicon, word_starts

TEXTS = ["The cat saw the dog . The naïve dog ran , and ran .", "A 山 of dogs !", "the the the cat"]
VOCABULARY = train_vocabulary(TEXTS, CharactersConfig(size=10_000, min_count=2))


def test_words_stand_behind_the_bytes_commonest_first_as_often_as_they_occur():
    assert VOCABULARY.tokens[:4] == ["<s>", "<pad>", "</s>", "<unk>"]
    assert VOCABULARY.tokens[WORDS:] == ["the", "The", "cat", "dog", "ran"]
    counts = {VOCABULARY.tokens[index]: int(VOCABULARY.counts[index]) for index in np.flatnonzero(VOCABULARY.counts)}
    assert counts == {
        **{"the": 4, "The": 2, "cat": 2, "dog": 2, "ran": 2},
        **{".": 2, ",": 1, "A": 1, "!": 1},  # words of one byte are that byte
        **{"<unk>": 6, "</s>": 3},  # saw, naïve, and, 山, of, dogs; a sentence for each . ! ?
    }


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_no_text_has_an_unknown_token_and_its_words_are_its_own_bytes(text):
    found = VOCABULARY.encode(text)
    assert UNKNOWN not in found.ids
    assert (found.ids < WORDS).all()
    starts = word_starts(found.ids, np.array([len(found)]))
    normal = VOCABULARY.library.normalizer.normalize_str(text)
    spelt = bytes(((found.ids - 4) % 256).tolist()).decode()
    assert spelt == "".join(normal.split())
    assert starts.sum() >= len(normal.split())


def test_a_word_that_is_spelt_is_the_word_that_was_learnt():
    ids = VOCABULARY.template.single.ids(VOCABULARY.encode("The dogs ran.").ids)
    words = Lexicon(VOCABULARY.tokens).read(TokenBatch.of([ids.tolist()]))
    assert [VOCABULARY.tokens[index] for index in words.ids] == ["<s>", "The", "<unk>", "ran", ".", "</s>"]
    assert words.first.tolist() == [0, 1, 4, 8, 11, 12]
    assert words.last.tolist() == [0, 3, 7, 10, 11, 12]
    assert VOCABULARY.decode(ids[1:-1]) == "The dogs ran ."
    assert (VOCABULARY.encode("The dogs").ids[[1, 2]] >= INSIDE).all()


def test_it_is_saved_and_loaded_with_its_words_and_transformers_gives_the_same_ids(tmp_path):
    VOCABULARY.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert (again.kind, again.fingerprint, again.special) == (
        "characters",
        VOCABULARY.fingerprint,
        VOCABULARY.special,
    )
    assert np.array_equal(again.counts, VOCABULARY.counts)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    text = "The naïve 山, ran <s> !"
    assert (
        theirs(text.replace("<s>", ""))["input_ids"]
        == again.template.single.ids(again.encode(text.replace("<s>", "")).ids).tolist()
    )
    assert not {0, 1, 2, 3} & set(again.encode(text).ids.tolist())  # written out, a special token is text
