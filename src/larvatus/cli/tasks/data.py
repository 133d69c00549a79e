"""`larvatus data check FILE…`: what is wrong with labelled data, before a model is trained on it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from larvatus.bundle.hub import find_model
from larvatus.cli.numbers import ranged
from larvatus.cli.options import Encoding, Json
from larvatus.cli.tasks.labelled import (
    ForTask,
    Header,
    Label,
    Labelled,
    Labels,
    Pair,
    Quoting,
    Separator,
    Tag,
    Text,
    Word,
)
from larvatus.errors import DataError, UsageError
from larvatus.labelled.check import LONGEST, SHOWN, check
from larvatus.labelled.glue import read_glue
from larvatus.labelled.guess import guess_task
from larvatus.labelled.problems import Problems
from larvatus.labelled.repeats import Examples
from larvatus.labelled.report import Report, many
from larvatus.labelled.surface import Measure
from larvatus.ranges import COUNT, COUNT_OR_NONE
from larvatus.text.tokenizer import Tokenizer

app = typer.Typer(help="Labelled data for fine-tuning.", no_args_is_help=True)
MOST_LABELS = 20
"""Rows of the table of labels; the rest are counted."""


@app.callback()
def _data() -> None:
    pass


@app.command("check")
def check_data(
    paths: Annotated[
        list[str], typer.Argument(metavar="FILES...", help="CSV, TSV, JSONL, Parquet, CoNLL, CoNLL-U, brat, SQuAD.")
    ],
    dev: Annotated[list[str] | None, typer.Option(metavar="FILE", help="Dev data, to find leaks; repeatable.")] = None,
    task: ForTask = None,
    glue: Annotated[
        str | None, typer.Option("--task", metavar="NAME", help="A task of GLUE; FILES is its directory.")
    ] = None,
    text: Text = None,
    pair: Pair = None,
    label: Label = None,
    labels: Labels = None,
    separator: Separator = None,
    header: Header = None,
    quoting: Quoting = None,
    encoding: Encoding = None,  # holds while the command runs
    word: Word = None,
    tag: Tag = None,
    model: Annotated[str | None, typer.Option(help="Model whose tokens are counted; without it, words are.")] = None,
    longest: Annotated[int, ranged(COUNT, help="Texts over so many tokens or words are named.")] = LONGEST,
    examples: Annotated[int, ranged(COUNT_OR_NONE, help="Places shown of each finding.")] = SHOWN,
    as_json: Json = False,
) -> None:
    """Find duplicates, leaks, conflicting labels, illegal tags and the like. Exit 4: something would stop training."""
    problems = Problems()
    reading = Labelled(
        text=text,
        pair=pair,
        label=label,
        separator=separator,
        header=header,
        quoting=quoting,
        word=word,
        tag=tag,
    )
    train: Examples
    held_out: Examples | None
    if glue is not None:
        if len(paths) != 1 or dev or task not in (None, "classify"):
            raise UsageError("--task takes one directory, which holds train and dev of a classification")
        found = read_glue(glue, paths[0], problems=problems)
        assert found.train is not None
        train, held_out = found.train, next(iter(found.dev.values()))
    else:
        task = task or guess_task(paths[0])
        train = reading.read(task, paths, kind=labels, problems=problems)
        held_out = reading.read(task, dev, kind=train.kind, problems=problems) if dev else None
    measure = None if model is None else _tokens(Tokenizer.load(find_model(model)))
    report = check(train, held_out, problems=problems, measure=measure, longest=longest, shown=examples)
    if as_json:
        said = [part.describe() for part in (train, held_out) if part is not None]
        print(json.dumps({"read": said, **report.to_dict()}, ensure_ascii=False))
    else:
        _show(report, [part for part in (train, held_out) if part is not None])
    if report.errors:
        raise DataError(f"{train.source}: {many(len(report.errors), 'kind', 'kinds')} of error would stop training")


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
    for title, style, found in (("errors", "red", report.errors), ("warnings", "yellow", report.warnings)):
        if found:
            console.print(f"\n[bold {style}]{title}[/]")
        for one in found:
            console.print(f"  [bold]{escape(one.name)}[/]: {escape(one.message)}")
            for example in one.examples:
                console.print(f"    {escape(example)}")
            if one.examples and one.count > len(one.examples):
                console.print(f"    … and {one.count - len(one.examples):,} more")
    if not report.findings:
        console.print("\nnothing wrong was found")


def _show_balance(console: Console, report: Report) -> None:
    names = list(report.balance["train"])
    names += [name for name in report.balance.get("dev", {}) if name not in report.balance["train"]]
    table = Table("label", *report.balance, box=None, pad_edge=False)
    totals = {part: max(1, sum(counts.values())) for part, counts in report.balance.items()}
    for name in names[:MOST_LABELS]:
        cells = [
            f"{counts.get(name, 0):,} ({counts.get(name, 0) / totals[part]:.1%})"
            for part, counts in report.balance.items()
        ]
        table.add_row(escape(name), *cells)
    console.print(table)
    if len(names) > MOST_LABELS:
        console.print(f"… and {len(names) - MOST_LABELS:,} labels more")
