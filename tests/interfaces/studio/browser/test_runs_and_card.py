"""Runs and Card in a browser: curves that grow while one looks; a card as text, its claims as a table."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.interfaces.studio.browser.copied import run_curl, run_python
from tests.interfaces.studio.browser.guarded import Guarded
from tests.interfaces.studio.browser.models import HOSTILE, add_steps
from tests.interfaces.studio.browser.served import Served

pytestmark = pytest.mark.proof


def points(studio: Guarded, title: str) -> int:
    """How many points the first line of a chart has."""
    return int(studio.page.get_by_role("img", name=title).evaluate("(plot) => plot.data?.[0]?.x.length ?? 0"))


def test_a_run_grows_on_the_page_and_another_is_laid_over_it(studio: Guarded, served: Served) -> None:
    add_steps(served.folder / "runs" / "growing", 1, 6)
    add_steps(served.folder / "runs" / "other", 1, 9)
    page = studio.open("runs", runs="growing")
    page.locator(".js-plotly-plot .scatterlayer").first.wait_for()
    assert points(studio, "Loss") == 5
    add_steps(served.folder / "runs" / "growing", 6, 11)
    studio.until("() => document.querySelector('.js-plotly-plot').data[0].x.length === 10")
    page.get_by_role("checkbox", name="other").check()
    studio.until("() => document.querySelector('.js-plotly-plot').data.length === 2")
    studio.until("() => decodeURIComponent(location.hash).includes('other')")  # the address follows the chart
    assert set(studio.params()["runs"].split(",")) == {"growing", "other"}
    for chart in ("Loss", "Speed", "Learning rate"):
        assert page.get_by_role("img", name=chart).is_visible()
    answer = run_curl(studio.copied("Copy as curl"))
    assert [record["step"] for record in answer["records"]] == list(range(1, 11))
    code = studio.copied("Copy as Python")
    assert run_python(code + "print(len(records))", served.folder).strip() == "10"


def test_a_hostile_name_of_a_run_stays_text(studio: Guarded, served: Served) -> None:
    name = HOSTILE.replace("/", "")
    add_steps(served.folder / "runs" / name, 1, 4)
    page = studio.open("runs", runs="")
    page.get_by_role("checkbox", name=name).check()
    page.locator(".js-plotly-plot .scatterlayer").first.wait_for()
    page.get_by_role("checkbox", name="growing").check()  # two runs: their names stand in the legend
    page.locator(".legendtext", has_text="onerror").first.wait_for()


def test_a_card_is_shown_with_its_claims_and_its_code_works(studio: Guarded, served: Served) -> None:
    page = studio.open("card", model="answers")
    page.locator("article.prose").wait_for()
    card = run_curl(studio.copied("Copy as curl"))
    heading = next(line for line in card["text"].splitlines() if line.startswith("# "))
    assert page.locator("article.prose").get_by_role("heading", name=heading.removeprefix("# ")).first.is_visible()
    assert card["summary"]["limits"]
    assert page.get_by_role("heading", name="Limits").is_visible()
    screens = "() => document.documentElement.scrollHeight / innerHeight"
    assert page.evaluate(screens) <= 3
    claims = page.locator("section[aria-label=Claims]")
    for fold in claims.locator("summary").all():
        fold.click()
    studio.until("(all) => document.querySelectorAll('.claims tbody tr').length === all", len(card["claims"]))
    page.get_by_label("Find").fill("max_positions")
    page.get_by_role("region", name="Claims: Model").wait_for()
    assert page.locator(".claims tbody tr").count() == 1
    page.get_by_label("Find").fill("no such figure")
    page.get_by_text("No claim holds this.").wait_for()
    page.get_by_label("Model", exact=True).select_option("banks")
    page.get_by_role("heading", name="tiny").wait_for()
    run_python(studio.copied("Copy as Python"), served.folder)


CARD_OF_NUMBERS = """# Numbers

A model of 1,234,567,890,123 parameters.

## Datasheet

| source | words | share | interval | SHA-256 |
| --- | --- | --- | --- | --- |
| SOURCE | 1,234,567,890,123 | 99.5% | 0.123456 to 0.234567 | `DIGEST` |
""".replace("SOURCE", "a long name of a source " * 8).replace("DIGEST", "0123456789abcdef" * 4)
BROKEN = """() => [...document.querySelectorAll("main td.number, main dd")].filter((cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return range.getClientRects().length > 1;
}).length"""


def test_no_number_of_a_card_is_broken_across_lines(open_studio: Callable[..., Guarded], served: Served) -> None:
    studio = open_studio(viewport={"width": 390, "height": 844})
    card = served.folder / "models" / "tags" / "README.md"
    before = card.read_text(encoding="utf-8")
    try:
        card.write_text(CARD_OF_NUMBERS, encoding="utf-8")
        page = studio.open("card", model="tags")
        page.locator("article.prose").wait_for()
    finally:
        card.write_text(before, encoding="utf-8")
    page.get_by_text("Datasheet").click()
    page.locator("main td.number").first.wait_for()
    assert page.locator("main td.number").all_inner_texts() == ["1,234,567,890,123", "99.5%", "0.123456 to 0.234567"]
    assert page.evaluate(BROKEN) == 0
    assert page.locator("main td code").inner_text() == "0123456789ab…"
    assert studio.sideways() == 0
    assert page.evaluate("() => document.documentElement.scrollHeight / innerHeight") <= 3


def test_metrics_of_a_run_have_names_for_people(studio: Guarded, served: Served) -> None:
    run = served.folder / "runs" / "named"
    add_steps(run, 1, 4)
    scores = {"scores/masked-lm/loss": 2.5, "scores/masked-lm/accuracy": 0.5, "entity-f1": 0.25, "seen": 99}
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        for step in (2, 3):
            file.write(json.dumps({"kind": "valid", "step": step, "time": 10.0 + step, **scores}) + "\n")
    page = studio.open("runs", runs="named")
    choice = page.get_by_role("combobox", name="Held-out score")
    choice.wait_for()
    options = choice.locator("option").all_inner_texts()
    assert options == ["masked tokens: accuracy", "entity F1"]
    page.get_by_role("img", name="Loss: training loss, held-out masked tokens: loss").wait_for()
    choice.select_option("entity F1")
    page.locator(".ytitle", has_text="entity F1").wait_for()


def test_markup_in_a_card_stays_text(studio: Guarded, served: Served) -> None:
    hostile = f"# {HOSTILE}\n\n<script>alert(1)</script> [link](javascript:alert(1)) ![pic](http://127.0.0.1:9/x.png)\n"
    card = served.folder / "models" / "tags" / "README.md"
    before = card.read_text(encoding="utf-8")
    try:
        card.write_text(hostile, encoding="utf-8")
        page = studio.open("card", model="tags")
        page.locator("article.prose").wait_for()
    finally:
        card.write_text(before, encoding="utf-8")
    assert page.locator("article.prose h1, article.prose h2").first.inner_text() == HOSTILE
    assert page.locator("article.prose :is(img, script, [href^='javascript'])").count() == 0
