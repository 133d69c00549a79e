"""The command of a task: what it does not have, but another task has, is refused by that task's name.

larvatus finetune classify --crf                  # --crf belongs to finetune tag, not classify
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_type_hints

import typer
from msgspec import Struct
from typer.core import TyperCommand

from larvatus.core.errors import UsageError
from larvatus.data.labelled.file_options import refusal
from larvatus.interfaces.api.task_settings import GlueSettings
from larvatus.interfaces.cli.from_struct import Setting, settings_of
from larvatus.tasks.registry import TASKS, AnyTask, choices, parse_options

_BadCommand: Any = typer.BadParameter.__mro__[1]  # click's own, wherever this typer keeps its click


class TaskCommand(TyperCommand):
    """`larvatus finetune tag`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except _BadCommand as fault:
            if (option := getattr(fault, "option_name", None)) is not None:
                refuse_of_others(TASKS[str(self.name)], option, given)
            elif (parameter := getattr(fault, "param", None)) is not None:
                _refuse_choice(str(self.name), parameter, given)
            raise


def refuse_of_others(task: AnyTask, option: str, given: Sequence[str]) -> None:
    """Say whose option it is; nothing where it is nobody's."""
    owners = [
        (other, kind, setting)
        for other in TASKS.values()
        for kind, setting in _settings(other)
        if option in setting.flags
    ]
    if not owners:
        return
    names = " and ".join(dict.fromkeys(other.name for other, _, _ in owners))
    owner, kind, setting = owners[0]
    if kind is owner.Reading:
        words = refusal(task.Reading, [option.removeprefix("--")], owner.Reading)
        raise UsageError(f"{words} ({option} belongs to finetune {names})")
    value = "" if setting.is_switch else f" {_value(option, given)}".rstrip()
    raise UsageError(f"{option}{value} belongs to finetune {names}, not {task.name}")


def _refuse_choice(name: str, parameter: Any, given: Sequence[str]) -> None:
    """A word that an option of the task cannot be, in the words of Python."""
    hint = get_type_hints(TASKS[name].Options).get(parameter.name)
    if hint is not None and choices(hint):
        parse_options(name, {parameter.name: next(filter(None, (_value(option, given) for option in parameter.opts)))})


def _settings(task: AnyTask) -> Iterator[tuple[type[Struct], Setting]]:
    for kind in (task.Options, task.Reading, *((GlueSettings,) if task.of_glue else ())):
        yield from ((kind, setting) for setting in settings_of(kind))


def _value(option: str, given: Sequence[str]) -> str:
    """What follows an option on the command line."""
    for word, following in zip(given, [*given[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else following
    return ""
