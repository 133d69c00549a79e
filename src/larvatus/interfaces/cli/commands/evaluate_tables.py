"""An evaluation of a fine-tuned model, a comparison and GLUE's scores as tables for people."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from larvatus.core.tables import Table
from larvatus.data.labelled.glue import PUBLISHED, GlueTask
from larvatus.evaluation.compare.transfer import TransferResult
from larvatus.interfaces.api.evaluating import COLUMNS
from larvatus.interfaces.cli.tables import show_part, show_report, wide_console
from larvatus.tasks.evaluation.comparison import ModelComparison
from larvatus.tasks.evaluation.evaluation import Evaluation


def show_evaluation(out: Console, evaluation: Evaluation) -> None:
    show_report(out, evaluation.parts())


def show_comparison(out: Console, comparison: ModelComparison) -> None:
    out.print()
    show_report(out, comparison.parts())


def show_glue(out: Console, scores: Sequence[tuple[str, GlueTask, Evaluation]]) -> None:
    """Print our scores next to the published ones, in percent."""
    systems = {"here (dev)": [_percent(each.metrics[task.metrics[0]].value) for _, task, each in scores]}
    for system, published in PUBLISHED.items():
        systems[system] = [_percent(published[name] / 100) if name in published else "–" for name, _, _ in scores]
    columns = ["", *(f"{name}\n{task.metrics[0]}" for name, task, _ in scores)]
    table = Table(columns, [[system, *row] for system, row in systems.items()])
    out.print()
    show_part(out, table)
    out.print("published: Devlin et al. (2019), table 1, on the test sets, which GLUE's server scores; ours on dev")


def show_transfer(table: TransferResult, *, as_json: bool) -> None:
    """One model over languages."""
    if as_json:
        print(json.dumps(table.to_dict(), ensure_ascii=False, allow_nan=False))
        return
    out = wide_console()
    out.print(escape(f"{table.model}: {table.metric} by language"))
    show_report(out, table.shown())


TITLES = {"accuracy": "right", "unigram_accuracy": "unigram right", "fertility": "fert."}


def show_text(model: str, rows: Sequence[Mapping[str, Any]], *, generator: bool) -> None:
    """Scores of held-out text, a row for each language."""
    columns = [TITLES.get(name, name.replace("_", " ")) for name in COLUMNS]
    cells = [[form.format(row[name]) for name, form in COLUMNS.items()] for row in rows]
    out = Console(highlight=False)
    show_part(out, Table(columns, cells, title=model))
    if generator:
        out.print("hidden tokens were predicted by the generator, as fill and score do", soft_wrap=True)


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.1f}"
