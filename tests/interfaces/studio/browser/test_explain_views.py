"""Layers, Why, Swap and Probe in a browser: what they draw is what Python says, by pointer and by keys."""

from __future__ import annotations

import json
from typing import Any

import pytest

import larvatus as lv
from tests.interfaces.studio.browser.copied import run_curl, run_python
from tests.interfaces.studio.browser.guarded import Guarded
from tests.interfaces.studio.browser.models import HOSTILE
from tests.interfaces.studio.browser.served import Served
from tests.interfaces.studio.browser.states import probe_example

pytestmark = pytest.mark.proof
PAIR = ("the river [MASK]", "a river [MASK]")


def texts(rows: Any) -> list[str]:
    return [text.strip() for text in rows.all_inner_texts()]


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("+", ""))


def model_of(served: Served, name: str) -> Any:
    return lv.load(served.folder / "models" / name, device="cpu")


def test_layers_show_the_lens_and_the_words_it_depends_on(studio: Guarded, served: Served) -> None:
    page = studio.open("layers", model="rivers", text="the river was wide")
    page.get_by_text("Nothing is blank yet").wait_for()
    page.locator(".word").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.locator(".lens").wait_for()
    blank = model_of(served, "rivers").lens("the [MASK] was wide", top=5).blanks[0]
    words = [texts(row.locator("td .material")) for row in page.locator(".lens tbody tr").all()]
    assert words == [[word.token for word in layer.top] for layer in reversed(blank.layers)]
    distances = [number(text) for text in texts(page.locator(".lens tbody td:nth-child(3)"))]
    assert distances == pytest.approx([layer.kl for layer in reversed(blank.layers)], abs=0.006)
    assert page.locator(".lens-decided th").inner_text().split(",")[0].strip() == str(blank.decided)
    if blank.context:
        shown = texts(page.locator("th.material"))
        assert shown == [word.text for word in blank.context]
    studio.until_address("blanks=1")
    printed = run_python(studio.copied("Copy as Python"), served.folder)
    assert "logit lens" in printed
    assert run_curl(studio.copied("Copy as curl"))["blanks"][0]["decided"] == blank.decided


def test_why_marks_the_words_and_changes_the_method_without_asking_again(studio: Guarded, served: Served) -> None:
    page = studio.open("why", model="rivers", text="the river was wide", blanks="1")
    page.locator(".why").wait_for()
    wanted = model_of(served, "rivers").explain("the [MASK] was wide", methods=["all"])
    columns = [[number(text) for text in texts(row.locator("td"))] for row in page.locator(".why tbody tr").all()]
    for shown, word in zip(columns, wanted.words, strict=True):
        assert shown == pytest.approx(list(word.scores.values()), abs=0.0006)
    assert page.get_by_role("heading", name=wanted.label).count() == 1
    asked = len([url for url in studio.asked if url.endswith("/explain")])
    page.get_by_role("button", name="attention rollout").focus()
    page.keyboard.press("Enter")
    page.get_by_text("it has no sign").wait_for()
    page.locator("tr.chosen th", has_text="attention rollout").wait_for()
    studio.until_address("method=attention-rollout")
    assert len([url for url in studio.asked if url.endswith("/explain")]) == asked
    rows = page.get_by_role("region", name="Controls of the methods").locator("tbody tr")
    assert rows.count() == 5  # four methods and random orders
    assert "20 random orders" in rows.last.inner_text()
    assert wanted.label in run_python(studio.copied("Copy as Python"), served.folder)
    assert run_curl(studio.copied("Copy as curl"))["label"] == wanted.label


def test_one_of_several_blanks_is_chosen(studio: Guarded, served: Served) -> None:
    page = studio.open("why", model="rivers", text="the [MASK] was [MASK]")
    page.get_by_role("heading", name="Blank 1:").wait_for()
    page.get_by_label("Blank to explain").select_option("2")
    wanted = model_of(served, "rivers").explain("the [MASK] was [MASK]", at=2)
    page.get_by_role("heading", name=f"Blank 2: {wanted.label}").wait_for()
    studio.until_address("at=2")


def test_why_explains_a_class_a_tag_and_an_answer(studio: Guarded, served: Served) -> None:
    page = studio.open("why", model="classes", text="the river was wide")
    page.get_by_label("Class to explain").select_option("dry")
    page.get_by_role("heading", name="dry").wait_for()
    page.get_by_label("Class to explain").select_option(HOSTILE)
    page.get_by_role("heading", name=HOSTILE).wait_for()
    page = studio.open("why", model="tags", text="🙂 the river was wide")
    page.locator(".why").wait_for()
    page.locator(".word", has_text="river").click()
    page.get_by_role("heading", name="of river").wait_for()
    assert page.locator(".why-text .why-word", has_text="river").inner_text() == "river"
    studio.until_address("at=")
    run_python(studio.copied("Copy as Python"), served.folder)
    page = studio.open("why", model="answers", text="the river was wide", pair="the bank")
    page.locator(".why").wait_for()
    assert page.locator(".why-text").count() == 2
    run_python(studio.copied("Copy as Python"), served.folder)


