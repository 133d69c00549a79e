"""The fast road to word starts says what the aligner says."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tokenizers as library
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers

from larvatus.core.errors import DataError
from larvatus.data.text.boundaries import byte_alphabet
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import BPEConfig, ByteBPEConfig, UnigramConfig, WordPieceConfig, train_vocabulary
from tests.data.text.conftest import EVERY, SENTENCES
from tests.data.text.hostile import PIECES, ordinary_text


def flat_starts(tokenizer: Tokenizer, texts: list[str]) -> tuple[list[int], list[bool]]:
    found = tokenizer.encode_flat(texts)
    assert found.lengths.sum() == len(found.ids) == len(found.starts)
    return found.ids.tolist(), found.starts.tolist()


def exact_starts(tokenizer: Tokenizer, texts: list[str]) -> tuple[list[int], list[bool]]:
    found = [tokenizer.encode(text) for text in texts]
    return (
        [index for each in found for index in each.ids.tolist()],
        [start for each in found for start in each.word_starts.tolist()],
    )


@settings(max_examples=200)
@given(texts=st.lists(ordinary_text(), max_size=3), kind=st.sampled_from(sorted(EVERY)))
def test_word_starts_by_tables_are_the_aligners_on_ordinary_text(tokenizers, texts, kind):
    assert flat_starts(tokenizers[kind], texts) == exact_starts(tokenizers[kind], texts)


@pytest.mark.parametrize("kind", sorted(EVERY))
def test_word_starts_agree_in_every_script(tokenizers, kind):
    texts = [
        *SENTENCES,
        "",
        " ",
        "two  spaces",
        "end. ",
        "「中文」かなABC",
        "$5.00 (five)",
        "a\nb",
        "a'most",
    ]
    assert flat_starts(tokenizers[kind], texts) == exact_starts(tokenizers[kind], texts)


@pytest.mark.parametrize(
    "config", [WordPieceConfig(size=1500), ByteBPEConfig(size=1500), BPEConfig(size=1500), UnigramConfig(size=1500)]
)
def test_word_starts_agree_on_real_prose(config):
    texts = [p for d in itertools.islice(embedded_documents(), 30) for p in d.text.split("\n\n")]
    tokenizer = train_vocabulary(texts, config)
    assert not tokenizer.word_start_tables.unsure[tokenizer.encode_flat(texts[:100]).ids].all()
    assert flat_starts(tokenizer, texts) == exact_starts(tokenizer, texts)


def test_word_starts_of_ids_alone(tokenizers):
    text = "Mt. Sanitas is steep."
    for tokenizer in tokenizers.values():
        found = tokenizer.encode(text)
        assert tokenizer.word_starts(found.ids).tolist() == found.word_starts.tolist()
    assert tokenizers["wordpiece"].word_starts(np.asarray([], dtype=np.int64)).tolist() == []
    with pytest.raises(DataError, match="do not show where words begin"):
        tokenizers["byte-bpe"].word_starts(tokenizers["byte-bpe"].encode("\U0001f9ff").ids)


def test_an_accent_after_punctuation_is_left_to_the_aligner():
    pieces = ["[UNK]", "a", ".", "\u0301", "##\u0301"]
    made = library.Tokenizer(models.WordPiece({piece: index for index, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer = Tokenizer.from_library(made)
    texts = ["a. .\u0301 a\u0301 a", "a \u0301"]
    assert flat_starts(tokenizer, texts) == exact_starts(tokenizer, texts)
    assert flat_starts(tokenizer, texts)[1] == [True, True, True, False, True, False, True, True, True]


def test_hostile_text_keeps_ids_equal_on_both_roads(tokenizers):
    for tokenizer in tokenizers.values():
        ids, starts = flat_starts(tokenizer, PIECES)
        assert ids == exact_starts(tokenizer, PIECES)[0]
        assert len(starts) == len(ids)


def test_the_byte_alphabet_is_the_librarys(tokenizers):
    from tokenizers.pre_tokenizers import ByteLevel

    assert set(byte_alphabet()) == set(ByteLevel.alphabet())
    assert byte_alphabet()["Ġ"] == 0x20
    assert sorted(byte_alphabet().values()) == list(range(256))
