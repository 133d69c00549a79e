"""The pictures of docs/studio.md, taken of a studio that runs: each view in a state that shows what it is for.

    larvatus studio src/larvatus_english/model spans --no-browser          # prints the address
    python -m tests.interfaces.studio.browser.pictures ADDRESS docs/pictures english spans studio/weather [fill …]

The models are one that fills blanks, and one that finds spans; then a training run; without names of views, all views.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image

from tests.interfaces.browser.needs import started_chromium

WINDOW = {"width": 1200, "height": 860}
COLOURS = 160
LARGEST = 150_000
PATIENCE_MS = 120_000
View = tuple[str, dict[str, Any], str]


def views(words: str, spans: str, run: str) -> list[View]:
    """Name, parameters, and what is there when it is drawn."""
    return [
        ("fill", {"model": words, "text": "The keys to the cabinet are on the table.", "blanks": "5"}, ".bar-row"),
        ("inside", {"model": words}, ".lines-to"),
        ("senses", {"model": words, "clusters": 2, "at": 1}, ".near-row"),
        ("compare", {"model": words}, ".cosines"),
        ("why", {"model": words}, ".why"),
        ("swap", {"model": words}, ".swap-map"),
        (
            "label",
            {"model": spans, "text": "The mayor of Paris met the owners of the old bank near the river on Monday."},
            ".bracketed",
        ),
        ("learn", {"model": words}, "text=Choose a file"),
        ("runs", {"runs": run, "score": "accuracy"}, ".js-plotly-plot .scatterlayer"),
        ("card", {"model": words}, "article.prose"),
    ]


def learn(page: Any) -> None:
    page.get_by_role("button", name="Take an example").click()
    page.get_by_role("button", name="Learn", exact=True).click()
    page.get_by_role("link", name="Try it in Label").wait_for(timeout=PATIENCE_MS)
    page.get_by_role("region", name="Training").scroll_into_view_if_needed()


def small(png: bytes) -> bytes:
    """The same picture with few colours."""
    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
        out, "PNG", optimize=True
    )
    assert len(out.getvalue()) < LARGEST
    return out.getvalue()


def take(address: str, out: Path, names: tuple[str, str, str], only: Collection[str]) -> None:
    with started_chromium() as browser:
        page = browser.new_page(viewport=WINDOW, reduced_motion="reduce", color_scheme="light")
        for name, params, drawn in views(*names):
            if only and name not in only:
                continue
            page.emulate_media(color_scheme="dark" if name in ("inside", "swap") else "light")
            page.goto("about:blank")
            page.goto(f"{address}#/{name}?{urlencode(params)}")
            page.locator(drawn).first.wait_for(timeout=PATIENCE_MS)
            if name == "learn":
                learn(page)
            if name in ("why", "swap"):
                page.locator(drawn).first.evaluate("(table) => table.closest('.card').scrollIntoView()")
            if name == "senses":
                page.locator(".plane").scroll_into_view_if_needed()
            page.wait_for_timeout(1_500)  # fonts, plots
            (out / f"studio_{name}.png").write_bytes(small(page.screenshot()))


if __name__ == "__main__":
    take(sys.argv[1], Path(sys.argv[2]), (sys.argv[3], sys.argv[4], sys.argv[5]), sys.argv[6:])
