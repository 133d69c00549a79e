"""`larvatus bench`: how fast this machine is with these models, and how that grows.

larvatus bench --recipe bert --size base
larvatus bench --model runs/mine --no-peers --json
larvatus bench --grow length --plot length.png
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from larvatus.core.errors import UsageError
from larvatus.core.outputs import check_outputs, require_matplotlib
from larvatus.evaluation.speed.plot import draw, draw_growth
from larvatus.evaluation.speed.results import lines, tables
from larvatus.evaluation.speed.scaling import ScalingResult, table
from larvatus.interfaces.api.benchmarking import run_bench
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.options import MACHINE, Json, Overwrite
from larvatus.interfaces.cli.progress import Quiet, is_quiet
from larvatus.interfaces.settings import BenchSettings, MachineSettings
from larvatus.training.engine.reporter import Reporter, rich_table


@from_structs
def bench(
    chosen: Annotated[BenchSettings, Panel(None)],
    machine: Annotated[MachineSettings, Panel(MACHINE, without=("rank_timeout",))],
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it: bench.png.")] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure this machine: matrix ceiling, training, embedding, loader, memory and installed peers; or --grow."""
    if plot is not None:
        if plot.suffix != ".png":
            raise UsageError(f"--plot {plot} must end in .png")
        require_matplotlib()
    read = [] if chosen.model is None else [chosen.model]
    check_outputs(plot, overwrite=overwrite, inputs=[chosen.corpus, *read])
    result = run_bench(chosen, machine, Reporter.on_stream(quiet=is_quiet(), stderr=True))
    if plot is not None:
        if isinstance(result, ScalingResult):
            draw_growth(result, plot)
        else:
            draw(result, plot)
    if as_json:
        print(json.dumps(result.to_dict()))
        return
    console = Console(soft_wrap=True, highlight=False, markup=False)
    if isinstance(result, ScalingResult):
        console.print(f"{result.machine.name}: {result.machine.device}, {result.machine.precision}")
        console.print(rich_table(table(result)))
        return
    for line in lines(result):
        console.print(line)
    for each in tables(result):
        console.print()
        console.print(rich_table(each))
