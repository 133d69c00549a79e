"""`larvatus predict DIR "A text."`: classes, tags, spans or answers of a fine-tuned model, for texts, files and pipes.

larvatus predict runs/nested "She works for United Airlines Holding."
larvatus predict runs/qa "Where is Mt. Sanitas?" --pair "Mt. Sanitas is in Sunshine Canyon."
larvatus predict runs/parser "She reads." --out tree.html
larvatus predict runs/qa --file dev-v2.0.json --out predictions.json
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import msgspec
from rich.console import Console
from rich.text import Text

from larvatus.core.errors import UsageError
from larvatus.core.outputs import check_directory, check_outputs
from larvatus.core.settings import Flag, Settings
from larvatus.core.signals import resumable
from larvatus.core.tables import Row
from larvatus.data.bulk.parts import LineJob, skip_row, skips_bad_rows, write_errors_to
from larvatus.data.bulk.row_files import check_row_file, json_lines, row_file
from larvatus.data.corpus.sources import fingerprint
from larvatus.data.labelled.glue import GlueTestSet, glue_test_set
from larvatus.data.labelled.records import QuestionPlace
from larvatus.data.labelled.squad import unique_id, write_predictions
from larvatus.data.labelled.tables import Columns
from larvatus.data.labelled.texts import TextFormat
from larvatus.data.text.readers import expand_patterns
from larvatus.interfaces.api.task_settings import PredictSettings
from larvatus.interfaces.cli.from_struct import AnyOf, Panel, from_structs
from larvatus.interfaces.cli.options import EXAMPLES, Bulk, Encoding, Machine
from larvatus.interfaces.cli.output import ProgressReporter
from larvatus.interfaces.cli.prediction_files import (
    LINE_FORMATS,
    PAGE,
    Writer,
    line_writer,
    write_for_server,
    writes_by_id,
)
from larvatus.tasks.inputs import PlainTexts
from larvatus.tasks.multitask.results import NEW_LINE
from larvatus.tasks.predict import (
    BulkPredictor,
    ExamplePrediction,
    Input,
    InputPlace,
    PredictionBlock,
    ReadTotals,
    TaskPredictor,
    blocks,
    write_prediction_lines,
)
from larvatus.tasks.registry import TASKS, AnyTask
from larvatus.tasks.results import Prediction, best

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


class PredictRequest(Settings):
    """Model, texts and output of `larvatus predict`."""

    model: Annotated[str, Flag(argument=True, metavar="DIR")]
    """A fine-tuned model."""
    texts: Annotated[tuple[str, ...], Flag(argument=True, metavar="[TEXT]...")] = ()
    """Texts; - is standard input."""
    file: Annotated[tuple[str, ...], Flag(metavar="FILE")] = ()
    """Text a line, CSV, TSV, JSONL, Parquet, CoNLL, SQuAD; -; repeatable."""
    out: Annotated[Path | None, Flag(metavar="FILE")] = None
    """.jsonl, .csv, .tsv or .parquet, a page of pictures to .html, answers by id to .json, trees to .conllu,
    coreference to .conll or .conllu, roles to .props; it appears when whole."""
    overwrite: bool = False
    """Replace files that exist; never those that are read."""
    resume: bool = False
    """Keep finished parts next to --out while it is incomplete, and resume an interrupted run."""
    as_json: Annotated[bool, Flag("--json")] = False
    """JSON for programs."""
    conllu: bool = False
    """Print CoNLL-U; --format conllu without a file is the same."""
    glue_submission: Annotated[str | None, Flag(metavar="TASK")] = None
    """Write a file for GLUE's test server into the folder --out: cola, sst2, mrpc, stsb, qqp, mnli-m, mnli-mm, qnli,
    rte, wnli or ax, with its unlabelled test set as --file."""
    text: Annotated[str | None, Flag(metavar="COLUMN", panel=EXAMPLES)] = None
    """Column of the text, by name or number."""
    pair_column: Annotated[str | None, Flag(metavar="COLUMN", panel=EXAMPLES)] = None
    """Column of the second text."""
    format: Annotated[TextFormat | None, Flag(panel=EXAMPLES)] = None
    """Format of the files; default: by their names."""

    @property
    def columns(self) -> Columns:
        return Columns(text=self.text, pair=self.pair_column)

    @property
    def names(self) -> list[str]:
        """Files to read; - is standard input."""
        return [*(text for text in self.texts if text == "-"), *self.file]

    @property
    def lines(self) -> str:
        """The format of lines in which results are written or printed, as an ending; empty for rows."""
        if self.out is not None:
            return self.out.suffix if self.out.suffix in (PAGE, *LINE_FORMATS) else ""
        return ".conllu" if self.conllu or (self.format == "conllu" and not self.names) else ""

    def check(self) -> None:
        if not (self.texts or self.file):
            raise UsageError("nothing to predict; give texts, - for standard input, or --file")
        if [*self.texts, *self.file].count("-") > 1:
            raise UsageError("standard input is read once; give - once")
        if not self.names and (self.columns != Columns() or self.format not in (None, "conllu")):
            raise UsageError("--text, --pair-column and --format are for files; leave them out")
        if self.pair_column is not None and self.text is None:
            raise UsageError("--pair-column goes with --text, the column of the first text")
        if self.resume and (self.out is None or not self.file or self.texts):
            raise UsageError("--resume needs --out and --file, whose rows are read again")
        if self.test is not None:
            self._check_submission(self.test)
            return
        check_outputs(self.out, overwrite=self.overwrite or self.resume, inputs=[self.model, *self.file])
        check_row_file(self.out, also=(".json", PAGE, *LINE_FORMATS))
        if self.conllu and (self.as_json or self.lines != ".conllu"):
            raise UsageError("--conllu prints CoNLL-U; leave --json out, and end --out in .conllu")

    @property
    def test(self) -> GlueTestSet | None:
        """Test set of GLUE that a file for the server is written of."""
        return None if self.glue_submission is None else glue_test_set(self.glue_submission)

    def _check_submission(self, test: GlueTestSet) -> None:
        if self.texts or len(self.file) != 1 or self.out is None:
            raise UsageError("--glue-submission needs one test set and a folder: --file test.tsv --out FOLDER")
        if self.resume or self.as_json or self.format is not None:
            raise UsageError("--glue-submission writes a file of a known format; leave --resume, --json, --format out")
        if self.out.exists() and not self.out.is_dir():
            raise UsageError(f"{self.out} is a file, and --glue-submission writes {test.file} into a folder; name one")
        check_directory(self.out, (test.file,), overwrite=self.overwrite, inputs=[self.model, *self.file])


INPUTS = tuple(dict.fromkeys(task.Inputs for task in TASKS.values()))


@from_structs
def predict(
    request: Annotated[PredictRequest, Panel()],
    machine: Machine,
    beside: Annotated[Mapping[str, Any], AnyOf(INPUTS)],
    chosen: Annotated[PredictSettings, Panel()],
    bulk: Bulk,
    encoding: Encoding = None,  # holds while the command runs
) -> None:
    """Predict with a fine-tuned model: classes, tags, spans, trees, answers, choices, coreference, roles, vectors.

    Results have probabilities and character offsets, and report how much of each text was read.
    """
    request.check()
    check_outputs(bulk.errors, overwrite=True, inputs=[request.model, *request.file])
    for kind in INPUTS:  # what is wrong whatever the model, before it is loaded
        if beside and beside.keys() <= set(kind.__struct_fields__):
            _inputs(kind, beside, request)
    loaded = machine.load(request.model)
    predictor = TaskPredictor(loaded.bundle, chosen.options, loaded.device)
    task, labels = predictor.task, predictor.head.config.labels
    _refuse_foreign(task, request, beside, chosen)
    if request.test is not None and request.out is not None:
        if bulk.errors is not None:
            raise UsageError("GLUE's server needs a prediction for every row; leave --errors out")
        answering = BulkPredictor(loaded, chosen.options, bulk.executor(device=loaded.requested_device))
        (file,) = request.file
        write_for_server(
            request.test, predictor, answering, file=file, columns=request.columns, out=request.out, say=_say
        )
        return
    inputs = _inputs(task.Inputs, beside, request)
    examples = chain(
        (task.example(given, InputPlace("text", number)) for number, given in enumerate(inputs, start=1)),
        chain.from_iterable(
            task.read_plain(name, request.columns, request.format, _say) for name in expand_patterns(request.names)
        ),
    )
    begun, top = time.monotonic(), len(labels) if chosen.probabilities else chosen.top
    by_id = writes_by_id(request.out, task, request.model)
    in_lines = line_writer(request.out, request.lines, task, request.model, resume=request.resume)
    answering = BulkPredictor(loaded, chosen.options, bulk.executor(device=loaded.requested_device))
    with write_errors_to(bulk.errors):
        if request.out is not None and request.resume:
            totals = _resumable(request, chosen, answering, examples, top=top, by_id=by_id)
        else:
            totals = ReadTotals()
            rows = _writer(request.out, as_json=request.as_json, top=top, labels=labels, by_id=by_id)
            with in_lines or rows as (write, bar):
                for answer in _noting(answering(blocks(examples))):
                    totals.add(answer.found)
                    write(answer)
                    if bar is not None:
                        bar(totals.texts)
    _summary(totals, time.monotonic() - begun, request.out)


def _noting(answered: Iterator[PredictionBlock]) -> Iterator[ExamplePrediction]:
    """All answers; examples that failed in their block are noted."""
    for block in answered:
        yield from block.answers
        for line in block.faults:
            skip_row(line)


def _resumable(
    request: PredictRequest,
    chosen: PredictSettings,
    answering: BulkPredictor,
    examples: Iterator[Any],
    *,
    top: int | None,
    by_id: bool,
) -> ReadTotals:
    """Write predictions to a file that can be resumed after a kill."""
    inputs = fingerprint(request.file)
    if by_id or inputs is None:
        raise UsageError("--resume is for lines of files that can be read again; name --out answers.jsonl and --file")
    settings = {**msgspec.to_builtins(chosen), "inputs": inputs, "columns": [request.text, request.pair_column]}
    settings |= {"format": request.format, "model": answering.model.fingerprint, "errors": skips_bad_rows()}
    assert request.out is not None
    job = LineJob(request.out, settings, resume=True, overwrite=request.overwrite)
    with ProgressReporter("texts") as bar, resumable("the same command resumes from what was written"):

        def lines(answer: ExamplePrediction) -> list[str]:
            return json_lines(job.format, *as_rows(answer, top))

        return write_prediction_lines(job, answering, blocks(examples), lines, bar)


def _inputs(kind: type[PlainTexts], beside: Mapping[str, Any], request: PredictRequest) -> list[Input]:
    texts = [text for text in request.texts if text != "-"]
    return kind(**beside).inputs(texts, files=bool(request.names))


def _refuse_foreign(task: AnyTask, request: PredictRequest, beside: Mapping[str, Any], chosen: PredictSettings) -> None:
    """Refuse inputs and outputs of other tasks."""
    foreign = [name for kind in INPUTS for name in kind.__struct_fields__ if name not in _understood(task)]
    if "pair" in foreign:
        foreign.insert(foreign.index("pair") + 1, "pair_column")
    shown = {"top": chosen.top, "probabilities": chosen.probabilities, "beams": chosen.beams}
    foreign += [name for name in shown if name not in task.shows]
    named = {**beside, "pair_column": request.pair_column, **shown}
    given = [name for name in dict.fromkeys(foreign) if named.get(name)]
    if given:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        owners = [
            other.models
            for other in TASKS.values()
            if any(name.removesuffix("_column") in _understood(other) for name in given)
        ]
        belong = "is" if len(given) == 1 else "are"
        raise UsageError(f"{request.model} {task.card.what}; {flags} {belong} for {' and '.join(owners)}")


def _understood(task: AnyTask) -> set[str]:
    return {*task.Inputs.__struct_fields__, *task.shows}


@contextmanager
def _writer(
    out: Path | None, *, as_json: bool, top: int | None, labels: Sequence[str], by_id: bool = False
) -> Iterator[Writer]:
    """What to do with each answer; a bar counts them where they go to a file."""
    if out is not None and by_id:
        answers: dict[str, str] = {}
        with ProgressReporter("questions") as bar:
            yield (lambda answer: _keep(answers, answer)), bar
        write_predictions(out, answers)
    elif out is not None:
        with row_file(out) as write, ProgressReporter("texts") as bar:
            yield (lambda answer: write(*as_rows(answer, top))), bar
    elif as_json:
        # flush each line: the reader of the pipe need not wait for more
        yield (lambda answer: print(json_line(answer, top), flush=True)), None
    else:
        console = Console(soft_wrap=True, highlight=False)
        width = max(map(len, labels), default=0)

        def show(answer: ExamplePrediction) -> None:
            console.print(shown(answer.found, top=top, width=width))
            sys.stdout.flush()

        yield show, None


def _keep(answers: dict[str, str], answer: ExamplePrediction) -> None:
    """An answer under the id of its question, as official scorers read them."""
    identifier, place = answer.example.id, answer.example.place
    if identifier is None:
        raise UsageError(
            f"{place} has no id, by which a .json file stores answers; write .jsonl, or give questions ids"
        )
    if identifier in answers:  # of another file: those within a file are numbered already
        identifier, given = unique_id(identifier, answers), identifier
        _say(f"{place}: the id {given} is taken by another file; its answer is under {identifier}")
    answers[identifier] = str(answer.found.to_dict()["text"])


def as_rows(answer: ExamplePrediction, top: int | None = None) -> tuple[Row, list[Row]]:
    """The full record of an answer and its flat rows, with the id and line of its text where it comes from a file."""
    example = answer.example
    where: Row = {"id": example.id} if example.id is not None else {}
    if not isinstance(example.place, InputPlace | QuestionPlace):
        where["line"] = example.place.line
    record = where | answer.found.to_dict()
    if top is not None and "probabilities" in record:
        record["probabilities"] = dict(best(record["probabilities"], top))
    return record, [where | row for row in answer.found.to_dicts()]


def json_line(answer: ExamplePrediction, top: int | None = None) -> str:
    """An answer as JSON, with the id and line of its text where it comes from a file."""
    return json.dumps(as_rows(answer, top)[0], ensure_ascii=False)


def shown(prediction: Prediction, *, top: int | None = None, width: int = 0) -> Text:
    """A line for people: a class and its text, entities in brackets, or word/TAG."""
    line = Text()
    for piece in prediction.pieces(top=top, width=width):
        if piece == NEW_LINE:
            line.append("\n")
            continue
        style = " ".join(
            _colour(word.removeprefix("label:")) if word.startswith("label:") else word for word in _styles(piece.style)
        )
        line.append(_flat(piece.text), style=style or None)
    return line


def _styles(style: str) -> list[str]:
    """The words of a style; a label may have spaces, and comes last."""
    plain, mark, label = style.partition("label:")
    return [*plain.split(), *([f"label:{label}"] if mark else [])]


def _colour(label: str) -> str:
    return COLOURS[sum(label.encode()) % len(COLOURS)]


def _flat(text: str) -> str:
    """On one line, with nothing that a terminal would obey."""
    return "".join(char if char.isprintable() else " " for char in text)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _summary(totals: ReadTotals, seconds: float, out: Path | None) -> None:
    rate = totals.texts / max(seconds, 1e-9)
    read = "100% read" if not totals.cut else f"{totals.read / totals.tokens:.1%} read"
    texts = "1 text" if totals.texts == 1 else f"{totals.texts:,} texts"
    _say(f"{texts} · {rate:,.1f} texts/s · {totals.tokens:,} tokens, {read}" + (f" · {out}" if out else ""))
    if totals.cut:
        _say(f"warning: {totals.unread}; leave out --truncate to read all")
