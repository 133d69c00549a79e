"""`larvatus compare` and `larvatus ablate`: recipes, or variants of one, on the same text under the same budget.

larvatus compare bert,roberta,spanbert --size tiny --corpus my_texts/ --out runs/compare --minutes 10
larvatus ablate masking-rate --size tiny --corpus my_texts/ --out runs/rates --minutes 5
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from larvatus.core.errors import UsageError, printable
from larvatus.core.outputs import has_matplotlib
from larvatus.evaluation.compare.compare import as_dict
from larvatus.evaluation.compare.plot import draw
from larvatus.evaluation.compare.results import ComparisonResults, as_table, fine_tuned_table
from larvatus.evaluation.compare.runs import ablation_names, read_ablation
from larvatus.interfaces.api.comparing import ComparisonSettings, ablation_candidates, recipe_candidates, run_comparison
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.options import MACHINE, Json, MixedReading, MixedText
from larvatus.interfaces.cli.output import Quiet, is_quiet
from larvatus.interfaces.settings import BudgetSettings, CompareSettings, MachineSettings
from larvatus.training.engine.reporter import Reporter, rich_table

PLOT = "compare.png"
WIDE = 240  # where there is no terminal whose width must be kept
_HELP = {
    "steps": "Train each this many steps.",
    "tokens": "Train each on this many tokens of its own vocabulary.",
    "epochs": "Train each on this many epochs of the text: equal text, not equal tokens.",
    "minutes": "Train each for this long: measured, then converted to steps.",
}

Compared = Annotated[CompareSettings, Panel("The runs", first=("size", "seeds"))]
EqualBudget = Annotated[BudgetSettings, Panel("How long", first=("minutes",), help=_HELP)]
Machine = Annotated[MachineSettings, Panel(MACHINE, without=("deterministic", "rank_timeout"))]


@from_structs
def compare(
    recipes: Annotated[str, typer.Argument(help="Names or TOML files, separated by commas: bert,roberta,mine.toml.")],
    text: MixedText,
    out: Annotated[Path, typer.Option(help="Directory of the runs, the table and the plot.")],
    chosen: Compared,
    time: EqualBudget,
    machine: Machine,
    reading: MixedReading,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train several recipes on the same text under the same budget, and show them in one table and a plot."""
    given, how = text.read_with(reading)
    settings = ComparisonSettings(chosen, time, machine, how)
    reporter = Reporter.on_stream(quiet=is_quiet(), stderr=as_json)
    candidates = recipe_candidates(recipes, chosen)
    results = run_comparison(candidates, settings, corpus=given, out=out, then=chosen.then, reporter=reporter)
    show(results, out, as_json=as_json)


def show(results: ComparisonResults, out: Path, *, as_json: bool) -> None:
    """Print the table or JSON on standard output, and write the plot next to the runs."""
    console = Console(stderr=as_json, markup=False, emoji=False, highlight=False)
    if as_json:
        print(json.dumps(as_dict(results)))
    else:
        wide = console if console.is_terminal else Console(width=WIDE, highlight=False)
        if not is_quiet():
            wide.print()
        wide.print(rich_table(as_table(results)))
        if (tuned := fine_tuned_table(results)) is not None:
            wide.print()
            wide.print(rich_table(tuned))
    results_and_plot = f"results: {out / 'results.json'}{_plot(out, results)}"
    console.print(printable(results_and_plot), soft_wrap=True, markup=False)


def _plot(out: Path, results: ComparisonResults) -> str:
    path = out / PLOT
    if not has_matplotlib():
        return "; no plot was drawn: it needs matplotlib, pip install 'larvatus[plots]'"
    return f" · plot: {path}" if draw(results, path) else "; no plot was drawn: nothing was evaluated on the way"


@from_structs
def ablate(
    text: MixedText,
    chosen: Compared,
    time: EqualBudget,
    machine: Machine,
    reading: MixedReading,
    name: Annotated[str | None, typer.Argument(help="Name of the ablation; without it, all are listed.")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the runs, the table and the plot.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Recipe to vary; default: that of the paper.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Repeat a published ablation on your own text: variants of one recipe, everything else equal."""
    if name is None:
        _list(as_json)
        return
    ablation = read_ablation(name)
    if not (text.corpus or text.languages) or out is None:
        raise UsageError(f"larvatus ablate {name} needs text and an output: --corpus my_texts/ --out runs/{name}")
    given, how = text.read_with(reading)
    settings = ComparisonSettings(chosen, time, machine, how)
    reporter = Reporter.on_stream(quiet=is_quiet(), stderr=as_json)
    candidates = ablation_candidates(name, chosen, recipe=recipe, then=chosen.then)
    results = run_comparison(candidates, settings, corpus=given, out=out, then=chosen.then, reporter=reporter)
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
