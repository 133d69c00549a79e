"""Edit scripts: each makes its lemma again, and serves other words of the same kind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from larvatus.tasks.parse.lemmas import apply_script, edit_script


@given(st.text(min_size=1, max_size=12), st.text(min_size=1, max_size=12))
def test_a_script_makes_its_lemma(form: str, lemma: str) -> None:
    assert apply_script(edit_script(form, lemma), form) == lemma


@pytest.mark.parametrize(
    ("form", "lemma", "other", "expected"),
    [
        ("Rivers", "river", "banks", "bank"),
        ("walked", "walk", "TURNED", "turn"),
        ("gesagt", "sagen", "gefragt", "fragen"),
        ("NATO", "NATO", "EU", "EU"),
        ("was", "be", "is", "be"),
    ],
)
def test_a_script_serves_other_words(form: str, lemma: str, other: str, expected: str) -> None:
    assert apply_script(edit_script(form, lemma), other) == expected


def test_a_form_that_is_too_short_has_no_lemma_by_the_script() -> None:
    assert apply_script(edit_script("walking", "walk"), "in") is None
