"""A page of predictions as notebooks show them: trees as arcs, clusters as marks, roles as layers, classes as bars.

with write_page(Path("trees.html"), "runs/parser") as (write, bar):
    write(answer)

The page has no script, and its policy allows none. It is written one prediction at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from itertools import count
from pathlib import Path

from larvatus.core.drawing.elements import STYLE, STYLE_BLOCK, Element, as_html, legible
from larvatus.core.errors import UsageError
from larvatus.core.outputs import new_output, write_output
from larvatus.inference.web_page import PAGE_END, asset, page_start
from larvatus.interfaces.cli.progress import ProgressReporter
from larvatus.tasks.predict import ExamplePrediction

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def write_pictures(out: Path, title: str, pictures: Sequence[Element]) -> None:
    """A page of a few pictures."""
    sections = "".join(f"<section>{as_html(picture)}</section>" for picture in pictures)
    write_output(out, f"{_opening(legible(title))}\n{sections}\n</main>\n{PAGE_END}")


def _opening(title: str) -> str:
    style = asset("larvatus.inference", "page.css") + STYLE
    head = f'<header><h1>{escape(title)}</h1></header>\n<main class="pictures">'
    return f"{page_start(title, policy=POLICY, style=style)}\n{head}"


@contextmanager
def write_page(out: Path, model: str) -> Iterator[tuple[Callable[[ExamplePrediction], None], ProgressReporter]]:
    """A function that adds a prediction to the page, and the bar that counts them."""
    title = f"predictions of {Path(model).name or model}"
    numbers = count(1)
    with new_output(out) as aside, aside.open("w", encoding="utf-8") as file, ProgressReporter("texts") as bar:

        def write(answer: ExamplePrediction) -> None:
            draw = getattr(answer.found, "_repr_html_", None)
            if draw is None:
                raise UsageError(
                    f"{out}: no picture shows what {model} gives; end it in .jsonl, .csv, .tsv or .parquet"
                )
            name = legible(answer.example.id or f"text {next(numbers)}")
            html = draw().replace(STYLE_BLOCK, "")  # the page has it once
            print(f'<section aria-label="{escape(name)}"><h2>{escape(name)}</h2>{html}</section>', file=file)

        print(_opening(title), file=file)
        yield write, bar
        print(f"</main>\n{PAGE_END}", end="", file=file)
