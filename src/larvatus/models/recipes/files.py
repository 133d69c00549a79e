"""Recipe files: TOML in, `Recipe` out, with one clear line if something is misspelt or cannot work; and back to TOML.

read_recipe("bert")                                      a published system, packaged with the toolkit
read_recipe("mine.toml")                                 one of your own; `base = "bert"` states only the difference
read_recipe("bert", size="tiny", settings=["model.layers=6", "objectives.next-sentence.pooler=false"])

print(recipe_toml(read_recipe("bert", size="tiny")))     # > mine.toml; larvatus pretrain mine.toml …

Recipes hold tables, lists of tables or of plain values, strings, numbers and booleans; nothing else is written. A field
without a value (None) is omitted, which means the same.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import msgspec

from larvatus.core.errors import RecipeError, did_you_mean
from larvatus.core.ranges import short_repr
from larvatus.core.regular_files import follow_link, read_text
from larvatus.models.nn.encoder import DEFAULT_TYPE, ENCODERS, with_type, without_default_type
from larvatus.models.recipes.recipe import SIZES, Recipe

Table = dict[str, Any]
NOT_TEXT = re.compile("[\ud800-\udfff]")
"""Surrogates of bytes of a command line that are not UTF-8."""


def recipe_names() -> list[str]:
    """The packaged recipes."""
    return sorted(f.name[:-5] for f in resources.files(__package__).iterdir() if f.name.endswith(".toml"))


def recipe_text(name: str) -> str:
    """The packaged TOML file itself, including comments."""
    if name not in recipe_names():
        raise RecipeError(f"there is no recipe {name!r}{did_you_mean(name, recipe_names())}")
    return resources.files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8")


def recipe_source(name: str, *, named: bool = True) -> str:
    """The text of a packaged recipe, or of a TOML file; only one that the user named may be a link."""
    if not name.endswith(".toml"):
        return recipe_text(name)
    return read_text(follow_link(Path(name)) if named else Path(name), RecipeError)


def read_recipe(name: str, *, size: str | None = None, settings: Sequence[str] = ()) -> Recipe:
    """A recipe by name or file, at a size, with single fields set. Later words win: file, then size, then settings.

    Args:
        name: A recipe's name (`larvatus recipes` lists them), or a TOML file.
        size: `tiny`, `mini`, `small`, `medium`, `base`, `large`; else the size that the recipe has.
        settings: Single fields, such as `"model.layers=6"`.

    Returns:
        The recipe, checked: a wrong composition is refused.

    Example:
        >>> read_recipe("bert", size="tiny", settings=["model.layers=3"]).model.layers
        3
    """
    table = _table(name, seen=())
    table.setdefault("name", Path(name).stem)
    return edited_recipe(table, size=size, settings=settings, where=name)


def edited_recipe(table: Table, *, size: str | None = None, settings: Sequence[str] = (), where: str) -> Recipe:
    """A recipe from a table (which is changed), at a size, with single fields set."""
    table = _with_model_type(table)
    besides = _sizes(table, where=where)
    if size is not None:
        if size not in SIZES:
            raise RecipeError(f"there is no size {size!r}{did_you_mean(size, SIZES)}")
        layers, hidden, heads = SIZES[size]
        model = table.setdefault("model", {})
        if not isinstance(model, dict):
            raise RecipeError(f"{where}: model is a table, [model], not {type(model).__name__}")
        model.update(_sized(model, layers=layers, hidden=hidden, heads=heads))
        for setting in besides.get(size, []):
            _set(table, setting, word=f"{where}: sizes.{size}:")
    for setting in settings:
        _set(table, setting)
    return parse_recipe(table, where=where)


def _sized(model: Table, **size: int) -> Table:
    """The settings of a size that this type of model has: not all have heads."""
    config = ENCODERS.get(str(model.get("type", DEFAULT_TYPE)))
    return {name: value for name, value in size.items() if config is None or name in config.__struct_fields__}


def _sizes(table: Table, *, where: str) -> dict[str, list[str]]:
    """What the recipe's sizes set in addition to layers, hidden and heads; removed from the table."""
    by_size = _settings_by_size(table.pop("sizes", {}), where=where)
    for size in by_size:
        if size not in SIZES:
            raise RecipeError(f"{where}: sizes.{size} is not a size{did_you_mean(size, SIZES)}")
    return by_size


