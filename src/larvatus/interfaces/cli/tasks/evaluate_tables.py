"""An evaluation of a fine-tuned model, a comparison and GLUE's scores as tables for people."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from larvatus.data.labelled.glue import PUBLISHED, GlueTask
from larvatus.evaluation.compare.transfer import Transfer
from larvatus.interfaces.api.evaluating import COLUMNS
from larvatus.tasks.evaluation.comparison import ModelComparison
from larvatus.tasks.evaluation.evaluated import Evaluation
from larvatus.tasks.evaluation.shown import Shown

WIDE = 200  # where there is no terminal whose width must be kept


def console() -> Console:
    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(width=WIDE, highlight=False)


def show_evaluation(out: Console, evaluation: Evaluation) -> None:
    for part in evaluation.parts():
        show_part(out, part)


def show_part(out: Console, part: Shown) -> None:
    if isinstance(part, str):
        out.print(escape(part), soft_wrap=True, highlight=False)
        return
    table = _table(*map(escape, part.columns))
    for row in part.rows:
        table.add_row(*map(escape, row))
    if part.apart:
        out.print()
    out.print(table)


def show_comparison(out: Console, comparison: ModelComparison) -> None:
    out.print()
    for part in comparison.parts():
        show_part(out, part)


def show_glue(out: Console, scores: Sequence[tuple[str, GlueTask, Evaluation]]) -> None:
    """Ours beside those of the paper, in percent."""
    table = _table("", *(f"{name}\n{task.metrics[0]}" for name, task, _ in scores))
    table.add_row(
        "here (dev)", *(_percent(evaluation.metrics[task.metrics[0]].value) for _, task, evaluation in scores)
    )
    for system, published in PUBLISHED.items():
        table.add_row(system, *(_percent(published[name] / 100) if name in published else "–" for name, _, _ in scores))
    out.print()
    out.print(table)
    out.print("published: Devlin et al. (2019), table 1, on the test sets, which GLUE's server scores; ours on dev")


def show_transfer(table: Transfer, *, as_json: bool) -> None:
    """One model over languages."""
    if as_json:
        print(json.dumps(table.to_dict(), ensure_ascii=False, allow_nan=False))
        return
    out = console()
    out.print(escape(f"{table.model}: {table.metric} by language"))
    for part in table.shown():
        show_part(out, part)


TITLES = {"accuracy": "right", "unigram_accuracy": "unigram right", "fertility": "fert."}


def show_text(model: str, rows: Sequence[Mapping[str, Any]], *, generator: bool) -> None:
    """Scores of held-out text, a row for each language."""
    table = Table(title=escape(model), title_justify="left", box=None, pad_edge=False)
    for name in COLUMNS:
        title = TITLES.get(name, name.replace("_", " "))
        table.add_column(title, justify="left" if name == "language" else "right")
    for row in rows:
        table.add_row(*(escape(form.format(row[name])) for name, form in COLUMNS.items()))
    out = Console(highlight=False)
    out.print(table)
    if generator:
        out.print("hidden tokens were predicted by the generator, as fill and score do", soft_wrap=True)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left")
    return table


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.1f}"
