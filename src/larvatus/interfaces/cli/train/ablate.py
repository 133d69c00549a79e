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

from larvatus.core.errors import UsageError
from larvatus.evaluation.compare.ablations import ablation_names, read_ablation
from larvatus.interfaces.api.comparing import ComparisonSettings, run_ablation
from larvatus.interfaces.cli.from_struct import from_structs
from larvatus.interfaces.cli.options import Json, MixedReading, MixedText
from larvatus.interfaces.cli.quiet import Quiet, is_quiet
from larvatus.interfaces.cli.train.comparing import Compared, EqualBudget, Machine, show
from larvatus.training.engine.reporter import Reporter


@from_structs
def ablate(
    text: MixedText,
    chosen: Compared,
    time: EqualBudget,
    machine: Machine,
    reading: MixedReading,
    name: Annotated[str | None, typer.Argument(help="Which one; without it they are listed.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where the runs, the table and the plot go.")] = None,
    recipe: Annotated[str | None, typer.Option(help="What is varied; else what the paper varied.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Repeat a published ablation on your own text: variants of one recipe, everything else equal."""
    if name is None:
        _list(as_json)
        return
    ablation = read_ablation(name)
    if not (text.corpus or text.languages) or out is None:
        raise UsageError(f"larvatus ablate {name} wants text and a place: --corpus my_texts/ --out runs/{name}")
    given, how = text.read_with(reading)
    settings = ComparisonSettings(chosen, time, machine, how)
    reporter = Reporter.on_stream(quiet=is_quiet(), stderr=as_json)
    results = run_ablation(name, settings, corpus=given, out=out, recipe=recipe, then=chosen.then, reporter=reporter)
    show(results, out, as_json=as_json)
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
