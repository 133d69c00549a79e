"""Labels of texts: a class, a set of names, or a number; which of them a file holds is asked for, or seen.

A list is a set of names, and so is a cell with a separator that the caller gives. Where all
are numbers and some are not whole (STS-B's ``3.800``), it is regression; whole numbers are classes, unless regression
is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from larvatus.data.labelled.records import Kind, Label
from larvatus.data.text.columns import is_number


class BadLabel(Exception):
    """A cell that is no label of its kind; the message says why."""


def seen_kind(values: Sequence[Any], separator: str | None = None) -> Kind:
    """What labels are, from all of them."""
    if separator is not None or any(isinstance(value, list) for value in values):
        return "multi-label"
    there = [value for value in values if not is_missing(value)]
    if not all(is_number(str(value)) and not isinstance(value, bool) for value in there):
        return "multi-class"
    return "multi-class" if all(float(value).is_integer() for value in there) else "regression"


def is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip()) or value != value


def as_label(value: Any, kind: Kind, separator: str | None = None) -> Label:
    """One cell as a label; `BadLabel` where it is none."""
    if kind == "multi-label":
        return tuple(sorted({name for name in _names(value, separator) if name}))
    if is_missing(value):
        raise BadLabel("the label is empty")
    if isinstance(value, list | dict):
        raise BadLabel(f"the label is a {'list' if isinstance(value, list) else 'record'}; name another column")
    if kind == "multi-class":
        return _name(value)
    if isinstance(value, bool) or not is_number(str(value)):
        raise BadLabel(f"label {str(value)!r} is no finite number, which regression needs")
    return float(value)


def _names(value: Any, separator: str | None) -> list[str]:
    if value is None:
        return []
    if isinstance(value, list):
        return [_name(item) for item in value]
    return [part.strip() for part in (_name(value).split(separator) if separator else [_name(value)])]


def _name(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, list | dict):
        raise BadLabel("a label inside the list is no name")
    return str(value).strip()
