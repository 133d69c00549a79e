"""`larvatus isotropy fit|show`: how much all vectors point the same way, and the standardisation that undoes it.

larvatus isotropy fit --model runs/mine --corpus text/ --name default
larvatus isotropy show --model runs/mine --corpus held_out.txt --standardise default --plot isotropy.png
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from larvatus.cli.counting import Counting
from larvatus.cli.options import Json, Language, ModelName, OnBad, Sentences, Split, TextField
from larvatus.embed.fit import FitOptions, fit_standardiser
from larvatus.embed.options import Pool, Unit
from larvatus.embed.passages import PassageOptions
from larvatus.embed.standardise import SUFFIX, standardiser_path
from larvatus.errors import ArtefactError, UsageError
from larvatus.model import load
from larvatus.text.readers import ReadOptions

app = typer.Typer(
    help="Anisotropy of a model's layers; standardised vectors (z-scores, by dimension).", no_args_is_help=True
)
Corpus = Annotated[list[str], typer.Option("--corpus", help="Text: a file, directory or glob; repeatable.")]
UnitChoice = Annotated[Unit, typer.Option(help="token, word (serves spans too) or sentence.")]
PoolChoice = Annotated[Pool, typer.Option(help="Words: mean, sum, max, first, last. Sentences: mean, max, cls.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]


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
    most: Annotated[int | None, typer.Option(help="Read about so many units and no more.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite the one of that name.")] = False,
    device: Device = "auto",
    language: Language = "en",
    sentences: Sentences = "library",
    on_bad: OnBad = "fail",
    split: Split = "blank-line",
    text_field: TextField = "text",
    as_json: Json = False,
) -> None:
    """Mean and spread of every dimension over a corpus, of all layers at once, saved with the model."""
    loaded = load(model, device=device)
    if out is not None and out.suffix != SUFFIX:
        raise UsageError(f"--out {out} must end in {SUFFIX}")
    path = out or standardiser_path(loaded.bundle.path, name)
    if path.exists() and not replace:
        raise ArtefactError(f"{path} is there already; choose another --name, or say --replace")
    reading = ReadOptions(split=split, text_field=text_field, on_bad=on_bad)
    options = FitOptions(
        unit=unit,
        pool=pool,
        most=most,
        passages=PassageOptions(reading=reading, sentences=sentences, language=language),
    )
    with Counting(f"{unit}s") as progress:
        fitted = fit_standardiser(
            loaded.encoder,
            loaded.tokenizer,
            corpus,
            options,
            name=path.name.removesuffix(SUFFIX),
            model=loaded.fingerprint,
            progress=progress,
        )
    fitted.save(path)
    layers, size = fitted.mean.shape
    if as_json:
        summary = {"path": str(path), "name": fitted.name, "unit": unit, "pool": pool, "count": fitted.count}
        print(json.dumps({**summary, "layers": layers - 1, "size": size, "sha256": fitted.checksum}, indent=2))
    else:
        print(f"{path}: {size} dimensions of {layers - 1} layers and the embeddings, over {fitted.count:,} {unit}s")
        print(
            f"next: larvatus embed TEXT --model {model} --unit {unit} --standardise {path if out else name} --out FILE"
        )
