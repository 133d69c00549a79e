"""`larvatus embed FILES… --model DIR --out vectors.parquet`: contextual vectors of a corpus, in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from larvatus.core.outputs import check_outputs
from larvatus.core.signals import resumable
from larvatus.inference.vectors.bulk import BulkSummary
from larvatus.inference.vectors.layers import layers_label, layers_name
from larvatus.inference.vectors.parts import BulkProgress
from larvatus.interfaces.api.vectors import EmbedSettings, run_embedding
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.options import Bulk, Json, Machine, ModelName, Reading
from larvatus.interfaces.cli.progress import ProgressReporter, Quiet
from larvatus.interfaces.cli.tables import print_json

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
