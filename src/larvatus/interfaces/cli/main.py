"""Entry point of the command line: commands parse, call and print; errors become one line and an exit code."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from itertools import takewhile
from typing import Any

import typer

from larvatus.core.errors import LarvatusError, OlderNameWarning, OtherLanguageWarning, UsageError, printable
from larvatus.core.run_identity import VERSION
from larvatus.core.signals import Stopped, exit_code, terminable
from larvatus.interfaces.cli.command_list import COMMANDS, LazyGroup
from larvatus.interfaces.cli.crash_report import STOPPED, complain, machine_error, stopping_at_once
from larvatus.interfaces.cli.output import is_quiet, set_quiet
from larvatus.interfaces.cli.streams import ReaderGone, go_on_without_stdout

_BadCommand: Any = typer.BadParameter.__mro__[2]  # click's base class, wherever this typer keeps its click


class Root(LazyGroup):
    """`larvatus` itself."""

    table = COMMANDS

    def loaded(self, name: str, command: Any) -> Any:
        _tell_of_saving(command, name)
        return command


app = typer.Typer(
    cls=Root,
    name="larvatus",
    help="Bidirectional encoders from raw text: train vocabularies, pretrain, fine-tune, embed, serve.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


SAVING = ("out", "png", "html", "table", "plot", "predictions", "add")
"""Parameters that name what a command writes; with one, the command continues when nobody reads its output."""
ALWAYS_SAVING = ("isotropy fit", "adapter add", "lens train", "similar layers", "tutorial")
"""Commands that always save something."""


COMPLETION = "_LARVATUS_COMPLETE"
"""Environment variable with which a shell's completion calls the program."""


def _version(asked: bool) -> None:
    if asked:
        print(f"larvatus {VERSION}")
        raise typer.Exit


GREETING = f"""Larvatus {VERSION}: fill, search, label, train and serve with BERT and its family
  larvatus demo              three minutes of what it can do, and a page of it
  larvatus fill "The [MASK] of the river was wide."      words for a blank
  larvatus tutorial          notebooks: support tickets, names, a concordance
  larvatus --help            all commands; larvatus COMMAND --help, its options"""


@app.callback()
def _root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),  # read by `debugging`
    quiet: bool = typer.Option(False, "--quiet", callback=set_quiet, help="Show only results and errors, no progress."),
) -> None:
    if context.invoked_subcommand is None:
        print(GREETING)


def run(arguments: list[str] | None = None) -> None:
    """The `larvatus` command. Errors that a user can cause are one line; others pass through."""
    words = sys.argv[1:] if arguments is None else arguments
    if arguments is None:
        with stopping_at_once():
            _import_command(words)
    try:
        with terminable(), warnings.catch_warnings():
            warnings.showwarning = _one_line(warnings.showwarning)
            code = _invoke(words)
        sys.stdout.flush()  # here, where a closed pipe is not an error, not when Python ends
    except LarvatusError as fault:
        code = fault.exit_code if fault.reported else complain(str(fault), fault.exit_code)
    except _BadCommand as fault:
        code = complain(fault.format_message(), UsageError.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        code = complain("stopped", STOPPED)
    except Stopped as fault:
        code = complain(f"stopped by {fault.by}", exit_code(fault.by))
    except ReaderGone:  # of what is only printed: `larvatus … | head`
        code = 0
    except SystemExit as ended:
        if not isinstance(ended.__context__, ReaderGone):  # for which rich exits with 1
            raise
        code = 0
    except Exception as fault:
        error = machine_error(fault)
        if error is None:
            raise
        code = complain(str(error), error.exit_code)
    sys.exit(code)


def _note(line: str) -> None:
    """Print a note on the columns of a table; it is progress, not a result."""
    if not is_quiet():
        print(printable(line), file=sys.stderr)


def _one_line(otherwise: Callable[..., None]) -> Callable[..., None]:
    """Show the first of our own warnings as one line, and those of libraries as Python does."""
    said: set[type[Warning]] = set()

    def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
        if not issubclass(category, OtherLanguageWarning | OlderNameWarning):
            otherwise(message, category, *where)
        elif category not in said:
            said.add(category)
            print(f"larvatus: warning: {message}", file=sys.stderr)

    return show


def _invoke(arguments: list[str]) -> int:
    """Parse and call. (Typer itself would exit quietly with 1 if *any* pipe breaks.)"""
    command = _commands()
    if COMPLETION in os.environ:  # the shell requests completions
        command._main_shell_completion({}, "larvatus", COMPLETION)
    try:
        with command.make_context("larvatus", with_address(arguments)) as context:
            command.invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    return 0


@cache
def _commands() -> Any:
    """All commands; each is built from its settings once per process."""
    return typer.main.get_command(app)


def _import_command(words: list[str]) -> None:
    """Import the module of the named command: this takes seconds for torch, before signals are handled."""
    named = next((word for word in words if not word.startswith("-")), "")
    if named in COMMANDS and COMPLETION not in os.environ:
        import_module(COMMANDS[named].module)


def _tell_of_saving(command: Any, path: str) -> None:
    """Wrap a command so that standard output may be lost if it saves something."""
    for name, inner in getattr(command, "commands", {}).items():
        _tell_of_saving(inner, f"{path} {name}".strip())
    if command.callback is not None:
        command.callback = partial(_call, command.callback, path)


def _call(callback: Callable[..., Any], path: str, /, **given: Any) -> Any:
    if saves(path, given):
        go_on_without_stdout()
    from larvatus.data.text.columns import column_notes_to  # help and completion import nothing of the library

    with column_notes_to(_note):
        return callback(**given)


def saves(path: str, given: Mapping[str, Any]) -> bool:
    """Whether a command with these arguments writes files."""
    return path in ALWAYS_SAVING or any(given.get(name) is not None for name in SAVING)


OPTION = "--ray"
ADDRESS = re.compile(r"auto|local|(?:ray://)?[^/\s]+:\d+")


def with_address(words: Sequence[str]) -> list[str]:
    """The words with an address after every ``--ray``: ``auto`` if no address follows.

    >>> with_address(["embed", "--ray", "texts/"])
    ['embed', '--ray', 'auto', 'texts/']
    """
    options = list(takewhile(lambda word: word != "--", words))
    written: list[str] = []
    for number, word in enumerate(words):
        written.append(word)
        follows = words[number + 1] if number + 1 < len(words) else ""
        if word == OPTION and number < len(options) and not ADDRESS.fullmatch(follows):
            written.append("auto")
    return written
