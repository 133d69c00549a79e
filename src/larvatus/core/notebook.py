"""How results show in a notebook: bars, marked text, tables. Everything that is text is escaped.

    class Fills:
        def _repr_html_(self) -> str:
            return notebook.bars([(fill.token, fill.probability) for fill in self], title=self.text)

Colours have a middle lightness and some transparency, so that they can be read on white and on black pages.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

Span = tuple[int, int, str]
"""Characters from start to end, and what they are."""
HUES = (205, 25, 120, 285, 50, 340, 170, 240)
LONGEST = 400
"""Characters of a title; a text that is marked is shown whole."""
MOST = 50
"""Rows of a table or bars; the rest are counted."""


def bars(rows: Iterable[tuple[str, float]], *, title: str = "", note: str = "") -> str:
    """Shares from 0 to 1 as bars, with their names."""
    shown = list(rows)
    lines = [
        f'<tr><td style="text-align:left">{escape(name)}</td>'
        f'<td style="text-align:left;min-width:12em"><div style="background:hsla(205,60%,50%,.55);'
        f'width:{100 * min(max(share, 0.0), 1.0):.1f}%;min-width:1px">&nbsp;</div></td>'
        f"<td>{_percent(share)}</td></tr>"
        for name, share in shown[:MOST]
    ]
    return _titled(title, f"<table>{''.join(lines)}</table>{_more(len(shown))}{_note(note)}")


def marked(text: str, spans: Iterable[Span], *, note: str = "") -> str:
    """A text with its spans underlined, one line below the other where they nest or cross; labels are at their ends.

    >>> marked("a <b> c", [(2, 5, "X")])[:60]
    '<div style="line-height:2.4;white-space:pre-wrap">a <span st'
    """
    order = sorted(spans, key=lambda span: (span[0], -span[1]))
    edges = sorted({0, len(text), *(edge for start, end, _ in order for edge in (start, end))})
    parts = []
    for start, end in itertools.pairwise(edges):
        words = escape(text[start:end])
        for number, span in reversed(list(enumerate(order))):  # inner ones first, so that outer ones lie around them
            if span[0] <= start and end <= span[1]:
                colour = colour_of(span[2])
                name = f'<sub style="color:{colour};font-weight:bold">{escape(span[2])}</sub>' if end == span[1] else ""
                style = f"border-bottom:2px solid {colour};padding-bottom:{2 + 3 * _depth(number, order)}px"
                words = f'<span style="{style}" title="{escape(span[2])}">{words}{name}</span>'
        parts.append(words)
    return f'<div style="line-height:2.4;white-space:pre-wrap">{"".join(parts)}</div>{_note(note)}'


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "", note: str = "") -> str:
    """Rows under names of columns; the first column is text, others are numbers."""
    shown = list(rows)
    head = "".join(f'<th style="text-align:{_side(number)}">{escape(name)}</th>' for number, name in enumerate(columns))
    lines = [
        "<tr>"
        + "".join(f'<td style="text-align:{_side(number)}">{escape(str(cell))}</td>' for number, cell in enumerate(row))
        + "</tr>"
        for row in shown[:MOST]
    ]
    return _titled(title, f"<table><tr>{head}</tr>{''.join(lines)}</table>{_more(len(shown))}{_note(note)}")


def heat(names: Sequence[str], rows: Iterable[Sequence[float]], *, title: str = "", note: str = "") -> str:
    """A square of numbers, darker from 0 to 1; rows are named, columns have the numbers of the rows."""
    head = "".join(f"<th>{number}</th>" for number in range(1, len(names) + 1))
    lines = [
        f'<tr><td style="text-align:left">{number} {escape(name)}</td>'
        + "".join(
            f'<td style="background:hsla(205,60%,50%,{0.8 * min(max(value, 0.0), 1.0) ** 3:.2f})">{value:.2f}</td>'
            for value in row
        )
        + "</tr>"
        for number, (name, row) in enumerate(zip(names, rows, strict=True), start=1)
    ]
    return _titled(title, f"<table><tr><th></th>{head}</tr>{''.join(lines)}</table>{_note(note)}")


def intervals(metrics: Mapping[str, Any], *, title: str = "", note: str = "") -> str:
    """Metrics with their 95% intervals (`value`, `low`, `high`)."""
    rows = [(name, f"{each.value:.4f}", f"{each.low:.4f} – {each.high:.4f}") for name, each in metrics.items()]
    return table(("metric", "value", "95%"), rows, title=title, note=note)


def colour_of(label: str) -> str:
    """The same colour for the same label, wherever it is shown."""
    return f"hsl({HUES[sum(label.encode()) % len(HUES)]},60%,45%)"


def _depth(number: int, order: Sequence[Span]) -> int:
    """How many later spans begin within this one: the line of an outer span is below those of inner ones."""
    start, end, _ = order[number]
    return min(6, sum(1 for other in order[number + 1 :] if start <= other[0] < end))


def _titled(title: str, html: str) -> str:
    short = title if len(title) <= LONGEST else f"{title[:LONGEST]}…"
    return f"<div><strong>{escape(short)}</strong>{html}</div>" if title else f"<div>{html}</div>"


def _note(note: str) -> str:
    return f"<div><small>{escape(note)}</small></div>" if note else ""


def _more(count: int) -> str:
    return _note(f"… and {count - MOST:,} more") if count > MOST else ""


def _side(number: int) -> str:
    return "right" if number else "left"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 or share == 0 else f"{share:.1e}"
