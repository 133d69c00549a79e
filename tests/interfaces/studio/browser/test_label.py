"""Label in a browser: classes, tags, nested spans, answers; labels are text, whatever they say."""

from __future__ import annotations

import pytest

from tests.interfaces.studio.browser.copied import run_curl, run_python
from tests.interfaces.studio.browser.guarded import Guarded
from tests.interfaces.studio.browser.models import HOSTILE, LABELS
from tests.interfaces.studio.browser.served import Served

pytestmark = pytest.mark.proof
TEXT = "please river bank was wide"


def test_classes_are_bars_and_a_hostile_label_stays_text(studio: Guarded, served: Served) -> None:
    page = studio.open("label", model="classes", text=TEXT)
    page.locator(".bar-row").first.wait_for()
    names = page.locator(".bar-name").all_inner_texts()
    assert sorted(names) == sorted(LABELS)
    assert page.locator("main img").count() == 0
    answer = run_curl(studio.copied("Copy as curl"))["results"][0]
    assert names == sorted(answer["probabilities"], key=lambda label: -answer["probabilities"][label])
    assert answer["label"] in run_python(studio.copied("Copy as Python"), served.folder)
    page.get_by_label("Second text").fill("a deep river")
    studio.until_address("pair=")
    page.get_by_role("button", name="Copy as curl").wait_for()
    assert HOSTILE in page.locator("main").inner_text()


def test_spans_are_nested_brackets(studio: Guarded, served: Served) -> None:
    page = studio.open("label", model="spans", text=TEXT)
    page.locator(".bracketed").first.wait_for()
    assert page.locator(".brackets").evaluate("(box) => box.style.getPropertyValue('--height')") == "2"
    names = page.locator(".bracket-name")
    tops = {name.inner_text(): name.bounding_box()["y"] for name in names.all()}
    assert tops["LOC"] < tops["WATER"]  # the outer bracket is above the inner one
    rows = page.get_by_role("region", name="Spans").locator("tbody tr")
    assert sorted(row.locator("td").all_inner_texts()[:2] for row in rows.all()) == [
        ["river", "WATER"],
        ["river bank", "LOC"],
    ]
    answer = run_curl(studio.copied("Copy as curl"))["results"][0]
    assert {(each["text"], each["label"]) for each in answer["entities"]} == {("river", "WATER"), ("river bank", "LOC")}
    assert "WATER" in run_python(studio.copied("Copy as Python"), served.folder)


def test_tags_are_drawn_over_their_words(studio: Guarded) -> None:
    page = studio.open("label", model="tags", text=TEXT)
    page.get_by_role("article", name="What tags says").wait_for()
    answer = run_curl(studio.copied("Copy as curl"))["results"][0]
    shown = [row.locator("td").all_inner_texts()[:2] for row in page.locator("table tbody tr").all()]
    assert shown == [[each["text"], each["label"]] for each in answer["entities"]]
    assert len(shown) > 0


def test_an_answer_is_marked_in_its_passage(studio: Guarded, served: Served) -> None:
    passage = "the wide river deep of a was of the"
    page = studio.open("label", model="answers", question="in the river ?", text=passage)
    page.locator(".passage mark").wait_for()
    assert page.locator(".passage mark").inner_text() == "river deep"
    assert page.locator(".passage").inner_text() == passage
    assert run_curl(studio.copied("Copy as curl"))["results"][0]["text"] == "river deep"
    assert "river deep" in run_python(studio.copied("Copy as Python"), served.folder)
    page.get_by_label("Question").fill("")
    page.get_by_text("Type a question").wait_for()


def test_endings_are_listed_in_full_with_their_shares(studio: Guarded, served: Served) -> None:
    endings = ["please run", HOSTILE, "was wide and deep"]
    page = studio.open("label", model="choices", text="the river", endings="\n".join([*endings, "", "  "]))
    listed = page.get_by_role("list", name="Endings and their probabilities").get_by_role("listitem")
    listed.first.wait_for()
    answer = run_curl(studio.copied("Copy as curl"))["results"][0]
    shares = answer["probabilities"]
    assert list(shares) == endings
    assert [each.locator(".material").inner_text() for each in listed.all()] == sorted(
        endings, key=lambda e: -shares[e]
    )
    assert page.locator(".choice[aria-current] .material").inner_text() == answer["ending"]
    assert page.locator(".answer").inner_text().startswith(answer["ending"])
    assert answer["ending"] in run_python(studio.copied("Copy as Python"), served.folder)
    page.get_by_role("textbox", name="Endings").fill("only one")
    page.get_by_text("Type two endings or more").wait_for()


def test_another_model_can_be_chosen_and_the_address_follows(studio: Guarded) -> None:
    page = studio.open("label", model="spans", text=TEXT)
    page.locator(".bracketed").first.wait_for()
    page.get_by_label("Model", exact=True).select_option("classes")
    page.locator(".bar-row").first.wait_for()
    assert studio.params()["model"] == "classes"
    options = page.get_by_label("Model", exact=True).locator("option").all_inner_texts()
    assert {"classes", "tags", "spans", "answers", "choices"} <= set(options)
    assert not {"rivers", "banks"} & set(options)
