"""Senses in a browser: sentences fall into groups, a dot shows its nearest."""

from __future__ import annotations

import pytest

from tests.interfaces.studio.browser.copied import run_curl, run_python
from tests.interfaces.studio.browser.guarded import Guarded
from tests.interfaces.studio.browser.served import Served
from tests.interfaces.studio.browser.states import TEXTS

pytestmark = pytest.mark.proof


def groups(studio: Guarded) -> list[list[str]]:
    cards = studio.page.locator("section.group")
    cards.first.wait_for()
    return [card.locator(".member .number").all_inner_texts() for card in cards.all()]


def test_sentences_fall_into_groups_as_the_server_says(studio: Guarded, served: Served) -> None:
    page = studio.open("senses", model="rivers", texts=TEXTS, clusters=2)
    shown = groups(studio)
    assert sorted(number for group in shown for number in group) == ["1", "2", "3", "4"]
    assert len(shown) == 2
    answer = run_curl(studio.copied("Copy as curl"))
    assert len(answer["instances"]) == page.locator(".plane .dot").count() == 4
    for group, members in enumerate(shown):
        assert {answer["instances"][int(number) - 1]["cluster"] for number in members} == {group}
    run_python(studio.copied("Copy as Python"), served.folder)


def test_a_dot_is_chosen_by_click_and_by_keys_and_shows_its_nearest(studio: Guarded) -> None:
    page = studio.open("senses", model="rivers", texts=TEXTS, clusters=2)
    groups(studio)
    page.locator(".plane .dot").nth(2).click()
    page.get_by_role("heading", name="Nearest to 3").wait_for()
    cosines = [float(text) for text in page.locator(".near-row > .number").all_inner_texts()]
    assert cosines == sorted(cosines, reverse=True)
    assert len(cosines) == 3
    page.locator(".plane .dot").nth(2).focus()
    page.keyboard.press("ArrowRight")
    page.get_by_role("heading", name="Nearest to 4").wait_for()
    studio.until_address("at=4")
    page.reload()
    page.get_by_role("heading", name="Nearest to 4").wait_for()


def test_too_few_marked_sentences_are_asked_for_more(studio: Guarded) -> None:
    page = studio.open("senses", model="rivers", texts="the *river*\na river")
    page.get_by_text("Mark a word in three sentences or more").wait_for()
    page.get_by_role("button", name="Mark “river” in the other sentence").click()
    page.get_by_label("Sentences").fill(page.get_by_label("Sentences").input_value() + "\nthe wide *river*")
    assert sorted(number for group in groups(studio) for number in group) == ["1", "2", "3"]
