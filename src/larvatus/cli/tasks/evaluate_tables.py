"""An evaluation of a fine-tuned model, a comparison and GLUE's scores as tables for people."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from larvatus.arrays import Ints
from larvatus.labelled.glue import PUBLISHED, GlueTask
from larvatus.metrics.classification import F1
from larvatus.metrics.entities import EntityErrors
from larvatus.tasks.answers.evaluation import AnswerEvaluation
from larvatus.tasks.evaluation.comparison import Evaluation, ModelComparison
from larvatus.tasks.evaluation.evaluated import Calibration, Reading, TagEvaluation, TextEvaluation
from larvatus.tasks.evaluation.evaluation import most_confused
from larvatus.tasks.spans.evaluation import SpanEvaluation

WIDE = 200  # where there is no terminal whose width must be kept
MOST_ROWS = 30
"""Classes in a table; the rest are counted."""
MOST_COLUMNS = 12
"""Classes of a confusion matrix that is shown whole; of a larger one the most frequent confusions are."""
CONFUSIONS = 10


def console() -> Console:
    found = Console(highlight=False)
    return found if found.is_terminal else Console(width=WIDE, highlight=False)


def show_evaluation(out: Console, found: Evaluation) -> None:
    out.print(escape(f"{found.model} on {found.data.describe()}"))
    table = _table("metric", "score", "95% interval")
    for name, one in found.metrics.items():
        table.add_row(name, _number(one.value), f"{_number(one.low)} to {_number(one.high)}")
    out.print(table)
    if isinstance(found, SpanEvaluation):
        _show_spans(out, found)
    elif isinstance(found, AnswerEvaluation):
        _show_answers(out, found)
    else:
        _show_labels(out, found)
        for line in found.notes:
            out.print(escape(f"\n{line}"))
    out.print(f"\n{said_of_reading(found.reading)}")


def _show_labels(out: Console, found: TextEvaluation | TagEvaluation) -> None:
    if isinstance(found, TagEvaluation):
        if found.errors is not None:
            _show_classes(out, "type", found.by_type)
            _show_errors(out, "entities", found.errors)
            out.print(
                "entities are read leniently, as by conlleval and predict; entity-f1-strict counts none that "
                f"{found.scheme} forbids"
            )
        else:
            _show_classes(out, "tag", found.by_tag)
    elif found.by_class:
        _show_classes(out, "class", found.by_class)
    if found.confusion is not None:
        _show_confusion(out, found.confusion, found.labels, pairs=isinstance(found, TagEvaluation))
    if found.calibration is not None:
        _show_calibration(out, found.calibration)


def _show_errors(out: Console, what: str, wrong: EntityErrors) -> None:
    out.print(
        f"\n{what}: {wrong.boundary:,} with wrong boundaries, {wrong.type:,} of the wrong type, "
        f"{wrong.both:,} both; {wrong.missed:,} missed, {wrong.spurious:,} spurious"
    )


def _show_spans(out: Console, found: SpanEvaluation) -> None:
    _show_classes(out, "type", found.by_type)
    _show_classes(out, "depth", {str(depth): one for depth, one in found.by_depth.items()})
    _show_errors(out, "spans", found.errors)
    out.print(f"{found.decoding} decoding, threshold {found.threshold:g}, spans of up to {found.longest:,} words")
    for line in found.notes:
        out.print(escape(line))


def _show_answers(out: Console, found: AnswerEvaluation) -> None:
    none = sum(not text for text in found.answers)
    out.print(f"\nscored by the rules of SQuAD {found.version}; {none:,} of {len(found.data):,} questions not answered")
    if found.threshold is None:
        return
    best = ", ".join(f"{name} {one.score:.4f} at {one.threshold:.3f}" for name, one in found.best.items())
    out.print(f"threshold of no answer {found.threshold:.3f}; the best on these questions: {best}")


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


def _show_classes(out: Console, name: str, rows: dict[str, F1]) -> None:
    table = _table(name, "precision", "recall", "F1", "gold")
    shown = list(rows.items())[:MOST_ROWS]
    for label, one in shown:
        table.add_row(escape(label), *(f"{x:.4f}" for x in (one.precision, one.recall, one.f1)), f"{one.support:,}")
    out.print()
    out.print(table)
    if len(rows) > len(shown):
        out.print(f"… and {len(rows) - len(shown):,} more (--json has all)")


def _show_confusion(out: Console, counts: Ints, labels: Sequence[str], *, pairs: bool) -> None:
    out.print()
    if len(labels) <= MOST_COLUMNS and not pairs:
        table = _table("gold ↓ answer →", *(escape(label) for label in labels))
        for label, row in zip(labels, counts.tolist(), strict=True):
            table.add_row(escape(label), *(f"{count:,}" if count else "·" for count in row))
        out.print(table)
        return
    confused = most_confused(counts, tuple(labels))[:CONFUSIONS]
    if not confused:
        return
    table = _table("gold", "taken for", "times", "of its gold")
    for one in confused:
        table.add_row(escape(one.gold), escape(one.found), f"{one.count:,}", f"{one.share:.1%}")
    out.print(table)


def _show_calibration(out: Console, found: Calibration) -> None:
    out.print(
        f"\ncalibration: ECE {found.ece:.4f} · NLL {found.nll:.4f} · Brier {found.brier:.4f} "
        f"(temperature {found.temperature:.3g})"
    )
    table = _table("probability", "answers", "mean", "right")
    bins = found.reliability
    for low, high, count, sure, right in zip(
        bins.edges[:-1], bins.edges[1:], bins.count, bins.confidence, bins.accuracy, strict=True
    ):
        if count:
            table.add_row(f"{low:.2f} to {high:.2f}", f"{count:,}", f"{sure:.3f}", f"{right:.3f}")
    out.print(table)


def show_comparison(out: Console, found: ModelComparison) -> None:
    out.print(escape(f"\nthis ({found.second}) less the other ({found.first})"))
    table = _table("metric", "other", "this", "difference", "95% interval", "p")
    for name, one in found.metrics.items():
        signed = f"{one.difference:+.4f}" if not math.isnan(one.difference) else "–"
        interval = f"{_number(one.low)} to {_number(one.high)}"
        table.add_row(name, _number(one.first), _number(one.second), signed, interval, _number(one.p))
    out.print(table)
    out.print("p by approximate randomisation; interval by the paired bootstrap")
    if (pair := found.mcnemar) is not None:
        out.print(
            f"McNemar: p {pair.p:.4f} ({pair.only_second:,} right in this alone, {pair.only_first:,} in the other "
            f"alone, {pair.both:,} in both, {pair.neither:,} in neither)"
        )


def show_glue(out: Console, found: Sequence[tuple[str, GlueTask, Evaluation]]) -> None:
    """Ours beside those of the paper, in percent."""
    table = _table("", *(f"{name}\n{task.metrics[0]}" for name, task, _ in found))
    table.add_row("here (dev)", *(_percent(one.metrics[task.metrics[0]].value) for _, task, one in found))
    for system, scores in PUBLISHED.items():
        table.add_row(system, *(_percent(scores[name] / 100) if name in scores else "–" for name, _, _ in found))
    out.print()
    out.print(table)
    out.print("published: Devlin et al. (2019), table 1, on the test sets, which GLUE's server scores; ours on dev")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left")
    return table


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.1f}"
