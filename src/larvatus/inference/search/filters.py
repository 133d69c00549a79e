"""Restrict a search: to values of metadata columns, and to files by the pattern of their path.

    allowed = allowed_rows(generation, where={"year": ["1999", "2000"]}, paths=["*.md"])

Values of one column are alternatives; columns, and the pattern, must all hold. `None` selects passages without a value.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larvatus.core.arrays import Bools
from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.files import as_text
from larvatus.inference.search.generation import METADATA, Generation

Where = Mapping[str, object]
"""Column to value, or to a list of values."""


def read_conditions(words: Sequence[str]) -> dict[str, list[str]]:
    """Conditions of the command line.

    >>> read_conditions(["year=1999", "year=2000", "court=Leeds"])
    {'year': ['1999', '2000'], 'court': ['Leeds']}
    """
    conditions: dict[str, list[str]] = {}
    for word in words:
        column, equals, value = word.partition("=")
        if not equals or not column:
            raise UsageError(f"--where {word!r:.60} is no condition; write COLUMN=VALUE, such as year=1999")
        conditions.setdefault(column, []).append(value)
    return conditions


def allowed_rows(generation: Generation, *, where: Where, paths: Sequence[str]) -> Bools | None:
    """[N] passages that a search may return; None for all."""
    if not where and not paths:
        return None
    allowed = np.ones(generation.manifest.passages, dtype=np.bool_)
    for column, values in where.items():
        known = generation.manifest.columns
        if column not in known:
            there = did_you_mean(column, known) if known else "; it has none: build it with --metadata COLUMN"
            raise UsageError(f"{generation.path} has no metadata column {column!r:.60}{there}")
        wanted = [None if value is None else _written(value) for value in _listed(values)]
        held = pc.is_in(generation.passages[METADATA + column], value_set=pa.array(wanted, pa.string()))
        allowed &= held.to_numpy(zero_copy_only=False).astype(np.bool_)
    if paths:
        inside = np.zeros_like(allowed)
        for source in generation.sources:
            name = as_text(source.path)
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in paths):
                inside[source.first : source.first + source.count] = True
        allowed &= inside
    return allowed


def _listed(values: object) -> Sequence[object]:
    return values if isinstance(values, list | tuple | set | frozenset) else [values]  # type: ignore[return-value]


def _written(value: object) -> str:
    """A value as the readers write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
