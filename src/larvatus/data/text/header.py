"""Whether the first row of a table names its columns.

It does where a cell of it is a name that people give columns (`column_names`) and no cell reads like a sentence; or
where a column is numbers but for its first cell; or where its first cell is the only one of its kind in a column of
few values. CoLA's ``gj04 1 "" The sailors rode …`` is none of these.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from larvatus.data.text.column_names import KNOWN, plain

LONGEST_NAME = 40


def has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether rows[0] is a header, from the first rows of a table."""
    first, rest = rows[0], rows[1:]
    cells = [cell.strip() for cell in first]
    if any(len(cell) > LONGEST_NAME or len(cell.split()) > 4 or is_number(cell) for cell in cells):
        return False
    if any(plain(cell) in KNOWN for cell in cells):
        return True
    if len(set(cells)) < len(cells):
        return False
    columns = [[row[place].strip() for row in rest if len(row) == len(first)] for place in range(len(first))]
    if any(column and all(is_number(cell) for cell in column) for column in columns):
        return True
    return any(_few(column) and cell not in column for cell, column in zip(cells, columns, strict=True))


def _few(column: Sequence[str]) -> bool:
    """Whether a column has few values, each seen several times."""
    return len(column) >= 4 and min(Counter(column).values()) >= 2


def is_number(cell: str) -> bool:
    """Whether a cell is a number.

    >>> [is_number(cell) for cell in ("5.000", "-1", "1e3", "nan", "", "gj04")]
    [True, True, True, False, False, False]
    """
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False
