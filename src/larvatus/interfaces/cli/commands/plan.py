"""`larvatus plan`: how to pretrain on a text, what to expect, and what more text would give.

larvatus plan my_texts/
larvatus plan my_texts/ --minutes 30 --json
larvatus plan --language uk=ukrainian.txt --size mini --no-measure
"""

from __future__ import annotations

from typing import Annotated

from larvatus.evaluation.planning.plan import PlanRequest
from larvatus.interfaces.api.planning import run_plan
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.options import MACHINE, CorpusPaths, Json, MixedReading
from larvatus.interfaces.cli.output import (
    ProgressReporter,
    Quiet,
    hint,
    is_quiet,
    print_json,
    show_report,
    wide_console,
)
from larvatus.interfaces.settings import MachineSettings
from larvatus.training.engine.reporter import Reporter


@from_structs
def plan(
    named: CorpusPaths,
    request: Annotated[PlanRequest, Panel(None)],
    reading: MixedReading,
    machine: Annotated[MachineSettings, Panel(MACHINE, without=("rank_timeout",))],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Read text and recommend how to pretrain on it: settings, expected loss, minutes, and what more text gives."""
    given, text = named.read_with(reading)
    reporter = Reporter.on_stream(quiet=is_quiet(), stderr=True)
    with ProgressReporter("documents") as bar:
        made = run_plan(
            request,
            text,
            machine,
            corpus=given,
            say=reporter.say,
            progress=lambda documents, size: bar.show(f"read {documents:,} documents"),
        )
    if as_json:
        print_json(made.to_dict())
        return
    show_report(wide_console(), made.report())
    hint(f"next: {made.command(*given)}")
