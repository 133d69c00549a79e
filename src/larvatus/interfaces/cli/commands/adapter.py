"""`larvatus adapter add|extract|merge`: sentence vectors for a model whose own weights stay as they are.

larvatus adapter extract runs/faq --base english --out faq-adapter
larvatus adapter add faq-adapter --model runs/mine
larvatus adapter merge runs/mine --out runs/mine-sentences
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from larvatus.core.errors import printable
from larvatus.core.ranges import FACTOR, SIZE
from larvatus.inference.model.adapters import add_adapter, extract_adapter, merge_adapter
from larvatus.interfaces.cli.from_struct import ranged
from larvatus.interfaces.cli.options import Json, Overwrite
from larvatus.models.bundle.sentence_adapter import AdapterPrecision

app = typer.Typer(
    help="Add a sentence adapter to a model, extract one, or merge it into the weights.", no_args_is_help=True
)


@app.command("add")
def add(
    source: Annotated[
        Path,
        typer.Argument(metavar="ADAPTER", help="Folder of adapter extract, or a safetensors file of LoRA tensors."),
    ],
    model: Annotated[Path, typer.Option(metavar="DIR", help="Model directory that gets the adapter.")],
    alpha: Annotated[float | None, ranged(FACTOR, help="Scale α of LoRA, which only a folder states itself.")] = None,
    dtype: Annotated[
        AdapterPrecision | None,
        typer.Option(help="Stored numbers; default: int8, or float16 where int8 is too coarse."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Add a sentence adapter to a model directory: vectors of whole texts use it, and nothing else does."""
    done = add_adapter(source, model, alpha=alpha, dtype=dtype)
    if as_json:
        print(json.dumps(done.to_dict()))
        return
    print(f"saved {printable(str(done.path))} (rank {done.rank}, {done.dtype}, {done.bytes / 1e6:,.2f} MB)")
    print(f"  rounding moves vectors by {done.moved:.1e} at most (1 - cosine)")


@app.command("extract")
def extract(
    tuned: Annotated[str, typer.Argument(metavar="DIR", help="Output of finetune embed --trained lora32-all.")],
    base: Annotated[str, typer.Option(metavar="DIR", help="Model that it was fine-tuned from.")],
    out: Annotated[Path, typer.Option(metavar="OUT", help="New folder for the adapter.")],
    rank: Annotated[int | None, ranged(SIZE, help="Rank of the adapter; default: as it was trained.")] = None,
    as_json: Json = False,
) -> None:
    """Write what fine-tuning with LoRA changed as a sentence adapter."""
    done = extract_adapter(tuned, base, out, rank=rank)
    if as_json:
        print(json.dumps(done.to_dict()))
        return
    print(f"saved {printable(str(done.path))} (rank {done.rank}; misses {done.missed:.2%} of what was trained)")


@app.command("merge")
def merge(
    model: Annotated[str, typer.Argument(metavar="DIR", help="Model directory with a sentence adapter.")],
    out: Annotated[Path, typer.Option(metavar="OUT", help="Directory of the sentence encoder.")],
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Merge the adapter of a model into its weights: a sentence encoder that sentence-transformers loads too."""
    done = merge_adapter(model, out, overwrite=overwrite)
    print(json.dumps({"path": str(done)}) if as_json else f"saved {printable(str(done))}")
