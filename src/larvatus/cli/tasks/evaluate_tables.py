"""An evaluation of a fine-tuned model, a comparison and GLUE's scores as tables for people."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from larvatus.evaluation.transfer import Transfer
from larvatus.labelled.glue import PUBLISHED, GlueTask
from larvatus.tasks.evaluation.comparison import ModelComparison
from larvatus.tasks.evaluation.evaluated import Evaluation, Reading
from larvatus.tasks.evaluation.shown import Shown

WIDE = 200  # where there is no terminal whose width must be kept


def console() -> Console:
    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(width=WIDE, highlight=False)


def show_evaluation(out: Console, evaluation: Evaluation) -> None:
    out.print(escape(f"{evaluation.model} on {evaluation.data.describe()}"))
    table = _table("metric", "score", "95% interval")
    for name, score in evaluation.metrics.items():
        table.add_row(name, _number(score.value), f"{_number(score.low)} to {_number(score.high)}")
    out.print(table)
    for part in evaluation.shown():
        _show(out, part)
    out.print(f"\n{said_of_reading(evaluation.reading)}")


def _show(out: Console, part: Shown) -> None:
    if isinstance(part, str):
        out.print(escape(part))
        return
    table = _table(*map(escape, part.columns))
    for row in part.rows:
        table.add_row(*map(escape, row))
    if part.apart:
        out.print()
    out.print(table)


def said_of_reading(reading: Reading) -> str:
    said = f"{reading.read:,} of {reading.tokens:,} tokens read ({_share(reading.read, reading.tokens)})"
    if reading.words is not None and reading.words_read is not None:
        said += f", {reading.words_read:,} of {reading.words:,} words"
        if reading.words_read < reading.words:
            said += " (the others count as wrong)"
    if reading.long:
        said += f" · {reading.long:,} of {reading.examples:,} examples are longer than a window"
    return said


def _share(part: int, whole: int) -> str:
    share = part / whole if whole else 1.0
    return f"{math.floor(share * 1000) / 10:g}%"  # never 100% of a text that was cut


def show_comparison(out: Console, comparison: ModelComparison) -> None:
    out.print(escape(f"\nthis ({comparison.second}) less the other ({comparison.first})"))
    table = _table("metric", "other", "this", "difference", "95% interval", "p")
    for name, score in comparison.metrics.items():
        signed = f"{score.difference:+.4f}" if not math.isnan(score.difference) else "–"
        interval = f"{_number(score.low)} to {_number(score.high)}"
        table.add_row(name, _number(score.first), _number(score.second), signed, interval, _number(score.p))
    out.print(table)
    out.print("p by approximate randomisation; interval by the paired bootstrap")
    if (pair := comparison.mcnemar) is not None:
        out.print(
            f"McNemar: p {pair.p:.4f} ({pair.only_second:,} right in this alone, {pair.only_first:,} in the other "
            f"alone, {pair.both:,} in both, {pair.neither:,} in neither)"
        )


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
        _show(out, part)


COLUMNS = {
    "language": "{}",
    "tokens": "{:,}",
    "hidden": "{:,}",
    "loss": "{:.3f}",
    "perplexity": "{:,.1f}",
    "accuracy": "{:.1%}",
    "unigram_loss": "{:.3f}",
    "unigram_accuracy": "{:.1%}",
    "fertility": "{:.2f}",
}
"""Of held-out text."""
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


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.1f}"
