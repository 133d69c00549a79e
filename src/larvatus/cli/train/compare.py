"""`larvatus compare`: several recipes on the same text under the same budget, in one table.

larvatus compare bert,roberta,spanbert --size tiny --corpus my_texts/ --out runs/compare --minutes 10
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from larvatus.cli.options import (
    Device,
    Encoding,
    Json,
    LanguageField,
    Languages,
    Licence,
    OnBad,
    Sentences,
    Size,
    Split,
    TextField,
    encoding_of,
    text_of,
)
from larvatus.cli.train import comparing as shared
from larvatus.engine.settings import Budget, Runtime
from larvatus.evaluate.compare import Comparison, contestants_of
from larvatus.pretrain.prepare import TextOptions
from larvatus.text.readers import ReadOptions


def compare(
    recipes: Annotated[str, typer.Argument(help="Names or TOML files with commas between: bert,roberta,mine.toml.")],
    out: Annotated[Path, typer.Option(help="Where the runs, the table and the plot go.")],
    corpus: Annotated[
        list[str] | None, typer.Option(help="Text (files, folders, globs, -), or a built corpus; repeatable.")
    ] = None,
    size: Size = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="field=value for all, or bert:field=value for one of them.")
    ] = None,
    tokens: shared.Tokens = None,
    minutes: shared.Minutes = None,
    steps: shared.Steps = None,
    valid: shared.Valid = None,
    seed: shared.Seed = 0,
    seeds: shared.Seeds = None,
    resume: shared.Resume = False,
    as_json: Json = False,
    device: Device = "auto",
    precision: shared.Precision = "auto",
    compile: shared.Compile = None,
    microbatch: shared.Microbatch = None,
    workers: shared.Workers = None,
    languages: Languages = None,
    sentences: Sentences = "library",
    split: Split = "blank-line",
    on_bad: OnBad = "fail",
    encoding: Encoding = None,
    text_field: TextField = "text",
    language_field: LanguageField = None,
    licence: Licence = "",
) -> None:
    """Train several recipes on the same text under the same budget, and show them in one table and a plot."""
    text, language = text_of(corpus, languages, option="--corpus PATH")
    reading = ReadOptions(
        encoding=encoding_of(encoding), split=split, on_bad=on_bad, text_field=text_field, language_field=language_field
    )
    plan = Comparison(
        contestants=contestants_of(recipes, size=size, settings=settings or []),
        corpus=text,
        out=out,
        budget=Budget(tokens=tokens, minutes=minutes, steps=steps),
        seeds=shared.seeds_of(seed, seeds),
        valid=valid,
        options=TextOptions(reading=reading, language=language, sentences=sentences, licence=licence),
        runtime=Runtime.here(
            device=device, precision=precision, compile=compile, microbatch=microbatch, workers=workers
        ),
        resume=resume,
    )
    shared.compare_and_show(plan, as_json=as_json)
