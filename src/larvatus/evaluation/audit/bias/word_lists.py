"""Reading TOML files of templates and of association tests, with one-line errors.

record = read_toml("templates.toml", ("sentences", "groups", "attributes"))
read_word_lists(record["groups"], "groups", where)           # {"men": ("he", "the man"), "women": …}
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from larvatus.core.errors import DataError
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.text.streams import numbered_lines


def read_toml(given: str | Path | Mapping[str, Any], known: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The contents of a file or mapping and its name in messages; unknown fields are refused."""
    if isinstance(given, Mapping):
        record, where = dict(given), "the mapping"
    else:
        where = str(given)
        text = "\n".join(line for _, line in numbered_lines(where))
        try:
            record = tomllib.loads(text)
        except (ValueError, RecursionError) as fault:  # ValueError: also a number of thousands of digits
            raise DataError(f"{where}: broken TOML, or nested too deep: {fault}") from fault
    for name in record:
        if name not in known:
            raise DataError(f"{where}: {name!r} is no field; a file has {', '.join(known)}")
    return record, where


def read_texts(value: Any, where: str, *, what: str) -> tuple[str, ...]:
    """A list of distinct texts."""
    if not isinstance(value, list | tuple) or not value or not all(isinstance(text, str) for text in value):
        raise DataError(f"{where}: {what} must be a list of texts")
    if not all(text.strip() for text in value):
        raise DataError(f"{where}: {what} holds an empty text; drop it")
    for text in value:
        refuse_surrogates(text, where)
    if len(set(value)) < len(value):
        twice, _ = Counter(value).most_common(1)[0]
        raise DataError(f"{where}: {what} names {twice!r} twice")
    return tuple(value)


def read_word_lists(value: Any, where: str, *, what: str, least: int) -> dict[str, tuple[str, ...]]:
    """Lists of words by name, at least `least` of them."""
    if not isinstance(value, Mapping) or not value:
        raise DataError(f"{where}: no [{what}], which are lists of words by name")
    lists = {str(name): read_texts(words, where, what=f"{what}.{name}") for name, words in value.items()}
    if len(lists) < least:
        raise DataError(f"{where}: {len(lists)} of {what}; {least} are needed to compare them")
    return lists