def _settings_by_size(given: Any, *, where: str) -> dict[str, list[str]]:
    try:
        return msgspec.convert(given, dict[str, list[str]])
    except (msgspec.ValidationError, RecursionError) as fault:
        raise RecipeError(f'{where}: sizes names settings, such as tiny = ["batch=64"]; {fault}') from None


def parse_recipe(table: Table, *, where: str) -> Recipe:
    """Check a table against the schema; errors name the field and the fix."""
    if table.get("corruption") == "none":  # TOML has no null to remove a base's corruption
        table = {**table, "corruption": None}
    table = _with_model_type(table)
    try:
        return msgspec.convert(table, Recipe)
    except msgspec.ValidationError as fault:
        raise RecipeError(f"{where}: {_explain(str(fault), table)}") from None
    except RecursionError as fault:
        raise RecipeError(f"{where}: tables nested thousands deep are not a recipe") from fault
    except RecipeError as fault:
        raise RecipeError(f"{where}: {fault}") from None


def _with_model_type(table: Table) -> Table:
    """The same with the type of its model filled in, which decides its fields."""
    return {**table, "model": with_type(table["model"])} if isinstance(table.get("model"), dict) else table


def recipe_table(recipe: Recipe) -> Table:
    """The whole recipe as plain data: for manifests, cards and comparison."""
    table: Table = msgspec.json.decode(msgspec.json.encode(recipe))  # lists, as in a JSON file
    return {**table, "model": without_default_type(table["model"])}


def _table(name: str, seen: tuple[str, ...]) -> Table:
    """The recipe's table merged with its bases."""
    if name in seen:
        raise RecipeError(f"recipes build on each other in a circle: {' → '.join([*seen, name])}")
    text = recipe_source(name, named=not seen)
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as fault:  # ValueError: also a number of thousands of digits
        raise RecipeError(f"{name}: not valid TOML: {fault}") from fault
    base = table.pop("base", None)
    if base is None:
        return _with_model_type(table)
    if not isinstance(base, str):
        raise RecipeError(f'{name}: base is the name of a recipe, such as base = "bert"')
    if base.endswith(".toml"):
        base = str(Path(name).parent / base)
    return _inherited_sizes(_merge(_table(base, (*seen, name)), table), table, where=name)


def _inherited_sizes(merged: Table, table: Table, *, where: str) -> Table:
    """The sizes of the base without what they set in objectives and phases that this recipe does not have."""
    said = table.get("sizes", {})
    merged["sizes"] = {
        size: settings if size in said else [setting for setting in settings if _has_element(merged, setting)]
        for size, settings in _settings_by_size(merged.get("sizes", {}), where=where).items()
    }
    return merged


