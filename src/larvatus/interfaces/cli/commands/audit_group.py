"""`larvatus audit`: what a model learnt that it should not show.

larvatus audit bias --model runs/mine --pairs crows_pairs.csv --winobias winobias/ --out audit/
larvatus audit leaks --model runs/mine --members in.jsonl --held-out out.jsonl
"""

from __future__ import annotations

import typer

from larvatus.interfaces.cli.commands.audit import bias
from larvatus.interfaces.cli.commands.audit_leaks import leaks, split
from larvatus.interfaces.cli.commands.audit_toxicity import toxicity

app = typer.Typer(help="What a model learnt that it should not show: bias, leaks, toxicity.", no_args_is_help=True)
app.command("bias")(bias)
app.command("leaks")(leaks)
app.command("split")(split)
app.command("toxicity")(toxicity)
