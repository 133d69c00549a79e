"""Pictures as trees of elements: HTML for notebooks and pages, JSON for the studio. One drawing serves all three.

    picture = element("div", {"class": "lv"}, "a < b")
    as_html(picture)            # '<div class="lv">a &lt; b</div>'
    as_json(picture)            # ["div", {"class": "lv"}, ["a < b"]]

Pictures hold no script: notebooks, pages without scripts and the studio show the same elements. The studio builds nodes
from the JSON, because it never reads text as markup. Colours are translucent and text has the colour of its
surroundings, since a picture does not know whether the page around it is light or dark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import Any, TypeVar

COLOURS = 8
MOST_WORDS = 2_000
"""Words of a text that are drawn; what is beyond is counted."""
Unit = TypeVar("Unit")
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Characters that reorder the text after them."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Element:
    """An element of HTML or SVG."""

    tag: str
    attributes: Mapping[str, str]
    children: tuple[Element | str, ...]


def element(tag: str, attributes: Mapping[str, object] | None = None, *children: Element | str) -> Element:
    """An element; texts are escaped when it is written, numbers are rounded to a tenth."""
    given = (attributes or {}).items()
    written = {name: f"{value:.1f}" if isinstance(value, float) else str(value) for name, value in given}
    return Element(tag, written, children)


def as_html(node: Element | str) -> str:
    """The picture as markup."""
    if isinstance(node, str):
        return escape(legible(node), quote=False)
    attributes = "".join(f' {name}="{escape(legible(value))}"' for name, value in node.attributes.items())
    return f"<{node.tag}{attributes}>{''.join(map(as_html, node.children))}</{node.tag}>"


def as_json(node: Element | str) -> Any:
    """The picture as ``[tag, attributes, children]``; texts are strings."""
    if isinstance(node, str):
        return legible(node)
    attributes = {name: legible(value) for name, value in node.attributes.items()}
    return [node.tag, attributes, [as_json(child) for child in node.children]]


def legible(text: str) -> str:
    """A text without characters that would reorder what follows it; control characters are �.

    >>> legible("safe\\u202egpj.exe\\x1b")
    'safegpj.exe�'
    """
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _BIDI.sub("", text))


STYLE = (resources.files("larvatus.core.drawing") / "assets" / "picture.css").read_text(encoding="utf-8")
STYLE_BLOCK = f"<style>{STYLE}</style>"


def in_notebook(picture: Element) -> str:
    """The picture with its style, as `_repr_html_` returns it."""
    return STYLE_BLOCK + as_html(picture)


def colour_class(label: str) -> str:
    """The class of a label's colour."""
    return f"lv-k{sum(label.encode(errors='replace')) % COLOURS}"


def scroll_box(name: str, svg: Element) -> Element:
    """A box in which a wide picture scrolls, also by keys."""
    return element("div", {"class": "lv-scroll", "tabindex": 0, "role": "region", "aria-label": name}, svg)


def folded_table(summary: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Element:
    """The content of a picture as a table, which opens on request."""
    head = element("tr", {}, *(element("th", {"scope": "col"}, name) for name in columns))
    body = (element("tr", {}, *(element("td", {"dir": "auto"}, cell) for cell in row)) for row in rows)
    table = element("table", {}, element("thead", {}, head), element("tbody", {}, *body))
    return element("details", {}, element("summary", {}, summary), element("div", {"class": "lv-wide"}, table))


def first_units(units: Sequence[Unit], sizes: Iterable[int], what: str) -> tuple[Sequence[Unit], list[Element]]:
    """Units of up to `MOST_WORDS` words together, at least one, and a note that counts the others."""
    total = count = 0
    for size in sizes:
        total += size
        if count and total > MOST_WORDS:
            break
        count += 1
    note = f"The first {count:,} of {len(units):,} {what} are drawn."
    return units[:count], [element("p", {"class": "lv-note"}, note)] if count < len(units) else []