def test_too_few_steps_are_reported_with_a_way_to_more(studio: Guarded) -> None:
    page = studio.page

    def incomplete(route: Any) -> None:
        answer = route.fetch()
        body = {**answer.json(), "gap": 0.5, "complete": False}
        route.fulfill(response=answer, body=json.dumps(body))

    page.route("**/studio/api/explain", incomplete)
    studio.open("why", model="rivers", text="the river was wide", blanks="1")
    page.get_by_role("button", name="Use more steps").click()
    studio.until_address("steps=128")
    page.get_by_role("button", name="Use more steps").click()
    studio.until_address("steps=512")
    page.get_by_text("after 512 steps").wait_for()
    assert page.get_by_text("not complete").count() == 1
    assert page.get_by_role("button", name="Use more steps").count() == 0


def test_a_word_is_swapped_in_place_and_the_map_is_that_of_python(studio: Guarded, served: Served) -> None:
    page = studio.open("swap", model="rivers", first=PAIR[0], second=PAIR[0], a="was", b="and")
    page.get_by_text("there is nothing to explain").wait_for()
    studio.allow("422")
    page.locator(".word").first.click()
    page.get_by_label("Instead of “the”").fill("a")
    page.keyboard.press("Enter")
    page.locator(".swap-map").wait_for()
    assert page.get_by_label("Second sentence").input_value() == PAIR[1]
    wanted = model_of(served, "rivers").patch(*PAIR, answers=("was", "and"))
    for name, site in (("whole state", "residual"), ("attention", "attention"), ("feedforward", "feedforward")):
        page.get_by_role("button", name=name, exact=True).click()
        page.get_by_role("region", name=f"Effects of {name}").wait_for()
        rows = page.locator(".swap-map tbody tr").all()
        assert texts(page.locator(".swap-map tbody th")) == [*wanted.words, "all words"]
        shown = [[number(text) for text in texts(row.locator("td"))] for row in rows]
        for mine, theirs in zip(shown, wanted.effects[site].T.tolist(), strict=True):
            assert mine == pytest.approx(theirs, abs=0.006)
    studio.until_address("site=feedforward", "second=a+river")
    run_python(studio.copied("Copy as Python"), served.folder)
    assert run_curl(studio.copied("Copy as curl"))["words"] == list(wanted.words)
    page.reload()
    page.get_by_role("region", name="Effects of feedforward").wait_for()


def test_sentences_that_do_not_align_say_where(studio: Guarded) -> None:
    studio.allow("422")
    page = studio.open("swap", model="rivers", first=PAIR[0], second="a deep river [MASK]", a="was", b="and")
    page.get_by_role("alert").get_by_text("do not align word by word").wait_for()
    page.get_by_label("Second sentence").fill("")
    page.get_by_text("Two sentences and two answers").wait_for()


def test_an_example_that_a_model_has_no_words_for_is_no_error(studio: Guarded) -> None:
    studio.allow("422")
    page = studio.open("swap", model="rivers")
    page.get_by_text("The English example does not suit this model").wait_for()
    assert page.get_by_role("alert").count() == 0
    page.get_by_label("First sentence", exact=True).fill(PAIR[0])
    page.get_by_role("alert").wait_for()


def test_a_probe_runs_is_kept_and_is_shown_again(studio: Guarded, served: Served) -> None:
    page = studio.open("probe", model="rivers")
    page.get_by_text("Choose a file").wait_for()
    probe_example(studio)
    saved = served.folder / "runs" / "studio-probes" / "words" / "report.json"
    report = json.loads(saved.read_text())
    rows = page.locator(".probe-picture tbody tr")
    assert rows.count() == len(report["layers"]) == 3
    assert texts(page.locator(".probe-picture thead th"))[2:] == [
        "accuracy",
        "control",
        "selectivity",
        "random weights",
    ]
    page.get_by_text("What rivers knows of words.conll").wait_for()
    page.get_by_text("majority of the word type:").wait_for()
    studio.until_address("saved=words")
    page.reload()
    page.locator(".probe-picture svg").wait_for()
    page.get_by_label("Saved probes").select_option("")
    studio.until("() => !document.querySelector('.probe-picture')")
    page.get_by_label("File of labelled examples").set_input_files(
        {"name": "mine.json", "mimeType": "application/json", "buffer": saved.read_bytes()}
    )
    page.locator(".probe-picture svg").wait_for()


def test_a_file_that_cannot_be_probed_says_why(studio: Guarded) -> None:
    studio.allow("422")
    page = studio.open("probe", model="rivers")
    page.get_by_text("Or paste rows").click()
    page.get_by_label("Rows").fill("the\tDET\n\nriver\tNOUN\n")
    page.get_by_role("button", name="Look at these rows").click()
    page.get_by_role("button", name="Probe", exact=True).click()
    page.get_by_role("alert").get_by_text("too few to probe").wait_for()
