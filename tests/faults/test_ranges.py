"""Row 77: every number of a setting or an option has a range, and nothing outside it is taken."""

from __future__ import annotations

import importlib
import math
import pkgutil
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pytest
import typer

import larvatus
from larvatus.core.errors import LarvatusError, RecipeError, UsageError
from larvatus.core.ranges import Range, ranges_of, short_repr, whole
from larvatus.interfaces.cli.main import app, run
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.recipes import OptimizerConfig, read_recipe, recipe_names
from larvatus.models.recipes.recipe import Recipe
from larvatus.tasks.answers.task import AnswerOptions
from larvatus.tasks.classify.options import ClassifyOptions
from larvatus.tasks.spans.task import SpansOptions
from larvatus.tasks.trainer.config import TrainConfig

for module in pkgutil.walk_packages(larvatus.__path__, "larvatus."):
    if not module.name.endswith(("__main__", "_kernels", "spacy_component")):  # those need Triton and spaCy
        importlib.import_module(module.name)


def structs_within(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """The structs that a type is made of."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for hint in typing.get_type_hints(kind, include_extras=True).values():
            yield from structs_within(hint)
    for inner in typing.get_args(kind):
        yield from structs_within(inner)


def everywhere(kind: type) -> Iterator[type]:
    for inner in kind.__subclasses__():
        yield inner
        yield from everywhere(inner)


SETTINGS = sorted(
    {
        *structs_within(Recipe),
        *structs_within(TrainConfig),
        *structs_within(ClassifyOptions),
        *structs_within(SpansOptions),
        *structs_within(AnswerOptions),
        # every struct by these names, wherever it stands: options of commands, and what foreign configs say
        *(
            kind
            for kind in everywhere(msgspec.Struct)
            if kind.__module__.startswith("larvatus.") and kind.__name__.endswith(("Config", "Options", "Settings"))
        ),
    },
    key=lambda kind: (kind.__module__, kind.__name__),
)
NO_SETTINGS = {"larvatus.inference.senses.inventory"}  # a file's own, made by us and read back as it is


def numeric(hint: Any) -> bool:
    if typing.get_origin(hint) is typing.Literal:
        return False
    return hint in (int, float) or any(numeric(inner) for inner in typing.get_args(hint))


@cache
def fields() -> list[tuple[type, str]]:
    return [
        (kind, field.name)
        for kind in SETTINGS
        if kind.__module__ not in NO_SETTINGS
        for field in msgspec.structs.fields(kind)
        if (numeric(field.type) and field.name not in ("layers", "label2id")) or field.name in ranges_of(kind)
    ]


hints = cache(typing.get_type_hints)


def of(kind: type, **changes: Any) -> Any:
    """A struct as it is by default, but for some fields."""
    ranges = ranges_of(kind)
    given = {
        field.name: ranges[field.name][0].least if field.name in ranges else ("A", "B")
        for field in msgspec.structs.fields(kind)
        if field.required
    }
    return kind(**{**given, **changes})


def test_77_the_walk_finds_the_settings() -> None:
    assert len(SETTINGS) > 40
    assert len(fields()) > 150


def bounded(kind: type, name: str) -> bool:
    limits, _ = ranges_of(kind).get(name, (None, False))
    return limits is not None and math.isfinite(limits.least) and math.isfinite(limits.most)


def test_77_every_number_of_every_setting_has_two_finite_bounds() -> None:
    """A new field without a range fails here: annotate it with a type of `larvatus/core/ranges.py`."""
    assert [f"{kind.__module__}.{kind.__name__}.{name}" for kind, name in fields() if not bounded(kind, name)] == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**30, -(10**30), True, "3"], ids=str)
def test_77_nothing_outside_is_taken_when_settings_are_made_in_python(value: object) -> None:
    for kind, name in fields():
        if "huggingface" in kind.__module__ or kind is Recipe:
            continue  # the first are checked where a config is read, the second by `test_77_a_recipe…`
        inner = (value,) if typing.get_origin(hints(kind)[name]) is tuple else value
        given = {"a": value} if name == "class_weights" and kind is ClassifyOptions else inner
        with pytest.raises(LarvatusError, match=name):
            of(kind, **{name: given})


@pytest.mark.parametrize("name", recipe_names())
def test_77_published_recipes_are_within(name: str) -> None:
    assert read_recipe(name).name == name


def test_77_a_recipe_of_python_is_checked_too() -> None:
    with pytest.raises(RecipeError, match="batch = -1 must lie between 1 and"):
        msgspec.structs.replace(read_recipe("bert"), batch=-1)
    with pytest.raises(RecipeError, match=r"optimizer.clip = -1 must lie between 0 and 1,000,000"):
        OptimizerConfig(clip=-1)
    with pytest.raises(UsageError, match=r"epochs = 2.5 must be a whole number between 1 and"):
        TrainConfig(epochs=2.5)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match=r"model.layers = a number of about 4,9\d\d digits must lie"):
        TransformerConfig(layers=10**4_950)


def test_77_ranges_know_their_ends() -> None:
    assert 0 in Range(0, 1)
    assert 0 not in Range(0, 1, above=True)
    assert 1 not in Range(0, 1, below=True)
    assert 1.0 not in whole(0, 2)
    assert False not in whole(0, 2)
    assert short_repr("a\nb") == repr("a\nb")


def options() -> Iterator[tuple[str, str, Any]]:
    """(command, parameter, its annotation) of everything on the command line."""

    def walk(command: Any, path: str) -> Iterator[tuple[str, str, Any]]:
        call = (getattr(command.callback, "func", None) and command.callback.args[0]) or command.callback
        if call is not None:
            for name, hint in typing.get_type_hints(call.__wrapped__, include_extras=True).items():
                yield path, name, hint
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, f"{path} {name}")

    return walk(typer.main.get_command(app), "larvatus")


def test_77_every_number_on_the_command_line_has_a_range() -> None:
    found = [(command, name, hint) for command, name, hint in options() if numeric(hint)]
    assert len(found) > 60
    for command, name, hint in found:
        info = typing.get_args(hint)[1]
        limits = getattr(info.callback, "limits", None)
        assert isinstance(limits, Range), (
            f"{command}: {name} is declared without `ranged(…)` of interfaces/cli/from_struct.py"
        )
        assert limits.whole == ("int" in str(typing.get_args(hint)[0])), f"{command}: {name}"


def test_77_numbers_on_the_command_line_are_held_to_their_ranges(capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is opened."""
    with pytest.raises(SystemExit) as ended:
        run(["corpus", "show", "absent", "--alpha", "nan"])
    assert ended.value.code == 2
    assert "--alpha" in capsys.readouterr().err
