"""`larvatus convert` and `larvatus export onnx`: a model in another layout, or for other programs.

larvatus convert runs/mine out/ --to bert
larvatus export onnx runs/mine --out out/
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from larvatus.core.errors import printable
from larvatus.inference.model.onnx import export_onnx
from larvatus.interfaces.cli.options import Json, Overwrite
from larvatus.models.bundle.convert import ConversionResult, Precision, convert_bundle
from larvatus.models.bundle.huggingface import LAYOUTS
from larvatus.models.bundle.huggingface.native import Native
from larvatus.models.bundle.onnx_file import TOLERANCE, Output

NAMES = ", ".join(layout.model_type for layout in LAYOUTS)


def convert(
    source: Annotated[str, typer.Argument(metavar="DIR", help="Model directory, or a model of the hub (org/name).")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Directory of the converted model.")],
    to: Annotated[str | None, typer.Option("--to", help=f"{NAMES}; default: the first of these that fits.")] = None,
    dtype: Annotated[
        Precision, typer.Option("--dtype", help="Precision of the weights; int8: integers with a scale per row.")
    ] = "float32",
    revision: Annotated[str | None, typer.Option("--revision", help="Commit of a hub model, 40 digits.")] = None,
    online: Annotated[bool, typer.Option("--online", help="Fetch a hub model that is not in the cache.")] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Convert a model to another layout: ours or one of Hugging Face's. Heads that the layout lacks are dropped."""
    done = convert_bundle(source, out, to=to, dtype=dtype, revision=revision, online=online, overwrite=overwrite)
    if as_json:
        print(json.dumps(done.to_dict()))
    else:
        _show(done, Console(soft_wrap=True, highlight=False, markup=False, emoji=False))


def _show(done: ConversionResult, console: Console) -> None:
    console.print(f"saved {printable(str(done.path))} in the layout {done.layout} ({done.architecture}, {done.dtype})")
    console.print(f"  weights: {done.bytes / 1e6:,.1f} MB")
    if done.reconstruction is not None:
        lost = done.reconstruction
        console.print(
            f"  rounded: {lost.error:.2%} of the weights' norm, at most {lost.worst_error:.2%} ({lost.worst})"
        )
        console.print(
            "  what that costs: larvatus evaluate OUT --corpus TEXT, and the same of DIR; only Larvatus reads it"
        )
    console.print(f"  heads kept: {', '.join(done.kept) or 'none'}")
    console.print(f"  heads dropped: {', '.join(done.left_out) or 'none'}")
    elsewhere = [name for name in done.fits if name != Native.model_type]
    if done.layout == Native.model_type and elsewhere:
        console.print(f"  transformers loads it with --to {' or '.join(elsewhere)}, which may drop heads")
    if done.unused:
        console.print(f"  tensors not read: {', '.join(done.unused)}")


app = typer.Typer(help="Export a model to ONNX, and check it against torch.", no_args_is_help=True)


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
