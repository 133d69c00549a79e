"""`larvatus audit`: bias, leaks of training text, and toxicity of a model.

larvatus audit bias --model runs/mine --pairs crows_pairs.csv --winobias winobias/ --out audit/
larvatus audit split texts/ --out half
larvatus audit leaks --model runs/mine --members half/in.jsonl --held-out half/out.jsonl --reference runs/other
larvatus audit toxicity --model runs/before --beside runs/after --words list.txt --corpus held_out.txt
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from larvatus.core.errors import UsageError
from larvatus.core.outputs import check_outputs
from larvatus.core.settings import Flag, Settings
from larvatus.data.labelled.file_options import TextFiles
from larvatus.data.text.readers import Skipped
from larvatus.evaluation.audit.bias.report import as_json
from larvatus.evaluation.audit.leaks import LIMITS as LEAK_LIMITS
from larvatus.evaluation.audit.toxicity.measure import LIMITS as TOXICITY_LIMITS
from larvatus.interfaces.api.auditing_bias import PARTS, BiasSettings, run_bias_audit
from larvatus.interfaces.api.leaks import (
    IN,
    OUT,
    LeakInputs,
    LeakSettings,
    SplitSettings,
    run_leak_audit,
    run_member_split,
)
from larvatus.interfaces.api.toxicity import ToxicityInputs, ToxicitySettings, run_toxicity_audit
from larvatus.interfaces.cli.from_struct import AnyOf, Panel, from_structs
from larvatus.interfaces.cli.options import EXAMPLES, Encoding, Json, Machine, ModelName, Overwrite, Reading
from larvatus.interfaces.cli.output import (
    ProgressReporter,
    Quiet,
    hint,
    print_json,
    report_skipped,
    show_report,
    show_tables,
    wide_console,
)

SETS = "Sets"
Columns = Annotated[Mapping[str, Any], AnyOf((TextFiles,), Panel(EXAMPLES, without=("labels",)))]
"""Columns of --test."""


class BiasSets(Settings):
    """Sets of a bias audit: one or more of these."""

    pairs: Annotated[str | None, Flag(metavar="FILE")] = None
    """CSV as of CrowS-Pairs: sent_more, sent_less, stereo_antistereo, bias_type."""
    stereoset: Annotated[str | None, Flag(metavar="FILE")] = None
    """JSON as of StereoSet: data.intrasentence, data.intersentence."""
    winobias: Annotated[str | None, Flag(metavar="DIR")] = None
    """Directory with WinoBias's pro_stereotyped_type1.txt.dev and its companions."""
    templates: Annotated[str | None, Flag(metavar="FILE")] = None
    """TOML: sentences with [GROUP] and [MASK], groups, attributes."""
    associations: Annotated[str | None, Flag(metavar="FILE")] = None
    """TOML: tests with two targets and two attributes, sentences with [WORD]."""
    test: Annotated[tuple[str, ...], Flag(metavar="FILE")] = ()
    """Labelled examples for a fine-tuned classifier, whose group words are swapped; repeatable."""
    swaps: Annotated[str | None, Flag(metavar="FILE")] = None
    """With --test: two words a line, he,she,gender; default: English words of gender."""


@from_structs
def bias(
    model: ModelName,
    machine: Machine,
    sets: Annotated[BiasSets, Panel(SETS)],
    chosen: Annotated[BiasSettings, Panel()],
    columns: Columns,
    encoding: Encoding = None,  # holds while the command runs
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What a model associates with groups of people: preferences, blanks, vectors, decisions, with 95% intervals.

    Every figure comes by category, and with what the set does not measure. Nothing here shows that a model is fair.
    """
    sources = (sets.pairs, sets.stereoset, sets.winobias, sets.templates, sets.associations, sets.test)
    given = {name: source for name, source in zip(PARTS, sources, strict=True) if source}
    loaded = machine.load(model)
    with ProgressReporter("sentences") as count:
        report = run_bias_audit(
            loaded,
            given,
            sets.swaps,
            columns,
            chosen,
            progress=lambda what, done, total: count.show(f"{done:,} of {total:,} {what}"),
        )
    if json:
        print(as_json(report.to_dict()), end="")
        return
    out = wide_console()
    show_report(out, report.shown())
    if chosen.out is not None:
        out.print(f"\nwritten: {chosen.out}", markup=False, soft_wrap=True)


@from_structs
def leaks(
    model: ModelName,
    machine: Machine,
    inputs: Annotated[LeakInputs, Panel()],
    chosen: Annotated[LeakSettings, Panel("How leaks are measured")],
    reading: Reading,
    reference: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="A model that was trained on neither, for the likelihood ratio."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Leaks of training text: canaries, membership of documents, names and numbers, verbatim generation."""
    if not (inputs.canaries or inputs.members or inputs.held_out):
        raise UsageError("nothing to audit; give --canaries DIR, or --members PATH and --held-out PATH")
    check_outputs(inputs.out, overwrite=inputs.overwrite, inputs=[model, *inputs.members, *inputs.held_out])
    loaded = machine.load(model)
    other = None if reference is None else machine.load(reference)
    with ProgressReporter("texts") as bar:
        count = lambda what, done: bar.show(f"{done:,} {what}")  # noqa: E731
        report = run_leak_audit(loaded, inputs, chosen, reading, reference=other, progress=count)
    if as_json:
        print_json(report.to_dict())
        return
    show_tables(report.shown(), (*report.notes, LEAK_LIMITS))
    if inputs.out is not None:
        hint(f"saved {inputs.out}")


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
    report_skipped(skipped)
    if as_json:
        print(json.dumps(counts, indent=2))
        return
    print(" · ".join(f"{out / name}: {count:,} documents" for name, count in counts.items()))
    hint(f"next: larvatus pretrain … --corpus {out / IN}, then larvatus audit leaks … --members {out / IN} ")


@from_structs
def toxicity(
    model: ModelName,
    machine: Machine,
    inputs: Annotated[ToxicityInputs, Panel()],
    chosen: Annotated[ToxicitySettings, Panel("How prompts are filled and judged", first=("words", "judge", "label"))],
    reading: Reading,
    beside: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Another model, such as one adapted from the first with filtered text."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What a model puts into blanks or writes after prompts, judged by a list of words or a classifier, by group."""
    check_outputs(inputs.out, overwrite=inputs.overwrite, inputs=[model, *inputs.corpus])
    loaded = machine.load(model)
    other = None if beside is None else machine.load(beside)
    with ProgressReporter("prompts") as count:
        report = run_toxicity_audit(loaded, inputs, chosen, reading, beside=other, progress=count)
    if as_json:
        print_json(report.to_dict())
        return
    show_tables(report.shown(), (TOXICITY_LIMITS,))
    if inputs.out is not None:
        hint(f"saved {inputs.out}")


app = typer.Typer(help="Audit a model for bias, leaks of its training text, and toxicity.", no_args_is_help=True)
app.command("bias")(bias)
app.command("leaks")(leaks)
app.command("split")(split)
app.command("toxicity")(toxicity)
