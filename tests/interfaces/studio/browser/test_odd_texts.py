"""Texts nobody should type, in every view that takes one: none breaks the page, and none becomes markup."""

from __future__ import annotations

import pytest

from tests.interfaces.studio.browser.guarded import Guarded
from tests.interfaces.studio.browser.models import HOSTILE

pytestmark = pytest.mark.proof
ODD = {
    "emoji": "the 👩‍👩‍👧‍👦 river 🏳️‍🌈 was 🙂 wide",
    "right to left": "הנהר היה רחב the river كان النهر واسعا",
    "markup": f"the river {HOSTILE} <script>alert(2)</script> <b>was</b> &lt;wide&gt; \"'><svg onload=alert(3)>",
    "marks alone": "*** [MASK] ** \\* <mask> [CLS] [SEP]",
    "half a pair": "the river \ud83d was wide".encode("utf-16", "surrogatepass").decode("utf-16", "replace"),
    "zero width": "the\u200b river\u202e was\u0000 wide\ufeff",
}


def settled(studio: Guarded, view: str) -> str:
    """What the view says once it is no longer reading: a result, or why there is none."""
    studio.until(
        """(drawn) => !document.querySelector("[aria-busy], .busy") && !!document.querySelector(drawn)""",
        "main :is(.bar-row, .lines, .group, .cosines, .answer, .brackets, .notice, .empty)",
    )
    return str(studio.page.locator("main").inner_text())


@pytest.mark.parametrize("kind", ODD)
def test_odd_texts_are_answered_or_refused_in_words(kind: str, studio: Guarded) -> None:
    studio.allow(r"status of 4\d\d")  # chromium's own words for a refusal; what the page says is checked here
    text = ODD[kind]
    for view, params in (
        ("fill", {"model": "rivers", "text": f"{text} [MASK]"}),
        ("inside", {"model": "rivers", "text": text}),
        ("senses", {"model": "rivers", "texts": f"*a* {text}\n*the* {text}\n*of* {text}"}),
        ("compare", {"model": "rivers", "texts": f"*a* {text}\n*the* {text}"}),
        ("label", {"model": "tags", "text": text}),
        ("label", {"model": "answers", "text": text, "question": text}),
    ):
        studio.open(view, **params)
        assert "undefined" not in settled(studio, view)
        studio.check()
    assert studio.page.locator("main img, main svg[onload], main b").count() == 0


def test_right_to_left_text_runs_from_right_to_left(studio: Guarded) -> None:
    page = studio.open("fill", model="rivers", text="הנהר היה רחב [MASK]")
    words = page.locator(".words .word")
    words.first.wait_for()
    places = words.evaluate_all("(words) => words.slice(0, 3).map((word) => word.getBoundingClientRect().x)")
    assert len(places) == 3
    assert places == sorted(places, reverse=True)
    assert page.get_by_label("Text", exact=True).evaluate("(box) => getComputedStyle(box).direction") == "rtl"


@pytest.mark.parametrize(
    ("view", "params"),
    [
        ("fill", {"text": ""}),
        ("inside", {"text": ""}),
        ("senses", {"texts": ""}),
        ("compare", {"texts": ""}),
        ("label", {"model": "classes", "text": ""}),
    ],
)
def test_an_empty_text_is_asked_for_and_never_sent(studio: Guarded, view: str, params: dict[str, str]) -> None:
    page = studio.open(view, **params)
    boxes = page.locator("main textarea")
    boxes.first.fill("")
    page.locator(".empty").wait_for()
    sent = len(studio.asked)
    page.wait_for_timeout(700)
    boxes.first.fill("   ")
    page.wait_for_timeout(700)
    assert page.locator(".empty").is_visible()
    assert [url for url in studio.asked[sent:] if "/v1/" in url] == []


@pytest.mark.parametrize(
    ("view", "model"), [("fill", "rivers"), ("inside", "rivers"), ("label", "tags"), ("label", "classes")]
)
def test_a_text_of_100_000_characters_is_read_or_refused_and_the_page_stays_quick(
    studio: Guarded, view: str, model: str
) -> None:
    studio.allow(r"status of 4\d\d")
    page = studio.open(view, model=model, text="the river")
    settled(studio, view)
    text = "the [MASK] river was wide . " + "the river bank was deep . " * 3_847
    assert len(text) >= 100_000
    page.locator("main textarea").first.fill(text)
    studio.until(r"() => /Read [\w,]+ of [\d,]+ tokens|Read all [\d,]+ tokens|tokens make/.test(main.innerText)")
    page.get_by_text("too long for the address").wait_for()
    assert len(page.url) < 60_000
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    assert page.locator("*").count() < 10_000  # of 23,000 words
    assert studio.sideways() <= 0


@pytest.mark.parametrize(("view", "needs"), [("fill", "fill blanks"), ("label", "classify")])
def test_a_model_without_that_head_is_not_shown_and_the_view_says_what_it_needs(
    studio: Guarded, view: str, needs: str
) -> None:
    lacking = {"fill": "classes", "label": "banks"}[view]
    page = studio.open(view, model=lacking)
    notice = page.locator(".notice", has_text=f"{lacking} cannot do what this view shows")
    assert needs in notice.inner_text()
    assert lacking not in page.get_by_label("Model", exact=True).locator("option").all_inner_texts()
