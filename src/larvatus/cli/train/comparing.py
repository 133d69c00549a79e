"""What `compare` and `ablate` share: options, and how the results are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from larvatus.cli.numbers import MICROBATCH, MINUTES, TOKENS, WORKERS, numbers_of, ranged
from larvatus.engine.watch import Watcher
from larvatus.errors import printable
from larvatus.evaluate.compare import Comparison, as_dict, compare
from larvatus.evaluate.plot import draw
from larvatus.evaluate.results import Results
from larvatus.evaluate.table import as_table
from larvatus.plots import can_draw
from larvatus.ranges import SEED, STEPS

PLOT = "compare.png"
WIDE = 240  # where there is no terminal whose width must be kept

Steps = Annotated[int | None, ranged(STEPS, help="Train each this many steps.")]
Tokens = Annotated[int | None, ranged(TOKENS, help="Train each on this many tokens.")]
Minutes = Annotated[float | None, ranged(MINUTES, help="Train each for this long: measured, then fixed as steps.")]
Valid = Annotated[str | None, typer.Option(help="Held-out text; else every 50th document, or passages of few.")]
Seed = Annotated[int, ranged(SEED, help="All randomness follows from it.")]
Seeds = Annotated[str | None, typer.Option(help="Several, such as 1,2,3: the table shows mean ± deviation.")]
Resume = Annotated[bool, typer.Option("--resume", help="Take finished runs as they are, go on with the others.")]
Precision = Annotated[str, typer.Option(help="fp32, bf16, or auto.")]
Compile = Annotated[bool | None, typer.Option(help="Compile the step (auto: on CUDA).")]
Microbatch = Annotated[int | None, ranged(MICROBATCH, help="Tokens of one forward pass.")]
Workers = Annotated[int | None, ranged(WORKERS, help="Processes that pack and mask ahead, up to 4 a core.")]


def seeds_of(seed: int, seeds: str | None) -> tuple[int, ...]:
    """`--seeds 1,2,3`, or the one of `--seed`."""
    if seeds is None:
        return (seed,)
    return numbers_of(seeds, SEED, option="--seeds")


def compare_and_show(plan: Comparison, *, as_json: bool) -> None:
    """Carry out a comparison; the table (or JSON) goes to standard output, and the plot beside the runs."""
    console = Console(stderr=as_json, markup=False, emoji=False, highlight=False)
    results = compare(plan, Watcher(console))
    if as_json:
        print(json.dumps(as_dict(results)))
    else:
        wide = console if console.is_terminal else Console(width=WIDE, highlight=False)
        wide.print()
        wide.print(as_table(results))
    results_and_plot = f"results: {plan.out / 'results.json'}{_plot(plan, results)}"
    console.print(printable(results_and_plot), soft_wrap=True, markup=False)


def _plot(plan: Comparison, results: Results) -> str:
    path: Path = plan.out / PLOT
    if not can_draw():
        return "; no plot was drawn: that wants matplotlib, pip install 'larvatus[plots]'"
    return f" · plot: {path}" if draw(results, path) else "; no plot was drawn: nothing was evaluated on the way"
