"""Pictures of structures: elements, shown as HTML or JSON, and rows of words with arcs above them.

    picture = element("div", {"class": "lv"}, "a < b")
    as_html(picture)            # '<div class="lv">a &lt; b</div>': notebooks and pages
    as_json(picture)            # ["div", {"class": "lv"}, ["a < b"]]: the studio

    strip = Strip(["She", "reads"], needs=[(1, 2, 60.0)])       # halves 1 to 2 (between the centres) are 60 wide
    strip.centre(0), strip.width, strip.right_to_left
    arc_levels([(0, 1), (0, 3), (1, 3)])                         # [1, 2, 1]: how high each arc is

Pictures hold no script: notebooks, pages without scripts and the studio show the same elements. The studio builds nodes
from the JSON, because it never reads text as markup. Colours are translucent and text has the colour of its
surroundings, since a picture does not know whether the page around it is light or dark. Nothing measures fonts here, so
widths of words are estimates on the generous side.
"""

from __future__ import annotations

import re
import unicodedata
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


STYLE = (resources.files("larvatus.core") / "assets" / "picture.css").read_text(encoding="utf-8")
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


# Words in a row.

WORD_SIZE = 16.0
LABEL_SIZE = 11.0
"""Pixels of the fonts of words and labels; picture.css has the same."""
GAP = 12.0
"""Pixels between words."""
_NARROW = frozenset("fijlrtI.,;:!|'’`()[]{} -")
_WIDE = frozenset("mwMW@%—…")


def text_width(text: str, size: float = WORD_SIZE) -> float:
    """Estimated width in pixels."""
    return size * sum(map(_character_width, legible(text)))


def _character_width(char: str) -> float:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0.0
    if unicodedata.east_asian_width(char) in "WF":
        return 1.1
    if char in _NARROW:
        return 0.38
    return 0.95 if char in _WIDE else 0.74 if char.isupper() else 0.6


def is_right_to_left(text: str) -> bool:
    """Whether the first letter that has a direction is of a right-to-left script."""
    directions = (unicodedata.bidirectional(char) for char in text)
    return next((each for each in directions if each in ("L", "R", "AL")), "L") != "L"


class Strip:
    """Columns of words from left to right, or from right to left for scripts that are read so."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        labels: Sequence[str] = (),
        needs: Iterable[tuple[int, int, float]] = (),
        joined: Iterable[int] = (),
    ) -> None:
        """
        Args:
            words: Texts of the columns.
            labels: A smaller text below each word.
            needs: Half columns from the first to the last, and the pixels that they must have together: word 2 is of
                the halves 4 and 5.
            joined: Words without a gap before them.
        """
        close = set(joined)
        self.words = words
        self.right_to_left = is_right_to_left(" ".join(words))
        halves = []
        for number, word in enumerate(words):
            label = text_width(labels[number], LABEL_SIZE) if labels else 0.0
            before, after = (0.0 if place in close else GAP / 2 for place in (number, number + 1))
            half = max(text_width(word), label) / 2
            halves += [half + before, half + after]
        for first, last, need in sorted(needs, key=lambda each: each[1] - each[0]):
            missing = (need - sum(halves[first : last + 1])) / (last + 1 - first)
            if missing > 0:
                halves[first : last + 1] = [half + missing for half in halves[first : last + 1]]
        edges = [0.0]
        for half in halves:
            edges.append(edges[-1] + half)
        self.width = edges[-1]
        self._edges = edges

    def x(self, half: int) -> float:
        """Where a half column begins."""
        edge = self._edges[half]
        return self.width - edge if self.right_to_left else edge

    def centre(self, word: int) -> float:
        return self.x(2 * word + 1)

    def interval(self, first: int, last: int) -> tuple[float, float]:
        """Left and right side of the words from first to last."""
        low, high = sorted((self.x(2 * first), self.x(2 * last + 2)))
        return low, high

    def texts(self, y: float) -> list[Element]:
        """The words."""
        return [label(word, self.centre(number), y, "lv-word") for number, word in enumerate(self.words)]

    def svg(self, height: float, *parts: Element) -> Element:
        shape = {"width": self.width, "height": height, "viewBox": f"0 0 {self.width:.1f} {height:.1f}"}
        direction = {"direction": "rtl"} if self.right_to_left else {}
        return element("svg", {**shape, **direction, "aria-hidden": "true"}, *parts)


def label(text: str, x: float, y: float, kind: str = "lv-label") -> Element:
    """A text whose middle is at x."""
    return element("text", {"class": kind, "x": x, "y": y, "text-anchor": "middle"}, text)


def arc_levels(arcs: Sequence[tuple[int, int]]) -> list[int]:
    """The height of each arc from one word to a later one: above all shorter arcs that it covers or crosses."""
    highest = [0] * max((last for _, last in arcs), default=0)
    levels = [0] * len(arcs)
    for number in sorted(range(len(arcs)), key=lambda each: (arcs[each][1] - arcs[each][0], arcs[each][0])):
        first, last = arcs[number]
        levels[number] = 1 + max(highest[first:last], default=0)
        highest[first:last] = [levels[number]] * (last - first)
    return levels
