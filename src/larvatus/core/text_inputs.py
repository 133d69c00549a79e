"""Texts as users give them to Python calls: strings of Python, NumPy, pandas and Arrow; anything else is refused.

    checked_text(value, "a")                      # one text
    texts, single = checked_texts(given)             # one text or several: a list of str, and whether it was one
    inputs, single = checked_inputs(given)           # the same where an input may also be a pair, or a list of words

A refusal names position and type: ``texts[3] is None, not text``. No library is imported for it: values are recognised
by what they can do (`as_py`, `to_pylist`, `tolist`).

Half a surrogate pair is no character and has no UTF-8: it is refused by name and place, never replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from larvatus.core.errors import DataError, UsageError

DEEPEST = 2
"""Levels of lists inside one input: a context with its endings."""
BYTES = (bytes, bytearray, memoryview)
NO_LISTS = (*BYTES, Mapping, set, frozenset)
"""What has members, but is no list of texts."""


class CheckedTexts(NamedTuple):
    texts: list[str]
    single: bool
    """Whether a single text was given, and a single result is expected."""


class CheckedInputs(NamedTuple):
    inputs: list[Any]
    single: bool


def as_string(value: Any) -> str | None:
    """A string of Python, NumPy or Arrow as a plain `str`; None where the value is no string."""
    if isinstance(value, str):
        return value if type(value) is str else str.__str__(value)  # a subclass such as numpy.str_
    scalar = _scalar(value)
    return None if scalar is value or not isinstance(scalar, str) else str.__str__(scalar)


def checked_text(value: Any, name: str = "text") -> str:
    """One text; anything else is a `UsageError` that names it.

    >>> checked_text(b"a river")
    Traceback (most recent call last):
    larvatus.core.errors.UsageError: text is bytes, not text; decode it first: .decode()
    """
    text = as_string(value)
    if text is None:
        raise UsageError(f"{name} is {described(value)}, not text{_way_out(value)}")
    return text


def checked_texts(given: Any, name: str = "texts") -> CheckedTexts:
    """One text or several, as strings.

    >>> checked_texts(text for text in ("a", "b"))
    CheckedTexts(texts=['a', 'b'], single=False)
    >>> checked_texts(["a", None])
    Traceback (most recent call last):
    larvatus.core.errors.UsageError: texts[1] is None, not text; leave it out
    """
    text = as_string(given)
    if text is not None:
        return CheckedTexts([text], True)
    listed = _listed(given, name, "text or a list of texts")
    return CheckedTexts([checked_text(value, f"{name}[{at}]") for at, value in enumerate(listed)], False)


def string_list(texts: Any) -> list[str]:
    """Several texts as a list of `str`; a list that is one already costs next to nothing."""
    return texts if _is_string_list(texts) else checked_texts(texts).texts


def _is_string_list(given: Any) -> bool:
    return type(given) is list and set(map(type, given)) <= {str}


def checked_inputs(given: Any, name: str = "texts") -> CheckedInputs:
    """What `predict` takes: a text, a tuple (a pair, the words of a text) or a row is one input; else several.

    >>> checked_inputs([("premise", "hypothesis"), ["two", "words"]]).inputs
    [('premise', 'hypothesis'), ['two', 'words']]
    """
    text = as_string(given)
    if text is not None:
        return CheckedInputs([text], True)
    if isinstance(given, tuple | Mapping):
        return CheckedInputs([_row_or_input(given, name)], True)
    listed = _listed(given, name, "text or a list of texts")
    return CheckedInputs([_row_or_input(value, f"{name}[{at}]") for at, value in enumerate(listed)], False)


def checked_texts_or_words(given: Any, name: str = "texts") -> CheckedInputs:
    """One text or several, where one of several may be a list of words.

    >>> checked_texts_or_words(["a text", ("two", "words")])
    CheckedInputs(inputs=['a text', ('two', 'words')], single=False)
    """
    if _is_string_list(given):
        return CheckedInputs(given, False)
    text = as_string(given)
    if text is not None:
        return CheckedInputs([text], True)
    listed = _listed(given, name, "text or a list of texts")
    return CheckedInputs([_checked_input(value, f"{name}[{at}]", 1) for at, value in enumerate(listed)], False)


def described(value: Any) -> str:
    """What a value is, for a message: ``None``, ``NaN``, ``bytes``, ``list``."""
    kind = type(value).__name__
    if kind == "NAType":
        return "<NA>"
    if kind == "NaTType":
        return "NaT"
    scalar = _scalar(value)
    if scalar is None:
        return "None"
    if isinstance(scalar, float) and scalar != scalar:
        return "NaN"
    return kind


def is_table(value: Any) -> bool:
    """Whether a value has several columns: a DataFrame, an Arrow table, a `datasets` table."""
    return hasattr(value, "columns") or hasattr(value, "column_names")


def _row_or_input(value: Any, name: str) -> Any:
    """A row of a table, whose columns the task knows; or an input."""
    if isinstance(value, Mapping):
        return {key: _checked_cell(each) for key, each in value.items()}
    return _checked_input(value, name, DEEPEST)


def _checked_input(value: Any, name: str, depth: int) -> Any:
    """A text, or a list of texts of at most that depth."""
    text = as_string(value)
    if text is not None:
        return text
    if hasattr(value, "as_py"):  # a list of Arrow
        value = value.as_py()
    if not depth or isinstance(value, NO_LISTS) or not _is_listing(value):
        raise UsageError(f"{name} is {described(value)}, not text{_way_out(value)}")
    parts = [_checked_input(each, f"{name}[{at}]", depth - 1) for at, each in enumerate(_listed(value, name, "text"))]
    return tuple(parts) if isinstance(value, tuple) else parts


def _checked_cell(value: Any) -> Any:
    """A cell of a row, which may be a number or empty: the reader of the row refuses what it cannot use."""
    text = as_string(value)
    if text is not None:
        return text
    return [_checked_cell(each) for each in value] if _is_listing(value) else value


def _is_listing(value: Any) -> bool:
    return isinstance(value, list | tuple) or any(hasattr(value, name) for name in ("to_pylist", "tolist", "to_list"))


def _listed(given: Any, name: str, wanted: str) -> Sequence[Any]:
    """The members of a list, an array, a column, a generator."""
    if isinstance(given, list | tuple):
        return given
    if is_table(given):
        raise UsageError(f"{name} is a whole {type(given).__name__}, not {wanted}; give one of its columns")
    if isinstance(given, NO_LISTS) or getattr(given, "ndim", 1) == 0:
        raise UsageError(f"{name} is {described(given)}, not {wanted}{_way_out(given, missing='')}")
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(given, method):
            members: Sequence[Any] = getattr(given, method)()
            return members
    if isinstance(given, Iterable):
        return list(given)
    raise UsageError(f"{name} is {described(given)}, not {wanted}{_way_out(given, missing='')}")


def _scalar(value: Any) -> Any:
    """A scalar of Arrow or NumPy, or an array of no dimensions, as the value of Python that it holds."""
    if hasattr(value, "as_py") and not hasattr(value, "__iter__"):
        return value.as_py()
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    return value


def _way_out(value: Any, *, missing: str = "; leave it out") -> str:
    if isinstance(value, BYTES) or isinstance(_scalar(value), BYTES):
        return "; decode it first: .decode()"
    if described(value) in ("None", "NaN", "<NA>", "NaT"):
        return missing
    if isinstance(value, set | frozenset):
        return "; a set has no order: give a list"
    return ""


def refuse_surrogates(text: str, name: str) -> None:
    """Raise a `DataError` if a Python string holds what no encoding can write."""
    if not isinstance(text, str):
        raise DataError(f"{name} is {type(text).__name__}, not a string")
    try:
        text.encode()
    except UnicodeEncodeError as fault:
        code = ord(text[fault.start])
        raise DataError(
            f"{name} holds a lone surrogate U+{code:04X} at character {fault.start}; it is no text: repair its decoding"
        ) from fault
