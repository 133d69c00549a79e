"""Each view in a state that shows something: its address, and what is on the page when it is drawn.

show(studio, "label")
"""

from __future__ import annotations

from typing import Any

from tests.interfaces.studio.browser.guarded import Guarded

TEXTS = "the river *bank* was wide\na deep river *bank* and\nplease turn your *homework* in\nthe *homework* was deep"
STATES: dict[str, tuple[dict[str, Any], str]] = {
    "fill": ({"model": "rivers", "text": "the [MASK] was [MASK]", "second": "banks"}, ".bar-row"),
    "layers": ({"model": "rivers", "text": "the river was wide", "blanks": "1"}, ".lens td"),
    "inside": ({"model": "rivers", "text": "the river was wide", "layer": 2, "token": 2}, ".lines-to .number"),
    "senses": ({"model": "rivers", "texts": TEXTS, "clusters": 2, "at": 1}, ".near-row"),
    "compare": ({"model": "rivers", "texts": TEXTS}, ".cosines"),
    "why": ({"model": "rivers", "text": "the river was wide", "blanks": "1"}, ".why td"),
    "swap": (
        {"model": "rivers", "first": "the river [MASK]", "second": "a river [MASK]", "a": "was", "b": "and"},
        ".swap-map td",
    ),
    "probe": ({"model": "rivers"}, "text=Choose a file"),
    "search": ({"query": "when is the library open"}, ".drop, details"),
    "label": ({"model": "spans", "text": "please river bank was wide"}, ".bracketed"),
    "learn": ({"model": "rivers"}, "text=Choose a file"),
    "runs": ({"runs": "first,second"}, ".js-plotly-plot .scatterlayer"),
    "card": ({"model": "answers"}, "article.prose"),
}


def show(studio: Guarded, name: str) -> None:
    params, drawn = STATES[name]
    studio.open(name, **params)
    studio.page.locator(drawn).first.wait_for()
    if name == "learn":
        studio.page.get_by_role("button", name="Take an example").click()
        studio.page.get_by_role("heading", name="What was recognised").wait_for()
    if name == "probe":
        probe_example(studio)
    if name == "card":
        for fold in studio.page.locator("main summary").all():
            fold.click()
    if name == "search":
        index_example(studio)
        studio.page.locator(".hit-map [data-index]").first.wait_for()


def probe_example(studio: Guarded) -> None:
    """Probe the page's own example, unless a test has."""
    page = studio.page
    if not page.get_by_label("Saved probes").count():
        page.get_by_role("button", name="Take an example").click()
        page.get_by_role("button", name="Probe", exact=True).click()
    else:
        page.get_by_label("Saved probes").select_option("words")
    page.locator(".probe-picture svg").wait_for()


def index_example(studio: Guarded) -> None:
    """Index the documents of the page's own example."""
    page = studio.page
    if page.get_by_text("Index other documents").count():
        page.get_by_text("Index other documents").click()
    page.get_by_role("button", name="Take an example").click()
    page.get_by_role("button", name="Build the index").click()
    page.get_by_text("can be searched now").wait_for()
