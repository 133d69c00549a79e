"""What `compare` and `ablate` share: options, and how the results are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from rich.console import Console

from larvatus.core.errors import printable
from larvatus.core.outputs import has_matplotlib
from larvatus.evaluation.compare.compare import as_dict
from larvatus.evaluation.compare.plot import draw
from larvatus.evaluation.compare.results import ComparisonResults
from larvatus.evaluation.compare.table import as_table, fine_tuned_table
from larvatus.interfaces.cli.from_struct import Panel
from larvatus.interfaces.cli.options import MACHINE
from larvatus.interfaces.cli.quiet import is_quiet
from larvatus.interfaces.settings import BudgetSettings, CompareSettings, MachineSettings
from larvatus.training.engine.reporter import rich_table

PLOT = "compare.png"
WIDE = 240  # where there is no terminal whose width must be kept
_HELP = {
    "steps": "Train each this many steps.",
    "tokens": "Train each on this many tokens of its own vocabulary.",
    "epochs": "Have each read the text this many times: equal text, not equal tokens.",
    "minutes": "Train each for this long: measured, then fixed as steps.",
}

Compared = Annotated[CompareSettings, Panel("The runs", first=("size", "seeds"))]
EqualBudget = Annotated[BudgetSettings, Panel("How long", first=("minutes",), help=_HELP)]
Machine = Annotated[MachineSettings, Panel(MACHINE, without=("deterministic", "rank_timeout"))]


def show(results: ComparisonResults, out: Path, *, as_json: bool) -> None:
    """The table (or JSON) goes to standard output, and the plot beside the runs."""
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
        return "; no plot was drawn: that wants matplotlib, pip install 'larvatus[plots]'"
    return f" · plot: {path}" if draw(results, path) else "; no plot was drawn: nothing was evaluated on the way"
