"""What counts as a word, against BERT's own rule and against Unicode's grapheme clusters."""

from __future__ import annotations

import regex
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

from larvatus.data.text.words import is_space, segment_words
from tests.data.text.hostile import hostile_unicode, ordinary_text
from tests.patience import assert_linear


def words(text: str) -> list[str]:
    return [text[start:end] for start, end in segment_words(text).tolist()]


def test_words_of_many_scripts():
    assert words("Mt. don't (see) 50%") == ["Mt", ".", "don", "'", "t", "(", "see", ")", "50", "%"]
    assert words("我们abc来") == ["我", "们", "abc", "来"]
    assert words("ひらカナ") == ["ひ", "ら", "カ", "ナ"]
    assert words("ที่นี่") == ["ที่", "นี่"]  # vowels and tones stay with their consonant
    assert words("हिन्दी में") == ["हिन्दी", "में"]
    assert words("e\u0301te\u0301 été") == ["e\u0301te\u0301", "été"]
    assert words("👩‍👩‍👧 x") == ["👩‍👩‍👧", "x"]
    assert words("#️⃣") == ["#️⃣"]
    assert words("a\u200bb \u200b c\u00a0d") == ["a\u200bb", "c", "d"]  # what nobody sees makes no word of its own
    assert words("") == []
    assert words(" \t\n ") == []


@given(ordinary_text())
def test_ordinary_words_are_those_of_berts_basic_tokenizer(text):
    normalised = normalizers.BertNormalizer(lowercase=False, strip_accents=False).normalize_str(text)
    theirs = [word for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(normalised)]
    assert words(text) == theirs


@given(hostile_unicode())
def test_words_hold_every_visible_character_and_cut_no_cluster(text):
    spans = segment_words(text).tolist()
    borders = {match.start() for match in regex.finditer(r"\X", text)} | {len(text)}
    space = is_space(text).tolist()
    assert space == [char.isspace() for char in text]
    covered = [False] * len(text)
    for start, end in spans:
        assert start < end
        assert not any(covered[start:end])
        covered[start:end] = [True] * (end - start)
        assert not any(space[start:end])
        assert start in borders or text[start - 1].isspace()  # white space separates, whatever hangs on it
        assert end in borders or text[end].isspace()
    for place, char in enumerate(text):
        unseen = regex.fullmatch(r"[\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}]", char)
        assert covered[place] or char.isspace() or unseen


@given(st.text(alphabet=st.characters(codec="ascii"), max_size=30))
def test_ascii_is_split_as_a_naive_loop_does(text):
    naive: list[str] = []
    joined = False
    for char in text:
        if char.isspace():
            joined = False
        elif char.isprintable() and not char.isalnum():
            naive.append(char)
            joined = False
        elif joined:
            naive[-1] += char
        else:
            naive.append(char)
            joined = True
    assert words(text) == [word for word in naive if word.isprintable() or any(map(str.isprintable, word))]


def test_a_word_of_a_megabyte_takes_linear_time():
    for char in ("é", "\u0301"):
        assert len(segment_words(char * 1_000_000)) <= 1
        assert_linear(lambda size, char=char: segment_words(char * size), 125_000)
