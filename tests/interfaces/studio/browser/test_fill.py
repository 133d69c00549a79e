"""Fill in a browser: words become blanks, bars say what is expected, and the address holds it all."""

from __future__ import annotations

import pytest

from tests.interfaces.studio.browser.copied import run_curl, run_python
from tests.interfaces.studio.browser.guarded import Guarded
from tests.interfaces.studio.browser.served import Served

pytestmark = pytest.mark.proof
TEXT = "the river was wide"


def bars(studio: Guarded, name: str = "rivers") -> list[str]:
    """Names of the bars of a model, best first."""
    card = studio.page.get_by_role("article", name=f"Expected by {name}")
    card.locator(".bar-row").first.wait_for()
    return card.locator(".bar-name").all_inner_texts()


def test_a_clicked_word_becomes_a_blank_and_bars_say_what_is_expected(studio: Guarded, served: Served) -> None:
    page = studio.open("fill", model="rivers", text=TEXT)
    assert page.locator(".bar-row").count() == 0
    page.get_by_role("button", name="river", exact=True).click()
    expected = run_curl(f"curl -s {served.address}/v1/fill -H 'Content-Type: application/json' "
                        """-d '{"texts": "the [MASK] was wide", "model": "rivers", "top": 5}'""")  # fmt: skip
    assert bars(studio) == [each["token"] for each in expected["results"][0]["fills"]]
    assert page.get_by_role("button", name="was river").get_attribute("aria-pressed") == "true"
    widths = [bar.bounding_box()["width"] for bar in page.locator(".bar").all()]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 0
    page.get_by_role("button", name="was river").click()
    page.get_by_text("Nothing is blank yet").wait_for()
    assert page.locator(".bar-row").count() == 0


def test_two_models_stand_side_by_side_and_the_address_brings_them_back(studio: Guarded) -> None:
    page = studio.open("fill", model="rivers", text=TEXT)
    page.get_by_role("button", name="wide", exact=True).click()
    page.get_by_label("Beside it").select_option("banks")
    page.get_by_label("Candidates").select_option("10")
    studio.until("() => document.querySelectorAll('.bar-row').length === 20")  # not the older answers with five
    before = (bars(studio, "rivers"), bars(studio, "banks"))
    assert before[0] != before[1]
    left, right = (
        page.get_by_role("article", name=f"Expected by {name}").bounding_box() for name in ("rivers", "banks")
    )
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] <= right["x"]
    studio.until_address("second=banks", "top=10")
    assert studio.params()["text"] == TEXT
    assert [len(names) for names in before] == [10, 10]
    page.reload()
    studio.until("() => document.querySelectorAll('.bar-row').length === 20")
    assert (bars(studio, "rivers"), bars(studio, "banks")) == before
    assert page.get_by_label("Text", exact=True).input_value() == TEXT


def test_what_is_typed_is_asked_and_several_blanks_are_filled_together(studio: Guarded) -> None:
    page = studio.open("fill", model="rivers", text=TEXT)
    page.get_by_label("Text", exact=True).fill("the [MASK] was [MASK] and deep")
    page.get_by_text("All 2 blanks together").wait_for()
    assert page.get_by_role("heading", name="alone").all_inner_texts() == ["Blank 1 alone", "Blank 2 alone"]
    page.get_by_role("list", name="All blanks together").locator(".bar-row").first.wait_for()


def test_the_keyboard_alone_is_enough(studio: Guarded) -> None:
    page = studio.open("fill", model="rivers", text=TEXT)
    box = page.get_by_label("Text", exact=True)
    for _ in range(30):
        page.keyboard.press("Tab")
        if box.evaluate("(box) => box === document.activeElement"):
            break
    else:
        pytest.fail("Tab never reaches the text")
    page.keyboard.press("Control+A")
    page.keyboard.type("a bank was deep")
    page.keyboard.press("Tab")  # to the words: one stop, arrows move
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "bank"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"  # where one is can be seen
    page.keyboard.press("Enter")
    assert len(bars(studio)) == 5
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    page.keyboard.press("Space")
    page.get_by_text("Nothing is blank yet").wait_for()


def test_the_code_that_is_copied_works_and_says_the_same(studio: Guarded, served: Served) -> None:
    studio.open("fill", model="banks", text='the [MASK] was "wide" $HOME it\'s `deep`')
    shown = bars(studio, "banks")
    answer = run_curl(studio.copied("Copy as curl"))
    assert (answer["model"], [each["token"] for each in answer["results"][0]["fills"]]) == ("banks", shown)
    said = run_python(studio.copied("Copy as Python"), served.folder)
    assert all(name in said for name in shown)
