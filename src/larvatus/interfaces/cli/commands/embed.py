"""`larvatus embed`, `larvatus distil` and `larvatus adapter`: vectors of a corpus, static models, sentence adapters.

    larvatus embed texts/ --model runs/mine --out vectors.parquet
    larvatus distil static --model all-MiniLM-L6-v2 --out runs/static --corpus texts/ --size 128
    larvatus adapter extract runs/faq --base english --out faq-adapter
    larvatus adapter add faq-adapter --model runs/mine
    larvatus adapter merge runs/mine --out runs/mine-sentences

A static model has one vector for each token. An adapter gives sentence vectors to a model whose own weights stay as
they are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from larvatus.core.errors import printable
from larvatus.core.outputs import check_outputs
from larvatus.core.ranges import FACTOR, SIZE
from larvatus.core.signals import resumable
from larvatus.inference.model import load
from larvatus.inference.model.adapters import add_adapter, extract_adapter, merge_adapter
from larvatus.inference.vectors.bulk import BulkSummary
from larvatus.inference.vectors.distil import DistilOptions
from larvatus.inference.vectors.layers import layers_label, layers_name
from larvatus.inference.vectors.parts import BulkProgress
from larvatus.interfaces.api.distilling import run_static_distillation
from larvatus.interfaces.api.vectors import EmbedSettings, run_embedding
from larvatus.interfaces.cli.from_struct import Panel, from_structs, ranged
from larvatus.interfaces.cli.options import Bulk, Device, Json, Machine, ModelName, Overwrite, Reading
from larvatus.interfaces.cli.output import ProgressReporter, Quiet, hint, print_json, reading_text
from larvatus.models.bundle.sentence_adapter import AdapterPrecision

OF_VECTORS = "Which vectors"


@from_structs
def embed(
    paths: Annotated[list[str], typer.Argument(metavar="FILES...", help="Files, directories, globs, or - for stdin.")],
    model: ModelName,
    machine: Machine,
    out: Annotated[Path, typer.Option(metavar="FILE", help="vectors.parquet, .arrow, .safetensors or .npy.")],
    chosen: Annotated[EmbedSettings, Panel(OF_VECTORS, first=("unit", "layers", "pool", "resume"))],
    reading: Reading,
    bulk: Bulk,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write vectors of the words, sentences or documents of a corpus to a file. After a kill: --resume."""
    check_outputs(out, overwrite=chosen.overwrite or chosen.resume, inputs=[model, *paths])
    loaded = machine.load(model)
    with ProgressReporter(chosen.unit) as bar, resumable(lambda: _way_on(out)):

        def progress(done: BulkProgress) -> None:
            bar.continue_from(done.tokens)  # neither the interrupted run nor the first block is in the rate
            bar.show(f"{_counted(done)} · {bar.rate(done.tokens):,.0f} tokens/s")

        summary = run_embedding(loaded, paths, chosen, reading, bulk, out=out, progress=progress)
    if as_json:
        print_json(msgspec.to_builtins(summary))
    else:
        print(_sentence(summary, chosen.unit, layers_name(chosen.options(loaded).layers)))


def _way_on(out: Path) -> str:
    """How a run that was stopped continues."""
    kept = out.with_name(out.name + ".parts").exists()
    return f"the same command {'with --resume continues from what was written' if kept else 'starts it again'}"


def _counted(done: BulkProgress) -> str:
    return f"{done.documents:,} documents · {done.units:,} vectors · {done.tokens:,} tokens"


def _sentence(summary: BulkSummary, unit: str, layers: str) -> str:
    done = summary.counts
    more = f" in {done.windows:,} windows" if done.windows > done.pieces else ""
    more += f" · {done.missing:,} {unit}s have none (the vocabulary deletes them)" if done.missing else ""
    more += f" · {summary.resumed:,} written before the interruption" if summary.resumed else ""
    more += "".join(f" · skipped {count:,} {reason}" for reason, count in summary.skipped.items())
    of = "" if layers == "last" else f" · {layers_label(layers)}"
    return f"{summary.path}: {_counted(done)} read to the end{more} · {summary.size} numbers a {unit}{of}"


# `larvatus distil`.

distil_app = typer.Typer(
    help="Make a small static model from a sentence encoder: one vector for each token.", no_args_is_help=True
)


@distil_app.callback()
def distil() -> None:
    """Keeps `static` a subcommand."""


@distil_app.command("static")
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


# `larvatus adapter`.

adapter_app = typer.Typer(
    help="Add a sentence adapter to a model, extract one, or merge it into the weights.", no_args_is_help=True
)


@adapter_app.command("add")
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


@adapter_app.command("extract")
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


@adapter_app.command("merge")
def merge(
    model: Annotated[str, typer.Argument(metavar="DIR", help="Model directory with a sentence adapter.")],
    out: Annotated[Path, typer.Option(metavar="OUT", help="Directory of the sentence encoder.")],
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Merge the adapter of a model into its weights: a sentence encoder that sentence-transformers loads too."""
    done = merge_adapter(model, out, overwrite=overwrite)
    print(json.dumps({"path": str(done)}) if as_json else f"saved {printable(str(done))}")
