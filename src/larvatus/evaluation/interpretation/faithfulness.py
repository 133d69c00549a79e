"""Faithfulness of explanations (ERASER, DeYoung et al. 2020, §4.2): do the words with high scores carry the prediction?

    comprehensiveness    mean over q of p(text) − p(text without the top q% of words)           higher is better
    sufficiency          mean over q of p(text) − p(only the top q% of words)                    lower is better

    q = 1, 5, 10, 20, 50, and ⌈q W⌉ of the W words; p is the probability of what the model predicts, and words are
    removed by masking them.

A random order of the words is measured in the same way, as the mean of several orders. Every figure is a mean over
texts with a 95% bootstrap interval, and so is the difference between a method and the random order on the same texts.
Both measures mask words, and leave-one-out does too, which favours it.

`check_text` shows both measures next to random orders for one text, where no interval is possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from larvatus.core import notebook
from larvatus.core.arrays import Doubles, Ints
from larvatus.core.errors import DataError, UsageError
from larvatus.core.rng import stream
from larvatus.core.tables import Column, Table, Tabular
from larvatus.inference.interpret.attributions import ExplainOptions, attribute, masked_scores
from larvatus.metrics.figures import Figure
from larvatus.metrics.intervals import Interval, bootstrap
from larvatus.metrics.ranking import spearman
from larvatus.tasks.outcome import ExplainedOutcome

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
ORDERS = 10
"""Random orders of a text."""
RANDOM = "random"
MEASURES = ("comprehensiveness", "sufficiency")


@dataclass(frozen=True)
class MethodFaithfulness:
    """One method over all texts."""

    method: str
    comprehensiveness: Interval
    sufficiency: Interval
    more_comprehensive: Interval | None
    """Comprehensiveness minus that of the random order; None for that order itself."""
    less_sufficient: Interval | None
    """Sufficiency of the random order minus that of the method: above 0, the method is better."""

    @property
    def better(self) -> bool:
        """Whether both measures beat the random order, with intervals that exclude 0."""
        differences = (self.more_comprehensive, self.less_sufficient)
        return all(each is not None and each.low > 0 for each in differences)


@dataclass(frozen=True)
class FaithfulnessTable(Tabular):
    """Which method to trust on these texts."""

    texts: int
    skipped: int
    """Texts of fewer than two words, or longer than the model's window."""
    incomplete: int
    """Texts whose integrated gradients kept a gap above the tolerance."""
    rows: tuple[MethodFaithfulness, ...]
    """The methods, then the random order."""
    best: tuple[str, ...]
    """The method with the highest comprehensiveness minus sufficiency among those that beat the random order, and those
    whose paired difference to it includes 0; empty if none beats the random order."""

    @property
    def verdict(self) -> str:
        if not self.best:
            return "no method is more faithful than a random order on these texts: trust none"
        if len(self.best) == 1:
            return f"most faithful on these texts: {self.best[0]}"
        return f"most faithful on these texts, and not told apart: {', '.join(self.best)}"

    def tables(self) -> Iterator[Table]:
        columns = [Column(name, whole=True) for name in (*MEASURES, "Δ comp.", "Δ suff.")]
        rows = [
            [
                row.method,
                *map(_shown, (row.comprehensiveness, row.sufficiency, row.more_comprehensive, row.less_sufficient)),
            ]
            for row in self.rows
        ]
        notes = [self.verdict, "Δ: better than the random order by so much"]
        if self.skipped:
            notes.append(f"{self.skipped:,} texts of fewer than two words, or longer than the window, were skipped")
        if self.incomplete:
            notes.append(f"integrated gradients of {self.incomplete:,} texts are not complete; raise --steps")
        yield Table(("method", *columns), rows, title=f"{self.texts:,} texts, 95% intervals", notes=notes)

    def __str__(self) -> str:
        return "\n".join(map(str, self.tables()))

    def _repr_html_(self) -> str:
        (table,) = self.tables()
        cells = [[cell.text for cell in row] for row in table.cells]
        return notebook.table([head.name for head in table.heads], cells, title=table.title, note=self.verdict)

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each method and measure."""
        return [
            {"method": figure.conditions["conditions"], "metric": figure.metric, "value": figure.value}
            | {"low": figure.low, "high": figure.high}
            for figure in self.figures()
        ]

    def to_dict(self) -> dict[str, Any]:
        counts = {"texts": self.texts, "skipped": self.skipped, "incomplete": self.incomplete}
        return {**counts, "best": list(self.best), "verdict": self.verdict, "rows": self.to_dicts()}

    def figures(self) -> Iterator[Figure]:
        """Both measures of every method, with intervals over texts."""
        for row in self.rows:
            for name in MEASURES:
                yield Figure.of(name, getattr(row, name), unit="texts", conditions=row.method)


def measure_faithfulness(
    outcomes: Iterable[ExplainedOutcome | None],
    options: ExplainOptions,
    mask: int,
    *,
    seed: int = 0,
    progress: Callable[[int], None] = lambda done: None,
) -> FaithfulnessTable:
    """Both measures of each method, over the predictions of several texts; None is a text to skip."""
    rows: list[Doubles] = []
    skipped = incomplete = 0
    for number, outcome in enumerate(outcomes):
        if outcome is None or len(outcome.spans) < 2:
            skipped += 1
            continue
        if outcome.is_number:
            raise UsageError("faithfulness is measured by probabilities, and the model predicts a number")
        attributions = [attribute(outcome, method, options, mask) for method in options.chosen]
        incomplete += any(abs(each.gap or 0.0) > options.tolerance for each in attributions)
        orders = [np.argsort(-each.scores, kind="stable") for each in attributions]
        words = len(outcome.spans)
        orders += [stream(seed, "random order", number, item).permutation(words) for item in range(ORDERS)]
        both = drops(outcome, orders, mask)
        rows.append(np.vstack([both[: len(attributions)], both[len(attributions) :].mean(0)]))
        progress(number + 1)
    if len(rows) < 2:
        raise DataError(
            f"faithfulness needs two texts or more; {skipped:,} of {skipped + len(rows):,} were skipped, since they "
            "have fewer than two words or are longer than the model's window; give others"
        )
    return _table(np.stack(rows), options, seed, skipped=skipped, incomplete=incomplete)


def drops(outcome: ExplainedOutcome, orders: Sequence[Ints], mask: int) -> Doubles:
    """[orders, 2] comprehensiveness and sufficiency of orders of words, those that matter most first."""
    words = len(outcome.spans)
    ranks_OW = np.argsort(np.stack(orders), axis=1)
    counts_Q = np.array([math.ceil(share * words) for share in SHARES])
    chosen_OQW = ranks_OW[:, None] < counts_Q[None, :, None]
    changed = np.concatenate([chosen_OQW, ~chosen_OQW]).reshape(-1, words)
    none = np.zeros((1, words), np.bool_)
    distinct, places = np.unique(np.concatenate([none, changed]), axis=0, return_inverse=True)
    probabilities = np.exp(masked_scores(outcome, distinct, mask))[places.ravel()]
    fallen = probabilities[0] - probabilities[1:].reshape(2, len(orders), len(SHARES))
    means: Doubles = fallen.mean(-1).T
    return means


@dataclass(frozen=True, kw_only=True)
class MethodOnText:
    """One method on one text, next to random orders of its words and to leave-one-out."""

    method: str
    comprehensiveness: float
    sufficiency: float
    beaten: float
    """Share of the random orders with a lower comprehensiveness minus sufficiency; a tie counts half."""
    agreement: float | None
    """Spearman's ρ of its scores with those of leave-one-out; None for leave-one-out itself and for equal scores."""


