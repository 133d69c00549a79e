"""Rules of a treebank that cut raw text into tokens and words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from larvatus.data.text.learned_words import WordRules, WordToken, learn_words


def tokens(text: str) -> list[WordToken]:
    """``do+n't ,`` with a space between what touches, ``_`` where a space is: training data by hand."""
    made: list[WordToken] = []
    place = 0
    for chunk in text.split("_"):
        parts = chunk.split()
        for number, part in enumerate(parts):
            form, _, expansion = part.partition("=")
            words = tuple(expansion.split("+")) if expansion else tuple(form.split("+"))
            form = form.replace("+", "")
            space = number == len(parts) - 1
            made.append(WordToken(form, words, place, place + len(form), space))
            place += len(form) + space
    return made


TRAINING = [
    tokens("I_do+n't_go_du=de+le_parc ."),
    tokens("You_do+n't_see_it , ( really ) ."),
    tokens("We_do+n't_go ,_du=de+le_lac ."),
    tokens("It_costs_2.50 ,_or_3.50 !"),
    tokens("A_well - known_and_a_long - known_man ."),
]
RULES = learn_words(TRAINING * 2)


def test_training_text_is_cut_as_it_was() -> None:
    for sentence in TRAINING:
        text = "".join(token.form + " " * token.space for token in sentence).rstrip()
        assert RULES.tokens(text) == sentence


EXPECTED = ["They", "don't", "cost", "7.50", ",", "du", "(", "old", ")", "well", "-", "known", "lac", "."]


def test_other_text_is_cut_by_the_same_rules() -> None:
    found = RULES.tokens("They don't cost 7.50, du (old) well-known lac.")
    assert [token.form for token in found] == EXPECTED
    by_form = {token.form: token.words for token in found}
    assert by_form["don't"] == ("do", "n't")
    assert by_form["du"] == ("de", "le")


def test_a_capital_stays_with_the_first_word_of_a_token_that_words_do_not_spell() -> None:
    assert RULES.tokens("Du lac")[0].words == ("De", "le")


@given(st.text(max_size=60), st.integers(0, 5))
def test_tokens_hold_every_character_that_is_no_white_space(text: str, start: int) -> None:
    start = min(start, len(text))
    found = RULES.tokens(text, start)
    assert "".join(token.form for token in found) == "".join(text[start:].split())
    for token in found:
        assert text[token.start : token.end] == token.form
        assert token.space == (token.end == len(text) or text[token.end].isspace())
        if token.form.lower() not in RULES.expansions:
            assert [text[low:high] for low, high in token.word_spans()] == list(token.words)


def test_without_rules_only_white_space_separates() -> None:
    assert [token.form for token in WordRules().tokens("a,b c.")] == ["a,b", "c."]


def test_only_places_that_narrower_contexts_get_wrong_are_stored() -> None:
    assert sum(map(len, learn_words([tokens("a_b_c")] * 9).borders)) == 0
    assert [len(level) for level in learn_words([tokens("a ._b .")] * 9).borders][1:] == [0] * 7
