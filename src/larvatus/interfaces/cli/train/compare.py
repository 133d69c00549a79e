"""`larvatus compare`: several recipes on the same text under the same budget, in one table.

larvatus compare bert,roberta,spanbert --size tiny --corpus my_texts/ --out runs/compare --minutes 10
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from larvatus.interfaces.api.comparing import ComparisonSettings, run_comparison
from larvatus.interfaces.cli.from_struct import from_structs
from larvatus.interfaces.cli.options import Json, MixedReading, MixedText
from larvatus.interfaces.cli.quiet import Quiet, is_quiet
from larvatus.interfaces.cli.train.comparing import Compared, EqualBudget, Machine, show
from larvatus.training.engine.reporter import Reporter


@from_structs
def compare(
    recipes: Annotated[str, typer.Argument(help="Names or TOML files with commas between: bert,roberta,mine.toml.")],
    text: MixedText,
    out: Annotated[Path, typer.Option(help="Where the runs, the table and the plot go.")],
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
    results = run_comparison(recipes, settings, corpus=given, out=out, then=chosen.then, reporter=reporter)
    show(results, out, as_json=as_json)
