"""`larvatus export onnx DIR --out OUT`: a model for other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from larvatus.core.errors import printable
from larvatus.inference.model.onnx import export_onnx
from larvatus.interfaces.cli.options import Json, Overwrite
from larvatus.models.bundle.onnx_file import TOLERANCE, Output

app = typer.Typer(help="Write a model for other programs: ONNX, checked against torch.", no_args_is_help=True)


@app.callback()
def _export() -> None:
    """Write a model for other programs."""


@app.command("onnx")
def onnx(
    source: Annotated[str, typer.Argument(metavar="DIR", help="Model directory, or a model of the hub (org/name).")],
    out: Annotated[Path, typer.Option(metavar="OUT", help="Directory for model.onnx and the vocabulary; may be DIR.")],
    output: Annotated[
        Output | None, typer.Option(help="vectors of tokens, or logits; default: logits of fine-tuned models.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Write a bidirectional transformer as an ONNX file with free batch and length, checked against torch."""
    done = export_onnx(source, out=out, output=output, overwrite=overwrite)
    if as_json:
        print(json.dumps(done.to_dict(), ensure_ascii=False))
        return
    size = Path(done.path).stat().st_size / 1e6
    print(f"saved {printable(done.path)} ({size:,.1f} MB): {done.output}, of any batch and length")
    print(f"  largest difference from torch: {done.difference:.1e} (refused above {TOLERANCE:g})")
