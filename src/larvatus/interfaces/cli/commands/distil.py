"""`larvatus distil static`: one vector for each token, from a sentence encoder.

larvatus distil static --model all-MiniLM-L6-v2 --out runs/static
larvatus distil static --model all-MiniLM-L6-v2 --out runs/static --corpus texts/ --size 128
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from larvatus.core.errors import printable
from larvatus.inference.model import load
from larvatus.inference.vectors.distil import DistilOptions
from larvatus.interfaces.api.distilling import run_static_distillation
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.options import Device, ModelName, Overwrite, Reading
from larvatus.interfaces.cli.progress import Quiet, hint, reading_text

app = typer.Typer(
    help="Make a small static model from a sentence encoder: one vector for each token.", no_args_is_help=True
)


@app.callback()
def distil() -> None:
    """Keeps `static` a subcommand."""


@app.command("static")
@from_structs
def static(
    model: ModelName,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The new model directory.")],
    chosen: Annotated[DistilOptions, Panel()],
    reading: Reading,
    corpus: Annotated[
        list[str] | None,
        typer.Option(help="Text whose frequencies weight the tokens: a file, directory or glob; repeatable."),
    ] = None,
    device: Device = "auto",
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """One vector for each token from the teacher's outputs, PCA and SIF weights; a text is the mean of its tokens."""
    teacher = load(model, device=device)
    with reading_text("tokens") as (progress, skipped):
        made = run_static_distillation(
            teacher, chosen, reading, out=out, corpus=corpus, overwrite=overwrite, progress=progress, skipped=skipped
        )
    text = f", weighted by {made.counted:,} tokens of text" if made.counted else ""
    kept = f"{made.rows_VD.shape[1]} dimensions ({made.variance:.1%} of the variance)"
    print(f"{printable(str(out))}: {made.tokens:,} tokens, {kept}{text}")
    hint(f"next: larvatus embed TEXT --model {printable(str(out))} --unit sentence --out vectors.parquet")
