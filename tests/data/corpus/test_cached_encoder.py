"""Encoding stretch by stretch gives what the tokenizer gives for the whole text, token by token."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers

from larvatus.data.corpus.encode import CachedEncoder, encodes_words_separately
from larvatus.data.text.tokenizer import FlatEncoding, Tokenizer
from tests.data.corpus.made_up import LETTERS, SPECIAL, WORDS, small_tokenizer


def variant(**normalizer: bool) -> Tokenizer:
    """Vocabularies with accents and Chinese in them, cased and uncased."""
    letters = [*LETTERS, *"ABÉéüß中国́̈Σσς"]
    pieces = dict.fromkeys([*SPECIAL, *WORDS, *letters, *(f"##{letter}" for letter in letters)])
    library = tokenizers.Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(**normalizer)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.add_special_tokens(SPECIAL)
    return Tokenizer.from_library(library)


TOKENIZERS = [
    small_tokenizer(),
    variant(lowercase=True),
    variant(lowercase=False, strip_accents=False),
    variant(lowercase=False, clean_text=False, handle_chinese_chars=False),
]
ENCODERS = [CachedEncoder(tokenizer, most=50) for tokenizer in TOKENIZERS]  # so few that they forget all the time

hostile = st.text(
    st.one_of(
        st.sampled_from(" \n\t\r\v\f\x1c\x1f\x85\xa0\u2003\u2028\u3000\u200b\u200d\ufffd\x00.,'[]-$é́̈ßΣς中国abcTHE"),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=40,
)
phrases = st.lists(st.sampled_from([*WORDS, "river's", "[MASK]", "don't.", "Σίσυφος"]), max_size=12).map(" ".join)


def equal(a: FlatEncoding, b: FlatEncoding) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("ids", "lengths", "starts"))


@pytest.mark.parametrize("number", range(len(TOKENIZERS)))
@given(texts=st.lists(st.one_of(hostile, phrases, st.builds("{} {}".format, phrases, hostile)), max_size=8))
def test_stretches_end_to_end_are_the_text(number: int, texts: list[str]) -> None:
    assert encodes_words_separately(TOKENIZERS[number])
    assert equal(ENCODERS[number].encode(texts), TOKENIZERS[number].encode_flat(texts))


def test_what_comes_again_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = variant(lowercase=True)
    encoder = CachedEncoder(tokenizer)
    encoder.encode(["the river, the bank, é"])
    asked: list[str] = []
    encode_flat = tokenizer.encode_flat
    monkeypatch.setattr(tokenizer, "encode_flat", lambda texts: asked.extend(texts) or encode_flat(texts))
    encoder.encode(["the old river é", "bank, the ü bank"])
    assert asked == ["ü"], "and a plain word needs no asking"


def test_text_without_spaces_goes_to_the_tokenizer_whole() -> None:
    text = "中国" * 40
    encoder = CachedEncoder(TOKENIZERS[1])
    assert equal(encoder.encode([text]), TOKENIZERS[1].encode_flat([text]))
    assert not encoder._places, "nothing is kept that will not come again"


@pytest.mark.parametrize("change", ["byte-level", "added word", "whitespace", "replace"])
def test_other_tokenizers_are_asked_for_the_whole_text(change: str) -> None:
    rules = json.loads(small_tokenizer().library.to_str())
    if change == "byte-level":
        rules["pre_tokenizer"] = {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        }
    elif change == "whitespace":
        rules["pre_tokenizer"] = {"type": "Whitespace"}
    elif change == "replace":
        step = {"type": "Replace", "pattern": {"String": "the river"}, "content": "bank"}
        rules["normalizer"] = {"type": "Sequence", "normalizers": [step]}
    else:
        rules["added_tokens"].append({**rules["added_tokens"][0], "id": 500, "content": "the river", "special": False})
    tokenizer = Tokenizer.from_library(tokenizers.Tokenizer.from_str(json.dumps(rules)))
    assert not encodes_words_separately(tokenizer)
    texts = ["the river was", "old men"]
    assert equal(CachedEncoder(tokenizer).encode(texts), tokenizer.encode_flat(texts))
