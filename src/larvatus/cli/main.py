"""The command line: thin. Each command parses, calls the library, prints; errors become one line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import typer

from larvatus.cli.cloze import fill, score
from larvatus.cli.last_resort import STOPPED, complain, known
from larvatus.cli.streams import ReaderGone, go_on_without_stdout
from larvatus.cli.tasks import data, evaluate, finetune, predict
from larvatus.cli.text import corpus, tokenizer
from larvatus.cli.train import ablate, compare, convert, demo, doctor, pretrain, recipes
from larvatus.cli.vectors import attention, embed, isotropy, map, senses, similar
from larvatus.errors import LarvatusError, UsageError
from larvatus.signals import Stopped, exit_code, terminable
from larvatus.version import VERSION

_BadCommand: Any = typer.BadParameter.__mro__[2]  # click's base class, wherever this typer keeps its click

app = typer.Typer(
    name="larvatus",
    help="Bidirectional encoders from raw text: learn a vocabulary, pretrain by masking, fill blanks, embed words.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("demo")(demo.demo)
app.command("pretrain")(pretrain.pretrain)
app.command("fill")(fill.fill)
app.command("embed")(embed.embed)
app.add_typer(recipes.app, name="recipes")
app.add_typer(tokenizer.app, name="tokenizer")
app.add_typer(corpus.app, name="corpus")
app.command("convert")(convert.convert)
app.command("doctor")(doctor.doctor)
app.command("compare")(compare.compare)
app.command("ablate")(ablate.ablate)
app.command("evaluate")(evaluate.evaluate)
app.command("score")(score.score)
app.add_typer(isotropy.app, name="isotropy")
app.add_typer(similar.app, name="similar")
app.command("map")(map.word_map)
app.add_typer(attention.app, name="attention")
app.add_typer(senses.app, name="senses")
app.add_typer(data.app, name="data")
app.command("finetune")(finetune.finetune)
app.command("predict")(predict.predict)


SAVING = ("out", "png", "table", "plot", "predictions")
"""Parameters that name what a command writes; where one is given, the command goes on when nobody reads its words."""
ALWAYS_SAVING = ("isotropy fit",)
"""Commands that save where nothing is named, too."""


def _version(asked: bool) -> None:
    if asked:
        print(f"larvatus {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Say the version."),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),  # read by `debugging`
) -> None:
    pass


def run(arguments: list[str] | None = None) -> None:
    """The `larvatus` command, its modules loaded. Errors that a user can cause are one line; others pass through."""
    try:
        with terminable():
            code = _invoke(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()  # here, where a reader who has gone is no fault, not when Python ends
    except LarvatusError as fault:
        code = complain(str(fault), fault.exit_code)
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
        told = known(fault)
        if told is None:
            raise
        code = complain(str(told), told.exit_code)
    sys.exit(code)


def _invoke(arguments: list[str]) -> int:
    """Parse and call. (Typer's own way of doing so ends quietly with 1 where *any* pipe breaks.)"""
    command = typer.main.get_command(app)
    _tell_of_saving(command)
    try:
        with command.make_context("larvatus", list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    return 0


def _tell_of_saving(command: Any, path: str = "") -> None:
    """Before a command that saves something begins, standard output becomes dispensable."""
    for name, inner in getattr(command, "commands", {}).items():
        _tell_of_saving(inner, f"{path} {name}".strip())
    if command.callback is not None:
        command.callback = partial(_call, command.callback, path)


def _call(callback: Callable[..., Any], path: str, /, **given: Any) -> Any:
    if saves(path, given):
        go_on_without_stdout()
    return callback(**given)


def saves(path: str, given: Mapping[str, Any]) -> bool:
    """Whether a command, with these arguments, leaves something behind."""
    return path in ALWAYS_SAVING or any(given.get(name) is not None for name in SAVING)
