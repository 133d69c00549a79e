"""Command-line options from settings structs: a field becomes a flag, its docstring the help, its Range the check.

    class Budget(Settings):
        steps: Steps | None = None
        \"\"\"Train this many steps.\"\"\"

    @app.command()
    @from_structs
    def train(out: Path, budget: Annotated[Budget, Panel("How long")]) -> None: ...

    larvatus train --out runs/mine --steps 1000

`from_structs` turns a function that takes structs into one with a parameter for each of their fields, for typer;
when it is called, it builds the structs and calls the original function. A struct within a struct adds its fields,
prefixed with the name of the outer field (``optimizer.clip`` is ``--optimizer-clip``). Numbers are
checked against their ranges by the flag's name before the struct sees them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import typer
from rich.markup import escape

from larvatus.core.errors import UsageError
from larvatus.core.ranges import Range, ranges_of, whole
from larvatus.core.settings import PANEL_OF_STRUCT, Flag, field_docs
from larvatus.training.engine.settings import BUDGETS

_ANY = Range(-sys.float_info.max, sys.float_info.max)
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Panel:
    """How one command offers the fields of a struct."""

    name: str | None = None
    """Title of the panel in the help; None for the first options."""
    without: tuple[str, ...] = ()
    """Fields that this command does not offer; they keep their defaults."""
    first: tuple[str, ...] = ()
    """Fields shown among the first options instead."""
    help: Mapping[str, str] = field(default_factory=dict)
    """Help of fields whose docstring does not fit the command."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Other defaults than the struct's."""


@dataclass(frozen=True)
class AnyOf:
    """Fields of several structs, one of which will apply: the function gets the given values by name.

    Fields with the same name become one option, with the help of the first.
    """

    kinds: tuple[type[msgspec.Struct], ...]
    panel: Panel = field(default_factory=Panel)

    def settings(self) -> list[StructOption]:
        named: dict[str, StructOption] = {}
        for kind in self.kinds:
            for setting in settings_of(kind, self.panel):
                named.setdefault(setting.name, setting)
        return list(named.values())


