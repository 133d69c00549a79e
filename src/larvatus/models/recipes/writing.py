"""A whole recipe as a TOML file that `read_recipe` reads back: what `larvatus recipes show` prints.

print(recipe_toml(read_recipe("bert", size="tiny")))     # > mine.toml; larvatus pretrain mine.toml …

Recipes hold tables, lists of tables or of plain values, strings, numbers and truth values: no more is written here.
A field without a value (None) is left out, which means the same.
"""

from __future__ import annotations

import json
from typing import Any

from larvatus.models.recipes.reading import recipe_table
from larvatus.models.recipes.recipe import Recipe


def recipe_toml(recipe: Recipe) -> str:
    return "\n\n".join(_sections(recipe_table(recipe))) + "\n"


def _sections(table: dict[str, Any], path: str = "", head: str = "") -> list[str]:
    """The plain fields of a table under its header, then its tables: TOML wants them in that order."""
    plain = {key: value for key, value in table.items() if value is not None and not _is_tables(value)}
    lines = [*([head] if head else []), *(f"{key} = {_value(value)}" for key, value in plain.items())]
    sections = ["\n".join(lines)] if lines else []
    for key, value in table.items():
        inner = f"{path}{key}"
        if isinstance(value, dict):
            sections += _sections(value, f"{inner}.", f"[{inner}]")
        elif _is_tables(value):
            for element in value:
                sections += _sections(element, f"{inner}.", f"[[{inner}]]")
    return sections


def _is_tables(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's escapes are TOML's, but one
    return str(value).lower() if isinstance(value, bool) else repr(value)
