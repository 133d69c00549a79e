"""`larvatus explain`: which words of a text a prediction rests on, and which method of saying so to trust.

larvatus explain "The keys to the cabinet [MASK] on the table." --method all
larvatus explain "A dull film." --model runs/reviews --target negative --out why.html
larvatus explain --data reviews.csv --model runs/reviews
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from larvatus.core.errors import UsageError
from larvatus.core.outputs import check_outputs
from larvatus.core.settings import Flag, Settings
from larvatus.data.bulk.row_files import check_row_file
from larvatus.inference.interpret.attributions import ExplainOptions
from larvatus.inference.interpret.explain import explain as explain_prediction
from larvatus.inference.model import load
from larvatus.interfaces.api.explaining import FaithfulnessData, measure_faithfulness
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.options import Device, ModelName
from larvatus.interfaces.cli.output import ProgressReporter, Quiet
from larvatus.interfaces.cli.picture_page import PAGES, write_results
from larvatus.tasks.inputs import Input
from larvatus.tasks.outcome import OutcomeChoice

FAITHFULNESS = "Faithfulness on your data"


class ExplainRequest(Settings):
    """Texts, what of them is explained, and the output."""

    texts: Annotated[tuple[str, ...], Flag(argument=True, metavar="[TEXT]...")] = ()
    """Texts; for a model without a task, with [MASK] at each blank."""
    pair: Annotated[str | None, Flag(metavar="TEXT")] = None
    """The second text of a pair, or the passage of a question, for one TEXT."""
    target: str | None = None
    """Class, tag, answer or word to explain; default: what the model predicts."""
    at: Annotated[str | None, Flag(metavar="N|WORD")] = None
    """The blank, or the word whose tag is explained, by number from 1; a word also by itself."""
    task: str | None = None
    """Task of a model that has several."""
    data: Annotated[str | None, Flag(metavar="FILE", panel=FAITHFULNESS)] = None
    """Measure which method to trust on these texts, instead of explaining one; a file as for predict."""
    out: Annotated[Path | None, Flag(metavar="FILE")] = None
    """A page with marked texts, .html; or a table: .jsonl, .csv, .tsv, .parquet."""
    overwrite: bool = False
    """Replace files that exist; never those that are read."""

    def check(self, model: str, given: FaithfulnessData) -> None:
        if bool(self.texts) == (self.data is not None):
            raise UsageError("give one of the two: texts to explain, or --data FILE to compare methods")
        if self.data is not None and (self.pair or self.target or self.at):
            raise UsageError("--pair, --target and --at are for texts, not for --data; leave them out")
        if self.data is None and (given.text or given.pair_column):
            raise UsageError("--text and --pair-column name columns of --data; leave them out")
        if self.pair is not None and len(self.texts) != 1:
            raise UsageError("--pair goes with one TEXT")
        check_outputs(self.out, overwrite=self.overwrite, inputs=[model, *([self.data] if self.data else [])])
        check_row_file(self.out, also=PAGES)


@from_structs
def explain(
    model: ModelName,
    request: Annotated[ExplainRequest, Panel()],
    chosen: Annotated[ExplainOptions, Panel()],
    given: Annotated[FaithfulnessData, Panel(FAITHFULNESS)],
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per text.")] = False,
    quiet: Quiet = False,
) -> None:
    """Attribute a filled blank, a class, a tag or an answer to words; or measure which method to trust (--data)."""
    request.check(model, given)
    loaded = load(model, device=device)
    if request.task is not None:
        loaded = loaded.for_task(request.task)
    title = f"explanations of {Path(model).name or model}"
    with write_results(request.out, title, as_json=as_json) as write:
        if request.data is not None:
            settings = {**msgspec.structs.asdict(chosen), **msgspec.structs.asdict(given)}
            with ProgressReporter("texts", start="explaining") as progress:
                table = measure_faithfulness(loaded, request.data, progress=progress, note=_note, **settings)
            write(table)
            return
        inputs: list[Input] = [*request.texts] if request.pair is None else [(request.texts[0], request.pair)]
        choice = OutcomeChoice(target=request.target, at=request.at)
        for number, text in enumerate(inputs, start=1):
            write(explain_prediction(loaded, text, choice, chosen, number=number))


def _note(line: str) -> None:
    print(line, file=sys.stderr)
