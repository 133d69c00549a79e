"""Pages of pictures: results as notebooks show them, and tables or rows of the same results.

    with picture_page(Path("trees.html"), "predictions of runs/parser") as add:
        add("text 1", tree._repr_html_())

A page has no script, and its policy allows none. It is written one section at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from html import escape
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from larvatus.core.drawing import STYLE, STYLE_BLOCK
from larvatus.core.outputs import new_output
from larvatus.core.tables import HasRows, Table
from larvatus.data.bulk.row_files import row_file
from larvatus.inference.web_page import PAGE_END, asset, page_start
from larvatus.interfaces.cli.output import show_part, wide_console

PAGES = (".html", ".htm")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@contextmanager
def picture_page(out: Path, title: str) -> Iterator[Callable[[str, str], None]]:
    """A function that adds a section to a page: its name and its markup, as notebooks show it."""
    with new_output(out) as aside, aside.open("w", encoding="utf-8") as file:

        def write(name: str, html: str) -> None:
            body = html.replace(STYLE_BLOCK, "")  # the page has it once
            print(f'<section aria-label="{escape(name)}"><h2>{escape(name)}</h2>{body}</section>', file=file)

        style = asset("larvatus.inference", "page.css") + STYLE
        print(page_start(title, policy=POLICY, style=style), file=file)
        print(f'<header><h1>{escape(title)}</h1></header>\n<main class="pictures">', file=file)
        yield write
        print(f"</main>\n{PAGE_END}", end="", file=file)


class DrawnResult(HasRows, Protocol):
    """A result with a table for people, rows for programs and a picture."""

    def to_dict(self) -> dict[str, Any]: ...
    def tables(self) -> Iterable[Table]: ...
    def _repr_html_(self) -> str: ...


@contextmanager
def write_results(out: Path | None, title: str, *, as_json: bool = False) -> Iterator[Callable[[DrawnResult], None]]:
    """A function that writes a result: to a page or a file of rows by the ending of `out`, else to the terminal."""
    numbers, console = count(1), wide_console()

    def show(result: DrawnResult) -> None:
        if as_json:
            print(json.dumps(result.to_dict(), ensure_ascii=False))
            return
        for table in result.tables():
            show_part(console, table)

    if out is None:
        yield show
    elif out.suffix.lower() in PAGES:
        with picture_page(out, title) as add:
            yield lambda result: add(f"text {next(numbers)}", result._repr_html_())
    else:
        with row_file(out) as write:
            yield lambda result: write(result.to_dict(), result.to_dicts())
