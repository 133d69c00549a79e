"""Compare words in a browser: cosines of marked words, as they are and standardised."""

from __future__ import annotations

import pytest

from tests.interfaces.studio.browser.copied import run_curl, run_python
from tests.interfaces.studio.browser.guarded import Guarded
from tests.interfaces.studio.browser.served import Served

pytestmark = pytest.mark.proof
TEXTS = "the river *bank* was wide\na deep *river* was wide\nturn your *homework* in"


def table(studio: Guarded, label: str) -> list[list[float]]:
    rows = studio.page.get_by_role("region", name=label).locator("tbody tr")
    rows.first.wait_for()
    studio.page.wait_for_function("() => !document.querySelector('[aria-busy]')")
    return [[float(cell.replace("−", "-")) for cell in row.locator("td").all_inner_texts()] for row in rows.all()]


def test_cosines_before_and_after_standardisation_are_the_models_own(studio: Guarded, served: Served) -> None:
    page = studio.open("compare", model="rivers", texts=TEXTS)
    before, after = table(studio, "Cosines as the model gives them"), table(studio, "Cosines after standardisation")
    assert before != after
    answer = run_curl(studio.copied("Copy as curl"))
    for shown, exact in zip(after, answer["cosines"], strict=True):
        assert shown == pytest.approx(exact, abs=0.0051)
    said = run_python(studio.copied("Copy as Python"), served.folder)
    assert f"{before[0][1]:.2f}" in said
    assert page.get_by_role("heading", name="Pairs, nearest first").is_visible()
    pairs = [float(cell.replace("−", "-")) for cell in page.locator(".table tbody td:last-child").all_inner_texts()]
    assert pairs == sorted(pairs, reverse=True)
    assert len(pairs) == 3


def test_another_word_is_marked_by_a_click_and_the_address_keeps_it(studio: Guarded) -> None:
    page = studio.open("compare", model="rivers", texts=TEXTS)
    before = table(studio, "Cosines as the model gives them")
    page.get_by_role("button", name="river", exact=True).first.click()
    studio.until_address("*river*+bank")
    after = table(studio, "Cosines as the model gives them")
    page.reload()
    assert table(studio, "Cosines as the model gives them") == after != before
    assert page.locator(".cosine-word").first.inner_text() == "river"


def test_a_model_without_a_standardiser_says_how_to_fit_one(studio: Guarded) -> None:
    page = studio.open("compare", model="banks", texts=TEXTS)
    assert len(table(studio, "Cosines as the model gives them")) == 3
    page.get_by_text("larvatus isotropy fit").wait_for()
