"""Options that several commands share: how text is read."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

Json = Annotated[bool, typer.Option("--json", help="JSON for programs.")]
Language = Annotated[str, typer.Option(help="Language of text that does not say.")]
Licence = Annotated[str, typer.Option(help="Licence of the text, for the datasheet.")]
ModelName = Annotated[
    str, typer.Option("--model", help="Model directory, or a hub model in the local cache (org/name@COMMIT).")
]
OnBad = Annotated[Literal["fail", "skip"], typer.Option(help="Bad UTF-8, broken records: stop, or skip and count.")]
Sentences = Annotated[Literal["library", "newline"], typer.Option(help="Split by rule, or one sentence a line.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="field=value, such as model.layers=6.")]
Size = Annotated[
    str | None, typer.Option(help="tiny (its training fits a laptop too), mini, small, medium, base or large.")
]
Split = Annotated[Literal["blank-line", "file"], typer.Option(help="What ends a document in plain text.")]
TextField = Annotated[str, typer.Option(help="Field of JSONL and Parquet that holds the text.")]