def _merge(base: Table, over: Table) -> Table:
    """`over` merged over `base`; a table of another type replaces the base's, since its fields mean something else."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and value.get("type", old.get("type")) == old.get("type"):
            merged[key] = _merge(old, value)
        else:
            merged[key] = value
    return merged


def _set(table: Table, setting: str, *, word: str = "--set") -> None:
    """Apply one ``--set path.to.field=value``; a list element is named by number or by its type."""
    path, equals, text = setting.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys) or NOT_TEXT.search(setting):
        raise RecipeError(f"{word} needs field=value, such as model.layers=6, not {setting!r}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()  # a bare word is a string
    except (ValueError, RecursionError) as fault:
        raise RecipeError(f"{word} {path}: {short_repr(text)} is too long for a number, or nested too deep") from fault
    place: Any = table
    for key in keys[:-1]:
        place = _enter(place, key, f"{word} {path}")
    if isinstance(place, list):
        raise RecipeError(f"{word} {path}: {keys[-2]} is a list; name a field of one of its elements")
    if keys[-1] == "type" and place.get("type") != value and keys[0] not in ("optimizer", "schedule"):
        place.clear()  # another type has other fields
    place[keys[-1]] = value


def _has_element(table: Table, setting: str) -> bool:
    """Whether the list element that a setting names exists; settings outside lists always apply."""
    first, _, rest = setting.partition("=")[0].strip().partition(".")
    inner = table.get(first)
    return not isinstance(inner, list) or _element(inner, rest.partition(".")[0]) is not None


def _element(place: list[Any], key: str) -> Any:
    """The element of a list by its number or its type; None if there is none."""
    kinds = [element.get("type") if isinstance(element, dict) else None for element in place]
    return next((place[number] for number, kind in enumerate(kinds) if key in (str(number), kind)), None)


def _enter(place: Any, key: str, path: str) -> Any:
    if isinstance(place, list):
        if not isinstance(element := _element(place, key), dict):
            raise RecipeError(f"{path}: there is no element {key} in the list of {len(place)}")
        return element
    if place.get(key) is None:  # absent, or a part that the recipe does not have
        place[key] = {}
    inner = place[key]
    if not isinstance(inner, dict | list):
        raise RecipeError(f"{path}: {key} has no fields of its own")
    return inner


_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`")
_BAD_TAG = re.compile(r"Invalid value '?(.*?)'?$")
_AT = re.compile(r" - at `\$?\.?(.*?)`$")


def _explain(message: str, table: Table) -> str:
    """A schema error in plain words: the field by its path, and the nearest existing field or type."""
    at = _AT.search(message)
    path = re.sub(r"\[(\d+|\.\.\.)\]", r".\1", at.group(1)) if at else ""
    what = _AT.sub("", message)
    if unknown := _UNKNOWN.match(what):
        full = f"{path}.{unknown.group(1)}" if path else unknown.group(1)
        known = [f"{path}.{name}" if path else name for name in _fields(path, table)]
        return f"{full} is not a setting{did_you_mean(full, known)}"
    if (tag := _BAD_TAG.match(what)) and path.endswith("type"):
        options = [str(o.__struct_config__.tag) for o in _options(path.removesuffix("type").rstrip("."))]
        return f"{path} = {tag.group(1)!r} is not one of its kinds{did_you_mean(tag.group(1), options)}"
    missing = re.match(r"Object missing required field `(.*?)`", what)
    if missing:
        full = f"{path}.{missing.group(1)}" if path else missing.group(1)
        return f'{full} is missing; add it, or build on a recipe with base = "bert"'
    return f"{path}: {what[0].lower()}{what[1:]}" if path else what


def _options(path: str) -> list[Any]:
    """The structs that may be at a path such as ``corruption`` or ``objectives.0``."""
    if not path:
        return [Recipe]
    annotation: Any = next(f.type for f in msgspec.structs.fields(Recipe) if f.name == path.split(".")[0])
    if getattr(annotation, "__origin__", None) is tuple:
        annotation = get_args(annotation)[0]
    return [option for option in get_args(annotation) if option is not type(None)] or [annotation]


def setting_kinds(path: str, table: Table) -> list[type]:
    """The struct that a part is read as, by the type that the part names; all that it may be, if it names none.

    Args:
        path: The part, such as `corruption` or `objectives.0`; empty for the recipe.
        table: The part's own table.
    """
    options = _options(path)
    kind = table.get("type", DEFAULT_TYPE if path == "model" else None)
    return [o for o in options if o.__struct_config__.tag == kind] if len(options) > 1 else options


def _fields(path: str, table: Table) -> list[str]:
    """Names of the fields of the struct that the table selects at this path."""
    place: Any = table
    for key in path.split(".") if path else []:
        inner = place[int(key)] if isinstance(place, list) and key.isdigit() else place.get(key, {})
        place = inner if isinstance(inner, dict | list) else {}
    kinds = setting_kinds(path, place if isinstance(place, dict) else {})
    names = [field.encode_name for kind in kinds for field in msgspec.structs.fields(kind)]
    return [*names, "type"] if any(option.__struct_config__.tag for option in _options(path)) else names


def recipe_toml(recipe: Recipe) -> str:
    return "\n\n".join(_sections(recipe_table(recipe))) + "\n"


def _sections(table: dict[str, Any], path: str = "", head: str = "") -> list[str]:
    """The plain fields of a table under its header, then its tables: TOML requires this order."""
    plain = {key: value for key, value in table.items() if value is not None and not has_tables(value)}
    lines = [*([head] if head else []), *(f"{key} = {toml_value(value)}" for key, value in plain.items())]
    sections = ["\n".join(lines)] if lines else []
    for key, value in table.items():
        inner = f"{path}{key}"
        if isinstance(value, dict):
            sections += _sections(value, f"{inner}.", f"[{inner}]")
        elif has_tables(value):
            for element in value:
                sections += _sections(element, f"{inner}.", f"[[{inner}]]")
    return sections


def has_tables(value: Any) -> bool:
    """Whether a value is a table, or a list of tables."""
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def toml_value(value: Any) -> str:
    """A plain value as TOML writes it."""
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's escapes are TOML's, except one
    return str(value).lower() if isinstance(value, bool) else repr(value)
