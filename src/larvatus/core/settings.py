"""Settings: frozen structs that refuse unknown fields and check ranges, and their fields on the command line.

    class TrainSettings(Settings, path="train.", error=RecipeError):
        clip: Clip = 1.0                                # Annotated[float, Range(0, 1e6)]
        kind: Annotated[Literal["bpe", "unigram"], Flag("--type", panel=None)] = "bpe"
        '''Kind of subwords.'''

    TrainSettings(clip=-1)                     # RecipeError: train.clip = -1 must lie between 0 and 1,000,000
    field_docs(TrainSettings)["kind"]          # 'Kind of subwords.': the docstring below the field in the source

`path` precedes field names in errors and `error` is the exception raised; subclasses inherit both. A class with further
checks defines ``__post_init__`` and calls ``super().__post_init__()`` first.

`Flag` states how a field appears on the command line, where its name and type do not tell it all. The struct imports
nothing of the command line (`interfaces/cli/from_struct.py`).
"""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, dataclass_transform

import msgspec

from larvatus.core.errors import LarvatusError, UsageError
from larvatus.core.ranges import Seed, check_ranges

_CONFIG = {"frozen": True, "kw_only": True, "forbid_unknown_fields": True}


class SettingsMeta(msgspec.StructMeta):
    """Gives every subclass the same struct options; msgspec itself does not inherit ``kw_only``."""

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        /,
        path: str | None = None,
        error: type[LarvatusError] | None = None,
        **config: Any,
    ) -> SettingsMeta:
        if path is not None:
            namespace["__range_path__"] = path
        if error is not None:
            namespace["__range_error__"] = error
        return super().__new__(mcls, name, bases, namespace, **(_CONFIG | config))


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Settings(msgspec.Struct, metaclass=SettingsMeta, frozen=True):
    """Base of every settings struct."""

    __range_path__: ClassVar[str] = ""
    __range_error__: ClassVar[type[LarvatusError]] = UsageError

    def __post_init__(self) -> None:
        check_ranges(self, self.__range_path__, self.__range_error__)


class SeededSettings(Settings):
    """Settings of something that samples."""

    seed: Seed = 0
    """Seed of all sampling and resampling."""


# Fields on the command line.

PANEL_OF_STRUCT = "the panel of the struct"
PATH, ASSIGNMENTS = "a path", "name=value"
PathName = Annotated[str, PATH]
"""A file or directory; Python callers may also pass a `Path`."""
Assignments = Annotated[tuple[str, ...], ASSIGNMENTS]
"""``("model.layers=6",)``; Python callers may also pass a mapping, ``{"model.layers": 6}``."""


@dataclass(frozen=True)
class Flag:
    """Words of the command line for one field."""

    names: str | None = None
    """``--type``, or ``--lowercase/--cased`` of a choice of two; by default the field's own name."""
    metavar: str | None = None
    """Placeholder of the value in the help, such as FILE."""
    panel: str | None = PANEL_OF_STRUCT
    """Panel of the help; None: among the first options, which most people need."""
    argument: bool = False
    """A positional argument rather than an option."""
    help: str | None = None
    """Where the help is not the field's docstring."""
    words: Callable[[Sequence[str]], Mapping[str, Any]] | None = None
    """What the words say that are given with a repeatable flag: values of this field, or of others of the struct."""
    offered: bool = True
    """Whether the command line has it at all; in Python every field is there."""


def field_docs(kind: type) -> dict[str, str]:
    """By name, those of base classes included; nothing where there is no source, as in a frozen program."""
    said: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        said |= _of_module(owner.__module__).get(owner.__name__, {})
    return said


@cache
def _of_module(name: str) -> Mapping[str, dict[str, str]]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, TypeError, KeyError):
        return {}
    return {node.name: _of_class(node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _of_class(node: ast.ClassDef) -> dict[str, str]:
    said = {}
    for line, below in itertools.pairwise(node.body):
        words = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else None
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(words, str):
            said[line.target.id] = " ".join(words.split())
    return said
