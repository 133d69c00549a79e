"""`larvatus audit bias|leaks|toxicity`: what a model learnt that it should not show.

larvatus audit leaks --model runs/mine --members in.jsonl --held-out out.jsonl
"""

from __future__ import annotations

import typer

from larvatus.cli.audit.leaks import leaks, split
from larvatus.cli.audit.toxicity import toxicity

app = typer.Typer(help="What a model learnt that it should not show: bias, leaks, toxicity.", no_args_is_help=True)
app.command("leaks")(leaks)
app.command("split")(split)
app.command("toxicity")(toxicity)
