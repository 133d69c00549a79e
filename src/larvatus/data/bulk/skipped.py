"""Bad rows of a long job: skipped and listed in a file of errors, one line each, while the job continues.

    with write_errors_to(Path("errors.jsonl")):
        …                                     # readers call `skip_row` before they raise

{"error": "reviews.jsonl:1042: broken JSON: …"}

Without a file nothing is skipped: the first bad row is an error that names its place. Rows that fail in a worker come
back with its results (`compute_good_rows`), and are noted in their order, so the file does not depend on who worked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from larvatus.core.errors import DataError, UsageError
from larvatus.core.outputs import new_output

Row = TypeVar("Row")
Result = TypeVar("Result")

_noted: ContextVar[Callable[[str], None] | None] = ContextVar("noted", default=None)


@contextmanager
def write_errors_to(path: Path | None) -> Iterator[None]:
    """Bad rows that are met meanwhile go into this file; without one they are raised."""
    if path is None:
        yield
        return
    with new_output(path) as aside, aside.open("w", encoding="utf-8") as stream:
        token = _noted.set(lambda message: print(json.dumps({"error": message}, ensure_ascii=False), file=stream))
        try:
            yield
        finally:
            _noted.reset(token)


@contextmanager
def ignoring_bad_rows() -> Iterator[None]:
    """While text is read that will be read again: its bad rows are noted then."""
    token = _noted.set(lambda message: None) if skips_bad_rows() else None
    try:
        yield
    finally:
        if token is not None:
            _noted.reset(token)


def skips_bad_rows() -> bool:
    """Whether bad rows are skipped."""
    return _noted.get() is not None


def skip_row(message: str) -> bool:
    """Note a bad row; False where nobody collects them."""
    note = _noted.get()
    if note is None:
        return False
    note(message)
    return True


def compute_good_rows(
    compute: Callable[[list[Row]], Sequence[Result]], rows: Sequence[Row], place: Callable[[Row], str]
) -> tuple[list[Row], Sequence[Result], list[str]]:
    """The rows that can be computed with their results, and what is wrong with each of the others.

    `place` names the place of a row; empty where messages name it.

    >>> def roots(rows):
    ...     if min(rows) < 0:
    ...         raise DataError("no root")
    ...     return [row**0.5 for row in rows]
    >>> compute_good_rows(roots, [4.0, -1.0, 9.0], str)
    ([4.0, 9.0], [2.0, 3.0], ['-1.0: no root'])
    """
    try:
        return list(rows), compute(list(rows)), []
    except (DataError, UsageError):  # some row is bad; one by one shows which
        faults: dict[int, str] = {}
        for number, row in enumerate(rows):
            try:
                compute([row])
            except (DataError, UsageError) as fault:
                named = place(row)
                faults[number] = f"{named}: {fault}" if named else str(fault)
        good = [row for number, row in enumerate(rows) if number not in faults]
        if not faults:
            raise
        return good, compute(good) if good else [], list(faults.values())
