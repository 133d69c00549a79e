"""`larvatus audit toxicity`: what a model puts into blanks, by group; with --beside, two models and what changed.

larvatus audit toxicity --model runs/mine --words list.txt
larvatus audit toxicity --model runs/before --beside runs/after --words list.txt --corpus held_out.txt
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from larvatus.core.flags import Flag
from larvatus.core.outputs import check_outputs
from larvatus.core.settings import Settings
from larvatus.evaluation.audit.toxicity.measure import LIMITS
from larvatus.interfaces.api.toxicity import ToxicityInputs, ToxicitySettings, run_toxicity_audit
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.machine import Machine
from larvatus.interfaces.cli.options import Json, ModelName, Overwrite, Reading
from larvatus.interfaces.cli.quiet import Quiet, chat
from larvatus.interfaces.cli.tables import show_tables
from larvatus.interfaces.cli.text.counting import Counting


class ToxicitySources(Settings):
    """What is asked, and of which models."""

    prompts: Annotated[Path | None, Flag(metavar="FILE")] = None
    """group<TAB>prompt with [MASK][<TAB>template] lines; a small neutral set by default. gpt and t5 need no [MASK]."""
    beside: Annotated[str | None, Flag(metavar="MODEL")] = None
    """Another model, such as one that went on from the first with filtered text."""
    corpus: Annotated[tuple[str, ...], Flag(metavar="PATH")] = ()
    """With --beside: held-out text, to see what the other model has lost; repeatable."""
    out: Annotated[Path | None, Flag(metavar="FILE")] = None
    """The report as JSON, with the words of every prompt."""


@from_structs
def toxicity(
    model: ModelName,
    machine: Machine,
    sources: Annotated[ToxicitySources, Panel()],
    chosen: Annotated[ToxicitySettings, Panel("How prompts are filled and judged", first=("words", "judge", "label"))],
    reading: Reading,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What a model puts into blanks or writes after prompts, judged by a list of words or a classifier, by group."""
    check_outputs(sources.out, overwrite=overwrite, inputs=[model, *sources.corpus])
    loaded = machine.load(model)
    with Counting("prompts") as count:
        inputs = ToxicityInputs(
            prompts=sources.prompts,
            beside=None if sources.beside is None else machine.load(sources.beside),
            corpus=sources.corpus or None,
            out=sources.out,
            overwrite=overwrite,
        )
        report = run_toxicity_audit(loaded, inputs, chosen, reading, progress=count)
    if as_json:
        print(json.dumps(report.to_dict(), ensure_ascii=False, indent=2))
        return
    show_tables(report.shown(), (LIMITS,))
    if sources.out is not None:
        chat(f"saved {sources.out}")
