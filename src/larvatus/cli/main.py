"""The command line: thin. Each command parses, calls the library, prints; errors become one line and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer

from larvatus.cli import (
    ablate,
    attention,
    compare,
    convert,
    corpus,
    data,
    demo,
    doctor,
    embed,
    evaluate,
    fill,
    finetune,
    isotropy,
    map,
    predict,
    pretrain,
    recipes,
    score,
    senses,
    similar,
    tokenizer,
)
from larvatus.errors import LarvatusError, UsageError
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


def _version(asked: bool) -> None:
    if asked:
        print(f"larvatus {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Say the version."),
) -> None:
    pass


def run(arguments: list[str] | None = None) -> None:
    """Entry point of the `larvatus` command. A traceback on bad input is a bug."""
    try:
        code = app(args=arguments, standalone_mode=False)
        sys.stdout.flush()  # here, where a reader who has gone is no fault, not when Python ends
    except LarvatusError as fault:
        code = complain(str(fault), fault.exit_code)
    except _BadCommand as fault:
        code = complain(fault.format_message(), UsageError.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        code = complain("stopped", 130)
    except (BrokenPipeError, SystemExit) as ended:
        # the reader of our output has gone (`larvatus … | head`), for which both rich and typer exit with 1
        if isinstance(ended, SystemExit) and not isinstance(ended.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def complain(message: str, code: int) -> int:
    """One line on standard error."""
    line = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in message)
    sys.stderr.write(f"larvatus: {line}\n")
    return code
