"""`larvatus isotropy fit|show`: how much all vectors point the same way, and the standardisation that undoes it.

larvatus isotropy fit --model runs/mine --corpus text/ --name default
larvatus isotropy show --model runs/mine --corpus held_out.txt --standardise default --plot isotropy.png
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from larvatus.core.errors import printable
from larvatus.core.outputs import check_outputs
from larvatus.core.tables import Column, Table
from larvatus.inference.interpret.frequency import FrequencyEffect
from larvatus.inference.interpret.isotropy import Isotropy, IsotropyOptions, IsotropyReport, draw_isotropy
from larvatus.inference.model import load
from larvatus.inference.vectors.standardise_fit import FitOptions
from larvatus.interfaces.api.interpretation import run_isotropy, run_standardiser_fit, standardiser_file
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.options import (
    Device,
    Json,
    ModelName,
    NamedModel,
    Overwrite,
    Reading,
    Standardise,
    check_plot,
)
from larvatus.interfaces.cli.output import Quiet, hint, reading_text, show_part

app = typer.Typer(
    help="Measure the anisotropy of a model's layers, and standardise vectors (z-scores per dimension).",
    no_args_is_help=True,
)
Corpus = Annotated[list[str], typer.Option("--corpus", help="Text: a file, directory or glob; repeatable.")]
_POOL = "Words: mean, sum, max, first, last. Sentences: mean, max, cls."
_PUNCTUATION = "Commas and full stops are words too."
Fitted = Annotated[
    FitOptions,
    Panel(
        without=("passages",),
        help={
            "unit": "token, word (serves spans too) or sentence.",
            "pool": _POOL,
            "punctuation": _PUNCTUATION,
            "most": "Most words, of passages sampled at random; all by default.",
        },
    ),
]
Measured = Annotated[
    IsotropyOptions,
    Panel(
        without=("passages", "seed"),
        help={
            "pool": _POOL,
            "punctuation": _PUNCTUATION,
            "most": "Word instances, of random passages from all the text.",
            "rogue": "Rogue dimensions to name.",
            "shrinkage": "Of IsoScore*, 0 to 1: for few words and many dimensions.",
        },
    ),
]


@app.command("fit")
@from_structs
def fit(
    model: NamedModel,
    corpus: Corpus,
    chosen: Fitted,
    reading: Reading,
    name: Annotated[str, typer.Option(help="Name for --standardise NAME.")] = "default",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A .safetensors file elsewhere, if the model directory cannot be written."),
    ] = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Mean and spread of every dimension over a corpus, of all layers at once, saved with the model."""
    loaded = load(model, device=device)
    path, unit = standardiser_file(loaded, name, out), chosen.unit
    with reading_text(f"{unit}s") as (progress, skipped):
        fitted = run_standardiser_fit(
            loaded, corpus, chosen, reading, path=path, overwrite=overwrite, progress=progress, skipped=skipped
        )
    layers, size = fitted.mean.shape
    if as_json:
        summary = {"path": str(path), "name": fitted.name, "unit": unit, "pool": chosen.pool, "count": fitted.count}
        print(json.dumps({**summary, "layers": layers - 1, "size": size, "sha256": fitted.checksum}, indent=2))
    else:
        over = f"over {fitted.count:,} {unit}s"
        print(f"{printable(str(path))}: {size} dimensions of {layers - 1} layers and the embeddings, {over}")
        hint(
            f"next: larvatus embed TEXT --model {model} --unit {unit} --standardise {path if out else name} --out FILE"
        )


@app.command("show")
@from_structs
def show(
    model: ModelName,
    corpus: Corpus,
    chosen: Measured,
    reading: Reading,
    standardise: Standardise = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Picture to draw, such as isotropy.png.")] = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Anisotropy, rogue dimensions, IsoScore* and frequency effect of all layers; before and after --standardise."""
    check_plot(plot)
    check_outputs(plot, overwrite=overwrite, inputs=[model, *corpus])
    loaded = load(model, device=device)
    with reading_text("words") as (progress, skipped):
        report = run_isotropy(
            loaded, corpus, chosen, reading, standardise=standardise, progress=progress, skipped=skipped
        )
    if plot is not None:
        draw_isotropy(report, plot, title=model)
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
        return
    console = Console(soft_wrap=True)
    show_part(console, _table(report, model))
    show_part(console, _frequencies(report))
    for line in _notes(report):
        console.print(line, highlight=False)


def _table(report: IsotropyReport, model: str) -> Table:
    said = f"{model}: {report.instances:,} word instances of {report.passages:,} passages"
    said += f"; below each layer with --standardise {report.standardise}" if report.standardise else ""
    rows = []
    for layer in report.layers:
        rows.append([f"{layer.layer}", *_cells(layer.plain)])
        if layer.standardised is not None:
            rows.append(["z", *_cells(layer.standardised)])
    rogue = Column("rogue dimensions", right=False)
    return Table(("layer", "expected cosine", "IsoScore*", "frequency ρ", rogue), rows, title=said, left=0)


def _cells(isotropy: Isotropy) -> list[str]:
    error = f" ± {isotropy.standard_error:.4f}"
    shares = abs(isotropy.expected) > 0.02
    rogue = ", ".join(
        f"{part.dimension} ({part.share:.0%})" if shares else f"{part.dimension} ({part.contribution:.4f})"
        for part in isotropy.rogue
    )
    frequency = f"{isotropy.frequency.spearman:+.2f}" if isotropy.frequency else "–"
    return [f"{isotropy.expected:.4f}{error}", f"{isotropy.isoscore:.4f}", frequency, rogue]


def _frequencies(report: IsotropyReport) -> Table:
    """Cosine by frequency, of the top layer."""
    top = report.layers[-1]
    title = f"cosine between instances of one word, layer {top.layer} (frequencies of {report.counted:,} words)"
    effects: list[FrequencyEffect] = [
        measured.frequency
        for measured in (top.plain, top.standardised)
        if measured is not None and measured.frequency is not None
    ]
    columns, rows = ("occurs", "words", "instances", "plain", "standardised")[: 3 + len(effects)], []
    for bins in zip(*(effect.bins for effect in effects), strict=True):
        first = bins[0]
        spread = f"{first.low:,.0f} to {first.high:,.0f}"
        rows.append([spread, f"{first.words:,}", f"{first.instances:,}", *(f"{each.similarity:.3f}" for each in bins)])
    return Table(columns, rows, title=title, left=0)


def _notes(report: IsotropyReport) -> list[str]:
    notes = []
    if report.instances < 2 * report.size:
        notes.append(
            f"note: {report.instances:,} instances for {report.size} dimensions make IsoScore* too low; "
            "name more text, or use --shrinkage 0.2"
        )
    effect = (report.layers[-1].standardised or report.layers[-1].plain).frequency
    if effect is not None and effect.spearman < -0.1:
        notes.append("note: instances of frequent words look less alike: there cosine underestimates similarity")
    return notes