@dataclass(frozen=True)
class StructOption:
    """A field, as a parameter of a command."""

    name: str
    """Name of the parameter."""
    path: tuple[str, ...]
    """Path to the field: one name, or several if structs are nested."""
    annotation: Any
    default: Any
    read: Callable[[Any], Any]
    """Converts the value from typer to the field's type."""
    spread: bool = False
    """Whether `read` returns fields by name."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of the option."""
        words = str(get_args(self.annotation)[-1].default)  # typer stores the flags there
        return tuple(words.split("/")) if words.startswith("-") else ()

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value."""
        return get_args(self.annotation)[0] in (bool, bool | None)


def from_structs(function: F) -> F:
    """A function for typer, whose parameters are the fields of the structs that `function` takes."""
    hints = get_type_hints(function, include_extras=True)
    plain: list[inspect.Parameter] = []
    groups: dict[str, tuple[type[msgspec.Struct] | None, list[StructOption]]] = {}
    for parameter in inspect.signature(function).parameters.values():
        hint = hints[parameter.name]
        kind, panel = _struct_of(hint)
        several = _marker(hint, AnyOf)
        if kind is None and several is None:
            plain.append(parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        settings = several.settings() if kind is None else list(settings_of(kind, panel))
        groups[parameter.name] = kind, settings
        for each in settings:
            plain.append(
                inspect.Parameter(
                    each.name, inspect.Parameter.KEYWORD_ONLY, annotation=each.annotation, default=each.default
                )
            )
    _refuse_doubles(function, plain)

    @functools.wraps(function)
    def command(**given: Any) -> Any:
        structs = {
            name: build(kind, settings, {each.name: given.pop(each.name) for each in settings})
            for name, (kind, settings) in groups.items()
        }
        return function(**given, **structs)

    del command.__wrapped__  # typer would read its types
    command.__signature__ = inspect.Signature(plain)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in plain}
    return typing.cast(F, command)


def settings_of(kind: type[msgspec.Struct], panel: Panel | None = None, prefix: str = "") -> Iterator[StructOption]:
    """The fields of a struct, and of structs within it, as parameters."""
    panel = panel or Panel()
    hints = get_type_hints(kind, include_extras=True)
    help = {**field_docs(kind), **panel.help}
    for each in msgspec.structs.fields(kind):
        hint = hints[each.name]
        flag = _marker(hint, Flag) or Flag()
        if not flag.offered or each.name in panel.without:
            continue
        inner, _ = _struct_of(hint)
        if inner is not None:
            within_it = Panel(panel.name, without=panel.without)
            for setting in settings_of(inner, within_it, prefix=f"{prefix}{each.name}_"):
                yield dataclasses.replace(setting, path=(each.name, *setting.path))
            continue
        limits = ranges_of(kind).get(each.name, (None, False))[0]
        default = panel.defaults[each.name] if each.name in panel.defaults else _default(each)
        names = flag.names or f"--{(prefix + each.name).strip('_').replace('_', '-')}"
        annotation, read = _typer_type(hint, names.partition("/")[0], limits)
        if flag.words is not None:
            annotation, read = list[str] | None, flag.words
        if annotation in (bool, bool | None) and default is not False and "/" not in names:
            names += f"/--no-{names[2:]}"
        words = help.get(each.name, "") if flag.help is None or each.name in panel.help else flag.help
        words = words.replace("; None: ", "; default: ")  # the docstring is for Python
        title = panel.name if flag.panel == PANEL_OF_STRUCT and each.name not in panel.first else None
        title = flag.panel if flag.panel not in (PANEL_OF_STRUCT, None) else title
        info = _info(flag, names, words, title, limits if read is _same else None)
        spread = flag.words is not None
        yield StructOption(prefix + each.name, (each.name,), Annotated[annotation, info], default, read, spread)


def build(kind: type[msgspec.Struct] | None, settings: list[StructOption], given: Mapping[str, Any]) -> Any:
    """Build a struct from the options of the command line. Options that are not given keep the default.

    Without `kind`: the options that differ from their default, by name.
    """
    tree: dict[str, Any] = {}
    for each in settings:
        value = given[each.name]
        if (value is None and each.default is None) or (kind is None and value == each.default):
            continue
        if each.spread:
            tree |= each.read(value)
            continue
        place = tree
        for name in each.path[:-1]:
            place = place.setdefault(name, {})
        place[each.path[-1]] = each.read(value)
    return tree if kind is None else _made(kind, tree)


def _made(kind: type[msgspec.Struct], tree: Mapping[str, Any]) -> Any:
    hints = get_type_hints(kind, include_extras=True)
    nested = {name: _struct_of(hints[name])[0] for name in tree}
    return kind(
        **{name: value if (inner := nested[name]) is None else _made(inner, value) for name, value in tree.items()}
    )


def _info(flag: Flag, names: str, help: str, panel: str | None, limits: Range | None) -> Any:
    more: dict[str, Any] = {} if panel is None else {"rich_help_panel": panel}
    if limits is not None:
        more["callback"] = within(limits)
    if flag.argument:
        return typer.Argument(metavar=flag.metavar, help=escape(help), **more)
    return typer.Option(names, metavar=flag.metavar, help=escape(help), **more)


def _default(each: msgspec.structs.FieldInfo) -> Any:
    """The default for typer; a field without one is required."""
    default = each.default if each.default_factory is msgspec.NODEFAULT else each.default_factory()
    if default is msgspec.NODEFAULT:
        return inspect.Parameter.empty
    if default is msgspec.UNSET or default in ((), [], {}):
        return None
    if isinstance(default, tuple | list):
        return ",".join(map(str, default)) if isinstance(default[0], int | float) else list(default)
    return default


def _typer_type(hint: Any, option: str, limits: Range | None) -> tuple[Any, Callable[[Any], Any]]:
    """Type of the option for typer, and the function that converts its value for the field."""
    bare = _bare(hint)
    members = [kind for kind in get_args(bare) if kind is not type(None)] if _is_union(bare) else [bare]
    members = [kind for kind in map(_bare, members) if kind is not msgspec.UnsetType]
    optional = _is_union(bare) and len(members) < len(get_args(bare))
    if len(members) > 1:  # such as int | str: read as text, and converted by the struct
        members = [str]
    (kind,) = members
    read: Callable[[Any], Any] = _same
    if get_origin(kind) in (tuple, list) or getattr(get_origin(kind), "__name__", "") == "Sequence":
        item = _bare(get_args(kind)[0])
        if item in (int, float):
            kind, read = str, functools.partial(_numbers, option, limits or _ANY)
        else:
            kind, read, optional = list[item], tuple, True  # type: ignore[valid-type]
    elif get_origin(kind) in (dict, Mapping) or getattr(get_origin(kind), "__name__", "") == "Mapping":
        kind, read, optional = list[str], functools.partial(_pairs, option, limits or _ANY), True
    return (kind | None if optional else kind), read


def _same(value: Any) -> Any:
    return value


def _numbers(option: str, limits: Range, words: str) -> tuple[Any, ...]:
    """``1,2,3``"""
    try:
        return tuple(limits.read(word.strip()) for word in words.split(","))
    except ValueError as fault:
        kind = "whole numbers" if limits.whole else "numbers"
        raise UsageError(f"{option} needs {kind} with commas between, such as 1,2,3: {fault}") from None


def _pairs(option: str, limits: Range, words: list[str]) -> dict[str, Any]:
    """``name=value``, several times."""
    pairs = {}
    for word in words:
        name, equals, value = word.rpartition("=")
        if not equals:
            raise UsageError(f"{option} {word:.60} is not name=value, such as yes=2")
        try:
            pairs[name] = limits.read(value)
        except ValueError as fault:
            raise UsageError(f"{option} {word:.60}: {fault}") from None
    return pairs


def _struct_of(hint: Any) -> tuple[type[msgspec.Struct] | None, Panel | None]:
    bare = _bare(hint)
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        return bare, _marker(hint, Panel)
    return None, None


def _marker(hint: Any, kind: type) -> Any:
    """The first annotation of a kind in a type or its parts."""
    for part in getattr(hint, "__metadata__", ()):
        if isinstance(part, kind):
            return part
    if get_origin(hint) is Literal:
        return None
    return next((mark for inner in get_args(hint) if (mark := _marker(inner, kind)) is not None), None)


def _bare(hint: Any) -> Any:
    return _bare(get_args(hint)[0]) if get_origin(hint) is Annotated else hint


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (typing.Union, types.UnionType)


def _refuse_doubles(function: Callable[..., Any], parameters: list[inspect.Parameter]) -> None:
    names = [parameter.name for parameter in parameters]
    twice = {name for name in names if names.count(name) > 1}
    if twice:  # a programming error, found when the module is imported
        raise TypeError(f"{function.__name__}: two of its structs have a field {', '.join(sorted(twice))}")


TOP = whole(1, 1_000_000)
"""Number of candidates, neighbours or answers."""
BEAM = whole(1, 100_000)
MINUTES = BUDGETS["minutes"]
PROCESSES = whole(1, 1024)
PASSAGE = whole(3, 2**24)
PLACES = whole(3, 10**9)
"""Most instances in a picture."""
LAYER = whole(1, 10_000)
HEAD = whole(1, 2**24)


def ranged(limits: Range, *names: str, help: str, metavar: str | None = None) -> Any:
    """An option whose value must be within limits; None is not checked."""
    return typer.Option(*names, help=help, metavar=metavar, callback=within(limits))


def within(limits: Range) -> Callable[..., Any]:
    def check(param: typer.CallbackParam, value: Any) -> Any:
        if value is not None:
            limits.check(value, max(param.opts, key=len), UsageError)
        return value

    check.limits = limits  # type: ignore[attr-defined]
    return check
