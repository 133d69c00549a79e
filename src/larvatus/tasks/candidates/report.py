"""What a search among candidates tried and chose: a record of the run, and a table for people.

search of 400 examples by 5-fold cross-validation (accuracy), 48 of 120 seconds
candidate                     accuracy        95%  seconds
TF-IDF, logistic regression      0.640  0.59–0.69        3
linear head *                    0.792  0.75–0.83       12
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from larvatus.core.tables import Table
from larvatus.metrics.intervals import paired_bootstrap
from larvatus.tasks.evaluation.resampling import resampled_classes

BASELINE = "TF-IDF, logistic regression"
Outcome = Literal["model", "baseline", "unclear"]


class CandidateScore(Struct, frozen=True, kw_only=True):
    """A candidate with its cross-validated score."""

    name: str
    score: float
    low: float
    high: float
    """Ends of the 95% bootstrap interval over examples."""
    seconds: float
    """Time of all folds, with computing the vectors."""
    penalty: float = 0.0
    """C of logistic regression; 0 of fine-tuned weights, which have none."""


class BaselineComparison(Struct, frozen=True, kw_only=True):
    """Scores of a classifier and of a bag of words on the same texts, which neither was trained on."""

    metric: str
    texts: int
    model: float
    model_low: float
    model_high: float
    baseline: float
    baseline_low: float
    baseline_high: float
    low: float
    """Lower end of the 95% interval of the difference, model less baseline."""
    high: float

    @property
    def outcome(self) -> Outcome:
        """Which is better; unclear if 0 is in the interval of the difference."""
        if self.low > 0:
            return "model"
        return "baseline" if self.high < 0 else "unclear"

    @property
    def verdict(self) -> str:
        """The outcome in plain words, and what to do if counting words is enough."""
        scores = f"{self.metric} {self.model:.3f} against {self.baseline:.3f}"
        ends = f"difference {self.low:+.3f} to {self.high:+.3f}".replace("-", "−")
        if self.outcome == "model":
            return f"The model is better than a bag of words: {scores} on {self.texts:,} texts ({ends})."
        if self.outcome == "baseline":
            return (
                f"A bag of words is better: {scores} on {self.texts:,} texts ({ends}). For these texts, counting words "
                "is enough: use scikit-learn's TfidfVectorizer with LogisticRegression, or try another model."
            )
        return (
            f"No clear difference from a bag of words: {scores} on {self.texts:,} texts ({ends}). Counting words may "
            "be enough for these texts; more labelled examples would tell."
        )

    def to_dict(self) -> dict[str, Any]:
        named = {name: getattr(self, name) for name in self.__struct_fields__}
        return {**named, "outcome": self.outcome, "verdict": self.verdict}


def compare_with_baseline(
    gold: Sequence[str],
    baseline: Sequence[str],
    model: Sequence[str],
    *,
    labels: Sequence[str],
    metric: str = "accuracy",
) -> BaselineComparison:
    """Compare the labels that both gave to the same texts, by the paired bootstrap; `metric` of `resampled_classes`."""
    numbers = {label: number for number, label in enumerate(dict.fromkeys([*labels, *gold, *baseline, *model]))}
    answers = [np.array([numbers[each] for each in column], np.int64) for column in (gold, baseline, model)]
    binary = len(labels) == 2
    theirs, ours = (
        resampled_classes(answers[0], each, kind="multi-class", classes=len(numbers), binary=binary)[metric]
        for each in answers[1:]
    )
    difference = paired_bootstrap(theirs.rows, ours.rows, ours.score, of=ours.of)
    assert difference.low is not None, "the bootstrap gives an interval"
    assert difference.high is not None
    first, second = (each.interval(samples=1_000, seed=0) for each in (ours, theirs))
    return BaselineComparison(
        metric=metric,
        texts=len(gold),
        model=first.value,
        model_low=first.low,
        model_high=first.high,
        baseline=second.value,
        baseline_low=second.low,
        baseline_high=second.high,
        low=difference.low,
        high=difference.high,
    )


class SearchReport(Struct, frozen=True, kw_only=True):
    """Candidates of a search, in the order in which they were tried."""

    metric: str
    examples: int
    folds: int
    seconds: float
    minutes: float
    """The time budget."""
    candidates: tuple[CandidateScore, ...]
    chosen: str
    """Name of the candidate that the model was trained as."""
    values: dict[str, float]
    """All cross-validated metrics of the chosen candidate."""
    skipped: tuple[str, ...] = ()
    """Candidates that were not tried, with the reason."""
    comparison: BaselineComparison | None = None
    """The chosen candidate next to the bag of words, on the same cross-validated texts; None if it was not tried."""

    @property
    def best(self) -> CandidateScore:
        """The chosen candidate."""
        return next(each for each in self.candidates if each.name == self.chosen)

    @property
    def baseline(self) -> CandidateScore | None:
        return next((each for each in self.candidates if each.name == BASELINE), None)

    @property
    def verdict(self) -> str:
        """Whether the bag of words is better than what is saved, and what to do then."""
        baseline, best = self.baseline, self.best
        if baseline is None or baseline.score <= best.score:
            return f"saved: {self.chosen}, trained on all {self.examples:,} examples"
        return (
            f"TF-IDF wins: {baseline.score:.3f} against {best.score:.3f} of {self.chosen}, which is saved since a "
            "model directory holds an encoder; try more --minutes or another --model, or use "
            "scikit-learn's TfidfVectorizer with LogisticRegression"
        )

    def parts(self) -> Iterator[Table | str]:
        """The table, what was not tried, and the verdict."""
        rows = [
            (
                f"{each.name} *" if each.name == self.chosen else each.name,
                f"{each.score:.3f}",
                f"{each.low:.3f}–{each.high:.3f}",
                f"{each.seconds:.0f}",
            )
            for each in self.candidates
        ]
        title = f"{self.folds}-fold cross-validation of {self.examples:,} examples, {self.seconds:.0f} s"
        yield Table(("candidate", self.metric, "95% interval", "seconds"), rows, title=title, notes=self.skipped)
        yield f"* {self.verdict}"
