"""`larvatus probe`: what each layer of an encoder knows, next to controls.

larvatus probe dev.conllu                                   parts of speech, with the packaged model
larvatus probe dev.conllu --tag Tense --probe linear
larvatus probe dev.conllu --task structure --out structure.html
larvatus probe dev.conllu --amnesic
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from larvatus.core.drawing import STYLE, as_html
from larvatus.core.errors import UsageError
from larvatus.core.outputs import check_outputs, write_output
from larvatus.data.labelled.file_options import WordFiles
from larvatus.evaluation.probing.amnesic import AmnesicReport, amnesic
from larvatus.evaluation.probing.results import ProbeReport
from larvatus.evaluation.probing.run import ProbingSettings, probe_layers
from larvatus.inference.model import load
from larvatus.inference.web_page import PAGE_END, asset, page_start
from larvatus.interfaces.api.probing import read_for_probe
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.options import EXAMPLES, Device, Encoding, Json, ModelName, Overwrite
from larvatus.interfaces.cli.output import ProgressReporter, Quiet, print_json, show_part, wide_console
from larvatus.interfaces.cli.picture_page import POLICY

PAGES = (".html", ".htm")


@from_structs
def probe(
    data: Annotated[list[str], typer.Argument(help="Labelled files: CoNLL, CoNLL-U, JSONL, brat.")],
    model: ModelName,
    chosen: Annotated[ProbingSettings, Panel()],
    columns: Annotated[WordFiles, Panel(EXAMPLES)],
    test: Annotated[list[str] | None, typer.Option(help="Test file; default: a fifth of the data. Repeatable.")] = None,
    erase: Annotated[
        bool, typer.Option("--amnesic", help="Erase the labels from the last layer, and measure masked accuracy.")
    ] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Page with picture and table (.html).")] = None,
    encoding: Encoding = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Probe what each layer knows: linear and MLP probes, control tasks, description length, random weights."""
    if out is not None and (erase or out.suffix.lower() not in PAGES):
        raise UsageError(f"--out {out} must end in .html, and --amnesic has no picture")
    check_outputs(out, overwrite=overwrite, inputs=[model, *data, *(test or [])])
    loaded = load(model, device=device)
    examples = read_for_probe(data, test or None, chosen, columns)
    with ProgressReporter("texts") as progress:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            progress(done)

        measure = amnesic if erase else probe_layers
        report: ProbeReport | AmnesicReport = measure(loaded, examples, chosen, advance)
    if out is not None and isinstance(report, ProbeReport):
        write_output(out, probe_page(report))
    if as_json:
        print_json(report.to_dict())
    else:
        show_part(wide_console(), report.table())


def probe_page(report: ProbeReport) -> str:
    """Picture and table as one page without scripts."""
    title = f"probe of {report.model}: {report.task}"
    start = page_start(title, policy=POLICY, style=asset("larvatus.inference", "page.css") + STYLE)
    body = as_html(report.picture())
    return f'{start}\n<main class="pictures"><section aria-label="probe">{body}</section></main>\n{PAGE_END}'
