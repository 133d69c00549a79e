"""Results of a comparison: one record per run, the metrics of each candidate over its seeds, and the tables of both.

    results.rows()                 # "masked-lm loss": {"bert": 3.21 ± 0.02, "roberta": 3.05 ± 0.01}, …
    as_table(results)              # one row per metric, one column per candidate

Losses per token depend on the recipe's masks and vocabulary, and compare only between runs that share both. Word-level
masked NLL (`word_nll.py`) compares across recipes. So does, roughly, the gain over the unigram baseline: the share by
which the loss is below that of predicting from token frequencies. The best value is bold only if its 95% interval
overlaps with no other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from larvatus.core import notebook
from larvatus.core.settings import Settings
from larvatus.core.tables import Cell, Column, Table, Tabular
from larvatus.evaluation.compare.fine_tuned import (
    AVERAGE,
    GROUP,
    Better,
    FineTuneRefusal,
    FineTuneScore,
    Kind,
    MetricRow,
    SeedMean,
    SetFacts,
    fine_tuned_rows,
)
from larvatus.evaluation.compare.word_nll import WordNLL
from larvatus.metrics.figures import Figure
from larvatus.training.pretraining.checkpoint import LossCurvePoint


class ComparedObjective(Settings):
    """Scores of one objective on validation text, with the recipe's own masks."""

    loss: float
    accuracy: float
    count: int


class LossPoint(LossCurvePoint):
    """Validation loss during training, of the objective that predicts words."""

    @property
    def gain(self) -> float:
        return 1 - self.loss / self.guess


class RunResult(Settings):
    """One candidate trained from one seed."""

    label: str
    seed: int
    path: str
    parameters: int
    vocabulary: int
    """Size of the vocabulary."""
    tokenizer: str
    """Fingerprint of the vocabulary: runs with the same fingerprint tokenize text alike."""
    cased: bool
    steps: int
    tokens: int
    """Training tokens."""
    seconds: float
    """Time spent on training steps."""
    epochs: float
    """Number of passes over the corpus."""
    words: float = 0.0
    """Number of training words."""
    length: int
    """Longest sequence of the last phase, used for evaluation."""
    objectives: dict[str, ComparedObjective]
    """Scores by objective; empty without validation text."""
    predicts: str = "masked-lm"
    """The objective that predicts words, which the unigram baseline is compared with."""
    guess_loss: float | None = None
    guess_accuracy: float | None = None
    word_nll: WordNLL | None = msgspec.field(default=None, name="yardstick")
    languages: dict[str, ComparedObjective] = {}
    """Masked-lm scores by language; those of word-level masked NLL are in `word_nll.languages`."""
    curve: tuple[LossPoint, ...] = ()

    @property
    def gain(self) -> float | None:
        """Share by which the loss is below that of the unigram baseline."""
        predicted = self.objectives.get(self.predicts)
        return 1 - predicted.loss / self.guess_loss if predicted and self.guess_loss else None


