"""Inside in a browser: all heads as small pictures, one head as lines or as a matrix."""

from __future__ import annotations

import pytest

from tests.interfaces.studio.browser.copied import run_curl, run_python
from tests.interfaces.studio.browser.guarded import Guarded
from tests.interfaces.studio.browser.served import Served

pytestmark = pytest.mark.proof
TEXT = "the river was wide"
TOKENS = ["[CLS]", "the", "river", "was", "wide", "[SEP]"]


def test_a_head_is_chosen_and_a_token_says_what_it_looks_at(studio: Guarded, served: Served) -> None:
    page = studio.open("inside", model="rivers", text=TEXT)
    page.get_by_role("heading", name="Layer").wait_for()
    assert page.locator("button.head").count() == 4
    page.get_by_role("button", name="Layer 2, head 1").click()
    page.get_by_role("heading", name="Layer 2, head 1").wait_for()
    assert page.locator(".lines-from .token").all_inner_texts() == TOKENS
    page.locator(".lines-from").get_by_role("button", name="river").click()
    item = run_curl(studio.copied("Copy as curl"))
    assert item["tokens"] == TOKENS
    weights = item["weights"][1][0][2]
    shown = page.locator(".lines-to .number").all_inner_texts()
    said = [float(text.rstrip(" %")) / 100 if text else 0.0 for text in shown]
    assert said == pytest.approx(weights, abs=0.006)
    run_python(studio.copied("Copy as Python"), served.folder)
    studio.until_address("layer=2", "token=2")
    page.reload()
    page.get_by_role("heading", name="Layer 2, head 1").wait_for()
    assert page.locator(".lines-from [aria-pressed=true]").inner_text() == "river"


def test_the_matrix_says_its_weights_by_pointer_and_by_keys(studio: Guarded) -> None:
    page = studio.open("inside", model="rivers", text=TEXT, show="matrix", layer=1, head=2)
    canvas = page.get_by_role("img", name="Attention of layer 1, head 2")
    item = run_curl(studio.copied("Copy as curl"))
    canvas.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    row, column = page.locator(".reading").inner_text().split(": ")[0].split(" → ")
    i, j = TOKENS.index(row), TOKENS.index(column)
    assert page.locator(".reading").inner_text() == f"{row} → {column}: {item['weights'][0][1][i][j]:.3f}"
    dark = canvas.evaluate(
        """(canvas) => { const pen = canvas.getContext("2d");
            const all = pen.getImageData(0, 0, canvas.width, canvas.height).data;
            return new Set(all.filter((_, n) => n % 4 === 0)).size; }"""
    )
    assert dark > 20  # something is painted, in more than a few shades


def test_kinds_of_heads_can_be_shown_alone(studio: Guarded) -> None:
    page = studio.open("inside", model="rivers", text=TEXT)
    legend = page.get_by_role("group", name="Kinds of heads")
    first = legend.get_by_role("button").first
    first.click()
    assert first.get_attribute("aria-pressed") == "true"
    kind = first.get_attribute("data-type")
    lit = page.locator("button.head:not(.dim)")
    assert lit.count() == int(first.inner_text().split()[-1])
    assert all(str(kind) in str(button.get_attribute("aria-label")) for button in lit.all())
