"""Sentence splitting loses no character."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from larvatus.core.errors import DataError, UsageError
from larvatus.data.text.words import sentence_spans, split_sentences
from tests.data.text.conftest import SENTENCES
from tests.data.text.hostile import hostile_unicode
from tests.patience import assert_linear


def test_abbreviations_do_not_end_sentences():
    text = "Dr. Smith came to Mt. Sanitas. He left! Did he?"
    assert split_sentences(text) == ["Dr. Smith came to Mt. Sanitas.", "He left!", "Did he?"]
    assert split_sentences("我们来了。他们走了！", language="zh") == ["我们来了。", "他们走了！"]


def test_titles_after_a_dash_and_initials_do_not_end_sentences():
    for text in (
        "They may blow up—Mr. Bucket knows.",
        "She asked Mdlle. Reuter.",
        "J. R. R. Tolkien met Prof. Lee in Minneapolis–St. Paul.",
        "It has a pro-U.S. posture.",
    ):
        assert split_sentences(f"{text} “Mr. Hall came.” He left.") == [text, "“Mr. Hall came.”", "He left."]
    assert split_sentences("Vitamin B-C. He left.") == ["Vitamin B-C.", "He left."]


def test_wrapped_lines_are_one_sentence_and_blank_lines_end_one():
    assert split_sentences("It goes\non. Then\n\na heading\n\nend") == ["It goes\non.", "Then", "a heading", "end"]


def test_newline_mode_takes_lines_as_they_are():
    assert split_sentences("Dr. A. came\n\n  b \r\nc", mode="newline") == ["Dr. A. came", "b", "c"]


@given(
    text=st.one_of(hostile_unicode(), st.lists(st.sampled_from(SENTENCES)).map(" ".join)),
    mode=st.sampled_from(["library", "newline"]),
)
def test_no_character_is_lost(text, mode):
    covered = [False] * len(text)
    last = 0
    for start, end in sentence_spans(text, mode=mode):
        assert last <= start < end <= len(text)
        assert text[start:end] == text[start:end].strip()
        covered[start:end] = [True] * (end - start)
        last = end
    assert all(held or char.isspace() for held, char in zip(covered, text, strict=True))


def test_what_is_no_text_or_no_language_is_refused():
    with pytest.raises(DataError, match=r"U\+D800"):
        split_sentences("a\ud800")
    with pytest.raises(UsageError, match="no language code"):
        split_sentences("a", language="../x")
    with pytest.raises(UsageError, match="no sentence mode"):
        split_sentences("a", mode="nonsense")  # type: ignore[arg-type]


def test_a_ten_megabyte_word_takes_linear_time():
    assert sentence_spans("a" * 10_000_000) == [(0, 10_000_000)]
    assert_linear(lambda size: sentence_spans("a" * size), 1_000_000)
