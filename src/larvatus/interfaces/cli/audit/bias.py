"""`larvatus audit bias --model DIR --pairs crows_pairs.csv`: what a model associates with groups of people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from larvatus.core.flags import Flag
from larvatus.core.settings import Settings
from larvatus.data.labelled.file_options import TextFiles
from larvatus.evaluation.audit.bias.report import as_json
from larvatus.interfaces.api.auditing_bias import PARTS, BiasSettings, run_bias_audit
from larvatus.interfaces.cli.from_struct import AnyOf, Panel, from_structs
from larvatus.interfaces.cli.machine import Machine
from larvatus.interfaces.cli.options import EXAMPLES, Encoding, Json, ModelName
from larvatus.interfaces.cli.quiet import Quiet
from larvatus.interfaces.cli.tables import show_report, wide_console
from larvatus.interfaces.cli.text.counting import Counting

SETS = "Sets"
Columns = Annotated[Mapping[str, Any], AnyOf((TextFiles,), Panel(EXAMPLES, without=("labels",)))]
"""Of --test."""


class BiasSets(Settings):
    """What a model is held against: one or more of these."""

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
    with Counting("sentences") as count:
        report = run_bias_audit(
            loaded,
            given,
            sets.swaps,
            columns,
            chosen,
            progress=lambda what, done, total: count.say(f"{done:,} of {total:,} {what}"),
        )
    if json:
        print(as_json(report.to_dict()), end="")
        return
    out = wide_console()
    show_report(out, report.shown())
    if chosen.out is not None:
        out.print(f"\nwritten: {chosen.out}", markup=False, soft_wrap=True)
