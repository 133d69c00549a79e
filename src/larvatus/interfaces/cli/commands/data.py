"""`larvatus data check FILE…`: find errors in labelled data before a model is trained on it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from larvatus.core.errors import DataError, UsageError
from larvatus.core.ranges import Count, CountOrNone
from larvatus.core.settings import Flag, Settings
from larvatus.core.tables import Table
from larvatus.data.labelled.check import LONGEST, SHOWN, Examples, Measure, check
from larvatus.data.labelled.glue import read_glue
from larvatus.data.labelled.problems import Problems, Report, count_noun
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.interfaces.cli.from_struct import AnyOf, Panel, from_structs
from larvatus.interfaces.cli.options import EXAMPLES, Encoding
from larvatus.interfaces.cli.output import show_part
from larvatus.models.bundle.model_names import find_model
from larvatus.tasks.examples import task_of_file
from larvatus.tasks.registry import TASKS, TaskName, parse_file_options

app = typer.Typer(help="Check labelled data before fine-tuning.", no_args_is_help=True)
LOOKED_FOR = "Checks"
MOST_LABELS = 20
"""Rows of the table of labels; the rest are counted."""


@app.callback()
def _data() -> None:
    pass


_KINDS = tuple(dict.fromkeys(task.Reading for task in TASKS.values()))
Columns = Annotated[Mapping[str, Any], AnyOf(_KINDS, Panel(EXAMPLES, without=("labels",)))]
"""Columns where the model knows the kind of labels."""
ColumnsAndLabels = Annotated[Mapping[str, Any], AnyOf(_KINDS, Panel(EXAMPLES))]


class DataCheckRequest(Settings):
    """Files to check, and how they are reported."""

    paths: Annotated[tuple[str, ...], Flag(argument=True, metavar="FILES...")]
    """CSV, TSV, JSONL, Parquet, CoNLL, CoNLL-U, brat, SQuAD."""
    dev: Annotated[tuple[str, ...], Flag(metavar="FILE")] = ()
    """Validation data, to find leaks; repeatable."""
    task: Annotated[TaskName | None, Flag("--for")] = None
    """Read files as finetune for this task does; default: classify, tag or choose, by the format."""
    as_json: Annotated[bool, Flag("--json")] = False
    """JSON for programs."""
    model: Annotated[str | None, Flag(panel=LOOKED_FOR)] = None
    """Model whose tokens are counted; without it, words are."""
    longest: Annotated[Count, Flag(panel=LOOKED_FOR)] = LONGEST
    """Report texts of more tokens or words than this."""
    examples: Annotated[CountOrNone, Flag(panel=LOOKED_FOR)] = SHOWN
    """Places shown of each finding."""
    glue: Annotated[str | None, Flag("--task", metavar="NAME", panel=EXAMPLES)] = None
    """A task of GLUE; FILES is its directory."""


@app.command("check")
@from_structs
def check_data(
    request: Annotated[DataCheckRequest, Panel()],
    columns: ColumnsAndLabels,
    encoding: Encoding = None,  # holds while the command runs
) -> None:
    """Find duplicates, leaks, conflicting labels, illegal tags and the like. Exit 4: something would stop training."""
    problems = Problems()
    train, held_out = _read_glue(request, problems) if request.glue is not None else _read(request, columns, problems)
    measure = None if request.model is None else _tokens(Tokenizer.load(find_model(request.model)))
    report = check(train, held_out, problems=problems, measure=measure, longest=request.longest, shown=request.examples)
    parts = [part for part in (train, held_out) if part is not None]
    if request.as_json:
        print(json.dumps({"read": [part.describe() for part in parts], **report.to_dict()}, ensure_ascii=False))
    else:
        _show(report, parts)
    if report.errors:
        raise DataError(
            f"{train.source}: {count_noun(len(report.errors), 'kind', 'kinds')} of error would stop training"
        )


def _read(
    request: DataCheckRequest, columns: Mapping[str, Any], problems: Problems
) -> tuple[Examples, Examples | None]:
    task = TASKS[request.task or task_of_file(request.paths[0])]
    reading = parse_file_options(task.name, columns)
    train = task.read(request.paths, reading, problems=problems)
    return train, task.read(request.dev, reading, kind=train.kind, problems=problems) if request.dev else None


def _read_glue(request: DataCheckRequest, problems: Problems) -> tuple[Examples, Examples]:
    if len(request.paths) != 1 or request.dev or (request.task is not None and not TASKS[request.task].of_glue):
        raise UsageError("--task takes one directory, which holds train and dev of a classification")
    data = read_glue(str(request.glue), request.paths[0], problems=problems)
    assert data.train is not None
    return data.train, next(iter(data.dev.values()))


def _tokens(tokenizer: Tokenizer) -> Measure:
    def measure(texts: Sequence[str]) -> list[int]:
        return [len(ids) + 2 for ids in tokenizer.encode_fast(texts)]  # [CLS] and [SEP]

    return measure


def _show(report: Report, parts: Sequence[Examples]) -> None:
    console = Console(soft_wrap=True, highlight=False)
    for part in parts:
        console.print(escape(part.describe()))
    lengths = report.lengths
    console.print(
        f"length of train in {report.unit}: median {lengths['median']:g} · 95% up to {lengths['p95']:g} "
        f"· longest {lengths['longest']:,}"
    )
    if report.balance["train"]:
        _show_balance(console, report)
    for title, style, findings in (("errors", "red", report.errors), ("warnings", "yellow", report.warnings)):
        if findings:
            console.print(f"\n[bold {style}]{title}[/]")
        for finding in findings:
            console.print(f"  [bold]{escape(finding.name)}[/]: {escape(finding.message)}")
            for example in finding.examples:
                console.print(f"    {escape(example)}")
            if finding.examples and finding.count > len(finding.examples):
                console.print(f"    … and {finding.count - len(finding.examples):,} more")
    if not report.findings:
        console.print("\nno errors or warnings")


def _show_balance(console: Console, report: Report) -> None:
    names = list(report.balance["train"])
    names += [name for name in report.balance.get("dev", {}) if name not in report.balance["train"]]
    totals = {part: max(1, sum(counts.values())) for part, counts in report.balance.items()}
    rows = [
        (
            name,
            *(
                f"{counts.get(name, 0):,} ({counts.get(name, 0) / totals[part]:.1%})"
                for part, counts in report.balance.items()
            ),
        )
        for name in names[:MOST_LABELS]
    ]
    show_part(console, Table(("label", *report.balance), rows, left=1 + len(report.balance)))
    if len(names) > MOST_LABELS:
        console.print(f"… and {len(names) - MOST_LABELS:,} more labels")
