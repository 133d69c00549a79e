"""`larvatus audit`: what a model learnt that it should not show.

larvatus audit bias --model runs/mine --pairs crows_pairs.csv --winobias winobias/ --out audit/
"""

from __future__ import annotations

import typer

from larvatus.cli.audit.bias import bias

app = typer.Typer(help="What a model learnt that it should not show: bias.", no_args_is_help=True)
app.command("bias")(bias)
