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
from rich.markup import escape
from rich.table import Table

from larvatus.cli.left_out import say_left_out
from larvatus.cli.numbers import INSTANCES, ranged
from larvatus.cli.options import (
    Device,
    Encoding,
    Json,
    Language,
    ModelName,
    OnBad,
    Overwrite,
    Sentences,
    Split,
    Standardise,
    TextField,
    encoding_of,
)
from larvatus.cli.text.counting import Counting
from larvatus.embed.options import Pool, Unit
from larvatus.embed.passages import PassageOptions
from larvatus.embed.standardise.fit import FitOptions, fit_standardiser
from larvatus.embed.standardise.standardise import SUFFIX, standardiser_path
from larvatus.errors import UsageError, printable
from larvatus.model import load
from larvatus.outputs import check_outputs
from larvatus.plots import check_can_draw
from larvatus.probe.frequency import FrequencyEffect
from larvatus.probe.isotropy import Isotropy, IsotropyOptions, IsotropyReport, measure_isotropy
from larvatus.probe.isotropy_plot import draw
from larvatus.ranges import COUNT_OR_NONE, SHARE
from larvatus.text.readers import ReadOptions, Skipped

app = typer.Typer(
    help="Anisotropy of a model's layers; standardised vectors (z-scores, by dimension).", no_args_is_help=True
)
Corpus = Annotated[list[str], typer.Option("--corpus", help="Text: a file, directory or glob; repeatable.")]
UnitChoice = Annotated[Unit, typer.Option(help="token, word (serves spans too) or sentence.")]
PoolChoice = Annotated[Pool, typer.Option(help="Words: mean, sum, max, first, last. Sentences: mean, max, cls.")]
Punctuation = Annotated[bool, typer.Option("--punctuation", help="Commas and full stops are words too.")]


@app.command("fit")
def fit(
    model: ModelName,
    corpus: Corpus,
    name: Annotated[str, typer.Option(help="What it will be called: --standardise NAME.")] = "default",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .safetensors elsewhere, if the model cannot be written.")
    ] = None,
    unit: UnitChoice = "word",
    pool: PoolChoice = "mean",
    punctuation: Punctuation = False,
    most: Annotated[
        int | None, ranged(INSTANCES, help="Passages of about so many words, by lot; all by default.")
    ] = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    language: Language = "en",
    sentences: Sentences = "library",
    on_bad: OnBad = "fail",
    encoding: Encoding = None,
    split: Split = "blank-line",
    text_field: TextField = "text",
    as_json: Json = False,
) -> None:
    """Mean and spread of every dimension over a corpus, of all layers at once, saved with the model."""
    loaded = load(model, device=device)
    if out is not None and out.suffix != SUFFIX:
        raise UsageError(f"--out {out} must end in {SUFFIX}")
    path = out or standardiser_path(loaded.bundle.path, name)
    check_outputs(path, overwrite=overwrite, inputs=corpus, parents=True)
    reading = ReadOptions(encoding=encoding_of(encoding), split=split, text_field=text_field, on_bad=on_bad)
    options = FitOptions(
        unit=unit,
        pool=pool,
        punctuation=punctuation,
        most=most,
        passages=PassageOptions(reading=reading, sentences=sentences, language=language),
    )
    skipped = Skipped()
    with Counting(f"{unit}s") as progress:
        fitted = fit_standardiser(
            loaded.encoder,
            loaded.tokenizer,
            corpus,
            options,
            name=path.name.removesuffix(SUFFIX),
            model=loaded.fingerprint,
            progress=progress,
            skipped=skipped,
        )
    say_left_out(skipped)
    fitted.save(path)
    layers, size = fitted.mean.shape
    if as_json:
        summary = {"path": str(path), "name": fitted.name, "unit": unit, "pool": pool, "count": fitted.count}
        print(json.dumps({**summary, "layers": layers - 1, "size": size, "sha256": fitted.checksum}, indent=2))
    else:
        over = f"over {fitted.count:,} {unit}s"
        print(f"{printable(str(path))}: {size} dimensions of {layers - 1} layers and the embeddings, {over}")
        print(
            f"next: larvatus embed TEXT --model {model} --unit {unit} --standardise {path if out else name} --out FILE"
        )