@dataclass(frozen=True, kw_only=True)
class TextFaithfulness:
    """Methods on one text."""

    rows: tuple[MethodOnText, ...]
    random: tuple[float, float]
    """Mean comprehensiveness and sufficiency of the random orders."""
    orders: int


def check_text(
    outcome: ExplainedOutcome,
    scores: Mapping[str, Doubles],
    mask: int,
    *,
    orders: int = 2 * ORDERS,
    seed: int = 0,
) -> TextFaithfulness | None:
    """Both measures of each method's scores [W] on one text; None for a number, or fewer than two words."""
    words = len(outcome.spans)
    if outcome.is_number or words < 2:
        return None
    sampled = [stream(seed, "random order", 0, item).permutation(words) for item in range(orders)]
    both = drops(outcome, [*(np.argsort(-each, kind="stable") for each in scores.values()), *sampled], mask)
    overall, random = both[:, 0] - both[:, 1], both[len(scores) :]
    left_out = scores.get("leave-one-out")
    rows = []
    for number, (name, each) in enumerate(scores.items()):
        lower = np.sign(overall[number] - overall[len(scores) :])
        rho = math.nan if left_out is None or each is left_out else spearman(each, left_out)
        rows.append(
            MethodOnText(
                method=name,
                comprehensiveness=float(both[number, 0]),
                sufficiency=float(both[number, 1]),
                beaten=float((1 + lower).mean() / 2),
                agreement=None if math.isnan(rho) else rho,
            )
        )
    return TextFaithfulness(
        rows=tuple(rows), random=(float(random[:, 0].mean()), float(random[:, 1].mean())), orders=orders
    )


def _table(
    scores_NM2: Doubles, options: ExplainOptions, seed: int, *, skipped: int, incomplete: int
) -> FaithfulnessTable:
    """The last of the M methods is the random order."""

    def mean(values_N: Doubles) -> Interval:
        return bootstrap(values_N, lambda sums: sums / len(values_N), seed=seed)

    random_N2, rows = scores_NM2[:, -1], []
    for number, name in enumerate((*options.chosen, RANDOM)):
        both_N2 = scores_NM2[:, number]
        comprehensive, sufficient = (
            (None, None) if name == RANDOM else ((both_N2 - random_N2)[:, 0], (random_N2 - both_N2)[:, 1])
        )
        rows.append(
            MethodFaithfulness(
                name,
                mean(both_N2[:, 0]),
                mean(both_N2[:, 1]),
                None if comprehensive is None else mean(comprehensive),
                None if sufficient is None else mean(sufficient),
            )
        )
    trusted = [number for number, row in enumerate(rows) if row.better]
    overall_NM = scores_NM2[:, :, 0] - scores_NM2[:, :, 1]
    first = max(trusted, key=lambda number: overall_NM[:, number].mean(), default=None)
    best = [] if first is None else [first]
    best += [each for each in trusted if each != first and mean(overall_NM[:, first] - overall_NM[:, each]).low <= 0]
    names = tuple(rows[number].method for number in best)
    return FaithfulnessTable(len(scores_NM2), skipped, incomplete, tuple(rows), names)


def _shown(interval: Interval | None) -> str:
    if interval is None:
        return ""
    return f"{interval.value:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"
