"""Half a surrogate pair is no character and has no UTF-8: it is refused by name and place, never replaced."""

from __future__ import annotations

from larvatus.core.errors import DataError


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