@app.command("show")
def show(
    model: ModelName,
    corpus: Corpus,
    standardise: Standardise = None,
    pool: PoolChoice = "mean",
    punctuation: Punctuation = False,
    most: Annotated[int, ranged(INSTANCES, help="Word instances, of passages by lot from all the text.")] = 20_000,
    rogue: Annotated[int, ranged(COUNT_OR_NONE, help="Rogue dimensions to name.")] = 3,
    shrinkage: Annotated[float, ranged(SHARE, help="Of IsoScore*, 0 to 1: for few words and many dimensions.")] = 0.0,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it: isotropy.png.")] = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    language: Language = "en",
    sentences: Sentences = "library",
    on_bad: OnBad = "fail",
    encoding: Encoding = None,
    split: Split = "blank-line",
    text_field: TextField = "text",
    as_json: Json = False,
) -> None:
    """Anisotropy, rogue dimensions, IsoScore* and frequency effect of all layers; before and after --standardise."""
    if plot is not None and plot.suffix != ".png":
        raise UsageError(f"--plot {plot} must end in .png")
    if plot is not None:
        check_can_draw()
    check_outputs(plot, overwrite=overwrite, inputs=[model, *corpus])
    loaded = load(model, device=device)
    reading = ReadOptions(encoding=encoding_of(encoding), split=split, text_field=text_field, on_bad=on_bad)
    options = IsotropyOptions(
        pool=pool,
        punctuation=punctuation,
        most=most,
        rogue=rogue,
        shrinkage=shrinkage,
        passages=PassageOptions(reading=reading, sentences=sentences, language=language),
    )
    fitted = loaded.standardiser(standardise)
    skipped = Skipped()
    with Counting("words") as progress:
        report = measure_isotropy(
            loaded.encoder, loaded.tokenizer, corpus, options, standardise=fitted, progress=progress, skipped=skipped
        )
    say_left_out(skipped)
    if plot is not None:
        draw(report, plot, title=model)
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
        return
    console = Console(soft_wrap=True)
    console.print(_table(report, model))
    console.print(_frequencies(report))
    for line in _notes(report):
        console.print(line, highlight=False)


def _table(report: IsotropyReport, model: str) -> Table:
    said = f"{model}: {report.instances:,} word instances of {report.passages:,} passages"
    said += f"; below each layer with --standardise {report.standardise}" if report.standardise else ""
    table = Table(title=escape(said), title_justify="left", box=None, pad_edge=False)
    for name in ("layer", "expected cosine", "IsoScore*", "frequency ρ"):
        table.add_column(name, justify="right")
    table.add_column("rogue dimensions")
    for layer in report.layers:
        table.add_row(f"{layer.layer}", *_cells(layer.plain))
        if layer.standardised is not None:
            table.add_row("z", *_cells(layer.standardised))
    return table


def _cells(found: Isotropy) -> list[str]:
    error = f" ± {found.standard_error:.4f}"
    shares = abs(found.expected) > 0.02
    rogue = ", ".join(
        f"{one.dimension} ({one.share:.0%})" if shares else f"{one.dimension} ({one.contribution:.4f})"
        for one in found.rogue
    )
    frequency = f"{found.frequency.spearman:+.2f}" if found.frequency else "–"
    return [f"{found.expected:.4f}{error}", f"{found.isoscore:.4f}", frequency, rogue]


def _frequencies(report: IsotropyReport) -> Table:
    """Of the top layer."""
    top = report.layers[-1]
    title = f"cosine between instances of one word, layer {top.layer} (frequencies of {report.counted:,} words)"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    effects: list[FrequencyEffect] = [
        one.frequency for one in (top.plain, top.standardised) if one is not None and one.frequency is not None
    ]
    for name in ("occurs", "words", "instances", "plain", "standardised")[: 3 + len(effects)]:
        table.add_column(name, justify="right")
    for bins in zip(*(effect.bins for effect in effects), strict=True):
        first = bins[0]
        spread = f"{first.low:,.0f} to {first.high:,.0f}"
        table.add_row(spread, f"{first.words:,}", f"{first.instances:,}", *(f"{one.similarity:.3f}" for one in bins))
    return table


def _notes(report: IsotropyReport) -> list[str]:
    notes = []
    if report.instances < 2 * report.size:
        notes.append(
            f"note: {report.instances:,} instances for {report.size} dimensions make IsoScore* too low; "
            "name more text, or say --shrinkage 0.2"
        )
    effect = (report.layers[-1].standardised or report.layers[-1].plain).frequency
    if effect is not None and effect.spearman < -0.1:
        notes.append("note: instances of frequent words look less alike: there cosine underestimates similarity")
    return notes