class ComparisonResults(Tabular, Settings):
    runs: tuple[RunResult, ...]
    budget: str
    notes: tuple[str, ...] = ()
    """Caveats of the table."""
    sets: tuple[SetFacts, ...] = ()
    """Labelled sets on which every model was fine-tuned."""
    tuned: tuple[FineTuneScore, ...] = ()
    refusals: tuple[FineTuneRefusal, ...] = ()
    """Models that could not be fine-tuned on a set, and why."""
    seconds: Mapping[str, float] = {}
    """Seconds of each stage of this call; reused results take none."""

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(run.label for run in self.runs))

    @property
    def languages(self) -> list[str]:
        """Languages in which any model was measured, if there are several."""
        names = {name for run in self.runs for name in (*run.languages, *(run.word_nll or run).languages)}
        return sorted(names) if len(names) > 1 else []

    @property
    def one_vocabulary(self) -> bool:
        return len({run.tokenizer for run in self.runs}) == 1

    def _repr_html_(self) -> str:
        def cell(value: SeedMean | None) -> str:
            spread = "" if value is None or not value.deviation else f" ± {value.deviation:.3g}"
            return "–" if value is None else f"{value.mean:.4g}{spread}"

        rows = [(row.name, *(cell(row.values[label]) for label in self.labels)) for row in self.rows()]
        title = f"the same budget for all: {self.budget}"
        return notebook.table(("", *self.labels), rows, title=title, note=" ".join(self.notes))

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each metric and model: mean and deviation over seeds, None if it was not measured."""
        rows = []
        for row in self.rows():
            for label in self.labels:
                value = row.values[label]
                mean, deviation = (None, None) if value is None else (value.mean, value.deviation)
                named = {"measure": row.name, "group": row.group, "model": label}
                rows.append({**named, "mean": mean, "deviation": deviation})
        return rows

    def figures(self) -> Iterator[Figure]:
        """Every metric of every candidate, with the wider of its intervals over seeds and over examples."""
        for row in self.rows():
            for label, value in row.values.items():
                if value is not None:
                    ends = value.interval or (None, None)
                    yield Figure.between(row.name, value.mean, ends, category=row.group, group=label)

    def rows(self) -> list[MetricRow]:
        """All metrics; those that compare across vocabularies come last."""

        def row(
            name: str,
            group: str,
            kind: Kind,
            get: Callable[[RunResult], float | None],
            better: Better,
            error: Callable[[RunResult], float | None] = lambda run: None,
        ) -> MetricRow:
            values = {
                label: SeedMean.of(self._numbers(label, get), errors=self._numbers(label, error))
                for label in self.labels
            }
            return MetricRow(name=name, group=group, kind=kind, better=better, values=values)

        rows = [
            row("parameters", "size", "count", lambda run: run.parameters, None),
            row("vocabulary", "size", "count", lambda run: run.vocabulary, None),
            row("steps", "work", "count", lambda run: run.steps, None),
            row("tokens seen", "work", "count", lambda run: run.tokens, None),
            row("words of text seen", "work", "count", lambda run: run.words or None, None),
            row("epochs", "work", "number", lambda run: run.epochs, None),
            row("minutes", "work", "number", lambda run: run.seconds / 60, None),
            row("tokens/s", "work", "count", lambda run: run.tokens / max(run.seconds, 1e-9), "higher"),
        ]
        for name in dict.fromkeys(name for run in self.runs for name in run.objectives):
            rows.append(row(f"{name} loss", "held out, own masks", "number", _loss(name), None))
            rows.append(row(f"{name} right", "held out, own masks", "share", _right(name), None))
        alike = self.one_vocabulary and len({run.predicts for run in self.runs}) == 1
        gain: Better = "higher" if alike else None
        rows.append(row("gain over unigram", "held out, own masks", "share", lambda run: run.gain, gain))
        for name in self.languages:
            rows.append(row(f"{name}: masked-lm loss", "held out, own masks", "number", _loss_in(name), None))
        group = "same words masked for all"
        rows += [
            row("loss a word, nats", group, "number", _word("loss"), "lower", _word("error")),
            row("bits a character", group, "number", _word("bits"), "lower", _bits_error),
            row("words right", group, "share", _word("accuracy"), "higher"),
            *(
                row(f"{name}: loss a word", group, "number", _word_in(name, "loss"), "lower", _word_in(name, "error"))
                for name in self.languages
            ),
        ]
        return rows + self.fine_tuned_rows()

    def fine_tuned_rows(self) -> list[MetricRow]:
        """Scores after fine-tuning, one row per labelled set."""
        return fine_tuned_rows(self.tuned, self.sets, self.labels)

    def _numbers(self, label: str, get: Callable[[RunResult], float | None]) -> list[float]:
        numbers = [get(run) for run in self.runs if run.label == label]
        return [number for number in numbers if number is not None]


def _loss(name: str) -> Callable[[RunResult], float | None]:
    return lambda run: run.objectives[name].loss if name in run.objectives else None


def _right(name: str) -> Callable[[RunResult], float | None]:
    return lambda run: run.objectives[name].accuracy if name in run.objectives else None


def _word(name: str) -> Callable[[RunResult], float | None]:
    return lambda run: float(getattr(run.word_nll, name)) if run.word_nll else None


def _bits_error(run: RunResult) -> float | None:
    """Bits are the loss in another unit, so both have the same relative error."""
    score = run.word_nll
    return score.error / score.loss * score.bits if score and score.loss else None


def _loss_in(language: str) -> Callable[[RunResult], float | None]:
    return lambda run: run.languages[language].loss if language in run.languages else None


def _word_in(language: str, name: str) -> Callable[[RunResult], float | None]:
    def get(run: RunResult) -> float | None:
        score = run.word_nll.languages.get(language) if run.word_nll else None
        return None if score is None else float(getattr(score, name))

    return get


def as_table(results: ComparisonResults) -> Table:
    """The table of pretraining, with its caveats as notes."""
    rows: list[list[Cell]] = []
    group = ""
    for row in results.rows():
        if row.group == GROUP:
            continue
        if row.group != group:
            group = row.group
            rows.append([Cell(group, style="dim")])
        rows.append([Cell(f"  {row.name}"), *(_cell(row, label) for label in results.labels)])
    return Table(
        title=f"the same budget for all: {results.budget}",
        columns=[Column("", right=False), *(Column(label) for label in results.labels)],
        rows=rows,
        notes=[Cell(f"note: {note}", style="yellow") for note in results.notes],
    )


def fine_tuned_table(results: ComparisonResults) -> Table | None:
    """Scores after fine-tuning, each with its interval below it; None if nothing was fine-tuned."""
    if not results.sets:
        return None
    rows: list[list[Cell]] = []
    for row in results.fine_tuned_rows():
        rows.append([Cell(row.name), *(_cell(row, label) for label in results.labels)])
        if row.name != AVERAGE:
            intervals = [_interval(row.values[label], row.kind) for label in results.labels]
            rows.append([Cell("  95% interval", style="dim"), *(Cell(words, style="dim") for words in intervals)])
    seeds = len({(result.seed, result.tuning_seed) for result in results.tuned})
    over = f", mean ± deviation over {seeds} seeds" if seeds > 1 else ""
    refused = [f"note: {each.label} was not fine-tuned on {each.set}: {each.why}" for each in results.refusals]
    return Table(
        title=f"fine-tuned on the same labelled sets{over}",
        columns=[Column("", right=False), *(Column(label) for label in results.labels)],
        rows=rows,
        notes=[Cell(_facts(results.sets), style="dim"), *(Cell(note, style="yellow") for note in refused)],
    )


def _facts(sets: Sequence[SetFacts]) -> str:
    """Numbers of training and of scored examples."""
    counts = ", ".join(f"{facts.name} {facts.train:,} and {facts.scored:,}" for facts in sets)
    chosen = [facts.name for facts in sets if not facts.is_test]
    by = f"; best weights were chosen by the scored examples of {', '.join(chosen)}" if chosen else ""
    return f"training and scored examples: {counts}{by}"


def _interval(value: SeedMean | None, kind: Kind) -> str:
    """
    >>> _interval(SeedMean(mean=0.8, low=0.774, high=0.82), "share")
    '77.4 to 82.0'
    """
    if value is None or value.low is None or value.high is None:
        return ""
    digits, scale = (1, 100) if kind == "share" else (3, 1)
    return f"{scale * value.low:.{digits}f} to {scale * value.high:.{digits}f}"


def _cell(row: MetricRow, label: str) -> Cell:
    return Cell(format_value(row.values[label], row.kind), style="bold green" if label == row.best else "")


def format_value(value: SeedMean | None, kind: Kind) -> str:
    """
    >>> format_value(SeedMean(mean=0.3145, deviation=0.002), "share"), format_value(SeedMean(mean=4.4e6), "count")
    ('31.4% ± 0.2', '4.40M')
    """
    if value is None:
        return "–"
    spread = value.deviation or 0.0
    if kind == "share":
        words, extra = f"{value.mean:.1%}", f" ± {100 * spread:.1f}"
    elif kind == "count":
        words, extra = _short(value.mean), f" ± {_short(spread)}"
    else:
        words, extra = f"{value.mean:.3f}", f" ± {spread:.3f}"
    return words + extra if value.deviation else words


def _short(number: float) -> str:
    """
    >>> [_short(n) for n in (12, 9_999, 4_386_178, 31_000_000_000)]
    ['12', '9,999', '4.39M', '31.0B']
    """
    for size, unit in ((1e9, "B"), (1e6, "M")):
        if number >= size:
            digits = max(0, 2 - int(math.log10(number / size)))
            return f"{number / size:.{digits}f}{unit}"
    return f"{number:,.0f}"
