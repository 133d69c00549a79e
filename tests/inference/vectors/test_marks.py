"""Stars say which word is meant; a text that marks none, or too many, is refused in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from larvatus.core.errors import UsageError
from larvatus.inference.vectors.plan import mark_word, read_mark, read_marks


def test_marks_are_taken_out_and_point_at_their_words():
    found = read_marks(r"the *bank* of 2 \* 3 *wide rivers*")
    assert found.text == "the bank of 2 * 3 wide rivers"
    assert found.words == ("bank", "wide rivers")
    assert read_marks("a * bank * b").words == ("bank",)


@given(st.lists(st.tuples(st.text(), st.text().filter(str.strip)), min_size=1), st.text())
def test_any_text_marked_reads_back_as_itself(parts, rest):
    def plain(text):
        return text.replace("*", r"\*")

    # a backslash before a mark would make it a star
    parts = [(before.replace("\\", "/"), word.replace("\\", "/")) for before, word in parts]
    rest = rest.replace("\\", "/")
    found = read_marks("".join(f"{plain(before)}*{plain(word)}*" for before, word in parts) + plain(rest))
    assert found.text == "".join(before + word for before, word in parts) + rest
    assert found.words == tuple(word.strip() for _, word in parts)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("the bank", "no word is marked in 'the bank'; put stars around it"),
        ("the *bank", "a mark is not closed"),
        ("the ** bank", "there is nothing between two stars"),
        ("the * * bank", "there is nothing between two stars"),
        ("the *bank* or the *bank*", r"2 words are marked in .* \(bank, bank\); mark one"),
        ("x" * 500, "no word is marked in 'x{59}…'"),
    ],
)
def test_a_text_without_just_one_mark_is_refused(text, said):
    with pytest.raises(UsageError, match=said) as raised:
        read_mark(text)
    assert "\n" not in str(raised.value)


def test_a_named_word_must_stand_in_the_text_once():
    assert mark_word("the bank of the riverbank", "bank").spans == ((4, 8),)
    assert mark_word("C++ is", "C++").words == ("C++",)
    with pytest.raises(UsageError, match="'bank' is not in 'the river'"):
        mark_word("the river", "bank")
    with pytest.raises(UsageError, match="'the' occurs 2 times in"):
        mark_word("the end of the", "the")
    with pytest.raises(UsageError, match="'' is not in"):
        mark_word("the river", "")
