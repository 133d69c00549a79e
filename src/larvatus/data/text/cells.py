"""Cells of CSV as spreadsheets read them: what begins with = + - @, a tab or a line break may be a formula.

    as_cell("=HYPERLINK(…)")        "'=HYPERLINK(…)": text, whatever it holds
    as_cell("-0.5"), as_cell(-0.5)  as they are: a number is no formula

A text of a corpus can be anybody's, and a spreadsheet carries out formulas when a file is opened. An apostrophe before
the text is how spreadsheets themselves say "this is text" (OWASP, CSV injection).
"""

from __future__ import annotations

from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def as_cell(value: Any) -> Any:
    """A value to be written to a table for people; only text that would be a formula is changed."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) and not _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text == text.strip()
