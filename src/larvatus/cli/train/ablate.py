"""`larvatus ablate`: the published ablations, one command each; without a name, the list of them.

larvatus ablate masking-rate --size tiny --corpus my_texts/ --out runs/rates --minutes 5
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from larvatus.cli.options import (
    Device,
    Encoding,
    Json,
    LanguageField,
    Languages,
    Licence,
    OnBad,
    Sentences,
    Set,
    Size,
    Split,
    TextField,
    encoding_of,
    text_of,
)
from larvatus.cli.train import comparing as shared
from larvatus.engine.settings import Budget, Runtime
from larvatus.errors import UsageError
from larvatus.evaluate.ablations import ablation_names, read_ablation
from larvatus.evaluate.compare import Comparison
from larvatus.pretrain.prepare import TextOptions
from larvatus.text.readers import ReadOptions


def ablate(
    name: Annotated[str | None, typer.Argument(help="Which one; without it they are listed.")] = None,
    corpus: Annotated[list[str] | None, typer.Option(help="Text, or a built corpus; repeatable.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where the runs, the table and the plot go.")] = None,
    recipe: Annotated[str | None, typer.Option(help="What is varied; else what the paper varied.")] = None,
    size: Size = None,
    settings: Set = None,
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
    """Repeat a published ablation on your own text: variants of one recipe, everything else equal."""
    if name is None:
        _list(as_json)
        return
    ablation = read_ablation(name)
    if not (corpus or languages) or out is None:
        raise UsageError(f"larvatus ablate {name} wants text and a place: --corpus my_texts/ --out runs/{name}")
    text, language = text_of(corpus, languages, option="--corpus PATH")
    reading = ReadOptions(
        encoding=encoding_of(encoding), split=split, on_bad=on_bad, text_field=text_field, language_field=language_field
    )
    plan = Comparison(
        contestants=ablation.contestants(recipe=recipe, size=size, settings=settings or []),
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
    if not as_json:
        Console(highlight=False).print(f"published ({ablation.paper}): {ablation.finding}", soft_wrap=True)


def _list(as_json: bool) -> None:
    ablations = [read_ablation(name) for name in ablation_names()]
    if as_json:
        print(json.dumps(msgspec.to_builtins(ablations)))
        return
    console = Console(highlight=False)
    for ablation in ablations:
        console.print(f"[bold]{ablation.name}[/]  {ablation.about} ({ablation.recipe})", soft_wrap=True)
        console.print("  " + " · ".join(variant.label for variant in ablation.variants), soft_wrap=True)
        console.print(f"  {ablation.paper}: {ablation.finding}\n", style="dim", soft_wrap=True)
