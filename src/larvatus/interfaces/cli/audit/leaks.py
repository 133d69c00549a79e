"""`larvatus audit leaks`: what a model gives away of its training text; `larvatus audit split`: halves to audit with.

larvatus audit split texts/ --out half
larvatus audit leaks --model runs/mine --members half/in.jsonl --held-out half/out.jsonl --reference runs/other
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from larvatus.core.errors import UsageError
from larvatus.core.flags import Flag
from larvatus.core.outputs import check_outputs
from larvatus.core.settings import Settings
from larvatus.data.text.readers import Skipped
from larvatus.evaluation.audit.leaks.report import LIMITS
from larvatus.interfaces.api.leaks import (
    IN,
    OUT,
    LeakInputs,
    LeakSettings,
    SplitSettings,
    run_leak_audit,
    run_member_split,
)
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.left_out import say_left_out
from larvatus.interfaces.cli.machine import Machine
from larvatus.interfaces.cli.options import Json, ModelName, Overwrite, Reading
from larvatus.interfaces.cli.quiet import Quiet, chat
from larvatus.interfaces.cli.tables import show_tables
from larvatus.interfaces.cli.text.counting import Counting


class LeakSources(Settings):
    """What is held against the model."""

    canaries: Annotated[Path | None, Flag(metavar="DIR")] = None
    """The corpus that was built with --canaries, or its canaries.json."""
    members: Annotated[tuple[str, ...], Flag(metavar="PATH")] = ()
    """Text that the model was trained on; repeatable."""
    held_out: Annotated[tuple[str, ...], Flag(metavar="PATH")] = ()
    """Text of the same source that it was not trained on; repeatable."""
    reference: Annotated[str | None, Flag(metavar="MODEL")] = None
    """A model that was trained on neither, for the likelihood ratio."""
    out: Annotated[Path | None, Flag(metavar="FILE")] = None
    """The report as JSON."""


@from_structs
def leaks(
    model: ModelName,
    machine: Machine,
    sources: Annotated[LeakSources, Panel()],
    chosen: Annotated[LeakSettings, Panel("How leaks are looked for")],
    reading: Reading,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What a model gives away: canaries, membership of documents, names and numbers, text it writes verbatim."""
    if not (sources.canaries or sources.members or sources.held_out):
        raise UsageError("nothing to audit; give --canaries DIR, or --members PATH and --held-out PATH")
    check_outputs(sources.out, overwrite=overwrite, inputs=[model, *sources.members, *sources.held_out])
    loaded = machine.load(model)
    with Counting("texts") as bar:
        inputs = LeakInputs(
            canaries=sources.canaries,
            members=sources.members or None,
            held_out=sources.held_out or None,
            reference=None if sources.reference is None else machine.load(sources.reference),
            out=sources.out,
            overwrite=overwrite,
        )
        report = run_leak_audit(
            loaded, inputs, chosen, reading, progress=lambda what, done: bar.say(f"{done:,} {what}")
        )
    if as_json:
        print(json.dumps(report.to_dict(), ensure_ascii=False, indent=2))
        return
    show_tables(report.shown(), (*report.notes, LIMITS))
    if sources.out is not None:
        chat(f"saved {sources.out}")


@from_structs
def split(
    paths: Annotated[list[str], typer.Argument(help="Files, directories, globs, or - for stdin.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help=f"A directory for {IN} and {OUT}.")],
    chosen: Annotated[SplitSettings, Panel()],
    reading: Reading,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Split documents at random into those to train on and those to hold out, to audit membership with later."""
    skipped = Skipped()
    counts = run_member_split(paths, out, chosen, reading, overwrite=overwrite, skipped=skipped)
    say_left_out(skipped)
    if as_json:
        print(json.dumps(counts, indent=2))
        return
    print(" · ".join(f"{out / name}: {count:,} documents" for name, count in counts.items()))
    chat(f"next: larvatus pretrain … --corpus {out / IN}, then larvatus audit leaks … --members {out / IN} ")
