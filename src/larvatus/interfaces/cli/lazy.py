"""Groups of commands whose modules are imported when a command is asked for, and not to list them.

    class Root(Lazy):
        table = {"fill": Listed("larvatus.interfaces.cli.commands.fill:fill", "Texts", "Fill the blanks of texts.")}

    app = typer.Typer(cls=Root)

Help and shell completion of a group need a command's name, panel and first sentence alone; those stand in the table,
and a test compares them with what the commands say themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True)
class Listed:
    """A command before it is imported."""

    place: str
    """``module:name`` of a function or of a `typer.Typer`."""
    panel: str
    help: str

    def load(self, name: str) -> Any:
        """The command itself."""
        module, _, attribute = self.place.partition(":")
        made = getattr(import_module(module), attribute)
        holder = typer.Typer(add_completion=False, rich_markup_mode="rich")
        holder.callback()(_nothing)
        if isinstance(made, typer.Typer):
            holder.add_typer(made, name=name, rich_help_panel=self.panel)
        else:
            holder.command(name, rich_help_panel=self.panel)(made)
        group: Any = typer.main.get_group(holder)
        return group.commands[name]


class Commands(Mapping[str, Any]):
    """Commands by name, each imported when it is first looked up."""

    def __init__(self, group: Lazy) -> None:
        self._group = group
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._group.loaded(name, self._group.table[name].load(name))
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._group.table)

    def __len__(self) -> int:
        return len(self._group.table)

    def __contains__(self, name: object) -> bool:
        return name in self._group.table


class Lazy(TyperGroup):
    """A group that knows its commands by a table."""

    table: ClassVar[Mapping[str, Listed]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = Commands(self)

    def loaded(self, name: str, command: Any) -> Any:
        """What is done with a command once it is imported."""
        return command

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.table)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with _only_listed(self):
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        with _only_listed(self):
            return super().shell_complete(ctx, incomplete)


class _only_listed:
    """While this lasts, a group's commands are names with a sentence each."""

    def __init__(self, group: Lazy) -> None:
        self._group, self._commands = group, group.commands

    def __enter__(self) -> None:
        self._group.commands = {
            name: TyperCommand(name, help=listed.help, rich_help_panel=listed.panel, rich_markup_mode="rich")
            for name, listed in self._group.table.items()
        }

    def __exit__(self, *fault: object) -> None:
        self._group.commands = self._commands


def _nothing() -> None:
    pass
