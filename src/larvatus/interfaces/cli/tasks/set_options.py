"""`--set NAME=VALUE`: options of a task by name, besides its flags; a dot leads into a group: decoding.merge=window.

with_settings("spans", SpanOptions(), ["longest=8", "decoding=free"])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from larvatus.core.errors import UsageError
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.tasks.registry import parse_options


def with_settings(task: str, options: Struct, words: Sequence[str]) -> Struct:
    """Options as flags gave them, with those that are set by name."""
    return parse_options(task, _merged(_changed(options), by_name(words))) if words else options


def by_name(words: Sequence[str]) -> dict[str, Any]:
    """What is set, as a tree of names."""
    tree: dict[str, Any] = {}
    for word in words:
        path, equals, value = word.partition("=")
        refuse_surrogates(word, "--set")
        if not equals:
            raise UsageError(f"--set {word} is not name=value, such as longest=8")
        *groups, name = path.split(".")
        place = tree
        for group in groups:
            place = place.setdefault(group, {})
            if not isinstance(place, dict):
                raise UsageError(f"--set {word}: {group} is set already, as a whole")
        place[name] = value
    return tree


def _changed(options: Struct) -> dict[str, Any]:
    """What is not as by default, by name."""
    usual, given = (msgspec.to_builtins(struct) for struct in (type(options)(), options))
    return {name: value for name, value in given.items() if value != usual[name]}


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The second over the first, group by group."""
    both = dict(first)
    for name, value in second.items():
        inner = both.get(name)
        both[name] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return both
