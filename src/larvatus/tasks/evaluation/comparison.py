"""Two models on the same examples: is the second better, or was it luck?

    both = compare_evaluations(evaluate_texts(one, data), evaluate_texts(other, data))
    both.metrics["accuracy"].difference, both.metrics["accuracy"].p, both.mcnemar

Of each metric: the difference (the second less the first) with its 95% interval by the paired bootstrap, and p by
approximate randomisation (`metrics/paired.py`); where each text has one right answer, and of exact matches of answers
to questions, McNemar's exact test as well. Labels are told by name, so that models whose classes stand in another order
compare.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus import notebook
from larvatus.errors import DataError, UsageError
from larvatus.metrics.paired import mcnemar, paired_bootstrap, randomisation
from larvatus.tasks.answers.evaluation import AnswerEvaluation, paired_answers
from larvatus.tasks.evaluation.evaluated import TagEvaluation, TextEvaluation, plain, right_answers
from larvatus.tasks.evaluation.resampled import Resampled, resampled_classes, resampled_tags, resampled_words
from larvatus.tasks.spans.evaluation import SpanEvaluation, paired_spans

Evaluation = TextEvaluation | TagEvaluation | SpanEvaluation | AnswerEvaluation
Rows = tuple[dict[str, Resampled], dict[str, Resampled]]


@dataclass(frozen=True, kw_only=True)
class PairedScore:
    first: float
    second: float
    difference: float
    """Second less first."""
    low: float
    high: float
    """95% interval of the difference."""
    p: float
    """By approximate randomisation; NaN where a score is not defined."""
    p_bootstrap: float


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Texts by which of two models answers them rightly, and McNemar's p."""

    both: int
    only_first: int
    only_second: int
    neither: int
    p: float


@dataclass(frozen=True, kw_only=True)
class ModelComparison:
    first: str
    second: str
    metrics: dict[str, PairedScore]
    mcnemar: Outcomes | None
    """None of numbers, and of words, which are no independent examples."""

    def _repr_html_(self) -> str:
        rows = [
            (name, f"{each.first:.4f}", f"{each.second:.4f}", f"{each.difference:+.4f}", f"{each.p:.3g}")
            for name, each in self.metrics.items()
        ]
        return notebook.table(("metric", self.first, self.second, "difference", "p"), rows)

    def to_dict(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "second": self.second,
            "metrics": {name: plain(dataclasses.asdict(one)) for name, one in self.metrics.items()},
            "mcnemar": None if self.mcnemar is None else dataclasses.asdict(self.mcnemar),
        }


def compare_evaluations(
    first: Evaluation, second: Evaluation, *, samples: int = 1000, seed: int = 0
) -> ModelComparison:
    if first.data.examples != second.data.examples:
        raise DataError(
            f"two models are compared on the same examples, not on {first.data.source} and {second.data.source}"
        )
    outcomes = None
    if isinstance(first, TextEvaluation) and isinstance(second, TextEvaluation):
        rows = _rows_of_texts(first, second)
        if first.kind != "regression":
            outcomes = _outcomes(right_answers(first), right_answers(second))
    elif isinstance(first, TagEvaluation) and isinstance(second, TagEvaluation):
        rows = _rows_of_tags(first, second)
    elif isinstance(first, SpanEvaluation) and isinstance(second, SpanEvaluation):
        rows = paired_spans(first, second)
    elif isinstance(first, AnswerEvaluation) and isinstance(second, AnswerEvaluation):
        rows = paired_answers(first, second)
        outcomes = _outcomes(first.exact > 0, second.exact > 0)
    else:
        raise UsageError(f"{first.model} and {second.model} do different tasks; compare two of the same")
    metrics = {name: _paired(rows[0][name], rows[1][name], samples=samples, seed=seed) for name in rows[0]}
    return ModelComparison(first=first.model, second=second.model, metrics=metrics, mcnemar=outcomes)


def _rows_of_texts(first: TextEvaluation, second: TextEvaluation) -> Rows:
    if first.kind != second.kind:
        raise UsageError(
            f"{first.model} is a model of {first.kind}, {second.model} of {second.kind}; compare two of the same kind"
        )
    if first.kind == "multi-label" and set(first.labels) != set(second.labels):
        raise UsageError(f"{first.model} and {second.model} have different labels; compare models of the same")
    names = tuple(dict.fromkeys((*first.labels, *second.labels)))
    place = np.array([names.index(label) for label in second.labels])
    found: npt.NDArray[np.generic] = second.found
    if first.kind == "multi-class":
        found = place[np.asarray(second.found, np.int64)]
    elif first.kind == "multi-label":
        found = second.found[:, np.argsort(place)]
    known = [set(one.labels) - set(one.unknown) for one in (first, second)]
    binary = len(known[0]) == 2 and known[0] == known[1]
    return (
        resampled_classes(first.gold, first.found, kind=first.kind, classes=len(names), binary=binary),
        resampled_classes(first.gold, found, kind=first.kind, classes=len(names), binary=binary),
    )


def _rows_of_tags(first: TagEvaluation, second: TagEvaluation) -> Rows:
    """Accuracy where both write tags alike, entities where both spell any."""
    one: dict[str, Resampled] = {}
    other: dict[str, Resampled] = {}
    if first.scheme == second.scheme:
        one, other = resampled_words(first.right, first.words), resampled_words(second.right, second.words)
    if "none" not in (first.scheme, second.scheme):  # counted in one go, so that both have the same types
        count = len(first.words)
        entities = resampled_tags(
            ([*first.gold_entities, *second.gold_entities], [*first.found_entities, *second.found_entities]),
            ([*first.gold_strict, *second.gold_strict], [*first.found_strict, *second.found_strict]),
        )
        one |= {name: dataclasses.replace(all_of, rows=all_of.rows[:count]) for name, all_of in entities.items()}
        other |= {name: dataclasses.replace(all_of, rows=all_of.rows[count:]) for name, all_of in entities.items()}
    if not one:
        raise UsageError(f"{first.model} and {second.model} write tags otherwise and have no metric in common")
    return one, other


def _paired(first: Resampled, second: Resampled, *, samples: int, seed: int) -> PairedScore:
    a, b = first.rows, second.rows
    interval = paired_bootstrap(a, b, first.score, of=first.of, samples=samples, seed=seed)
    chance = randomisation(a, b, first.score, of=first.of, samples=samples, seed=seed)
    known = not np.isnan(interval.difference)
    assert interval.low is not None
    assert interval.high is not None
    return PairedScore(
        first=interval.first,
        second=interval.second,
        difference=interval.difference,
        low=interval.low,
        high=interval.high,
        p=chance.p if known else float("nan"),
        p_bootstrap=interval.p if known else float("nan"),
    )


def _outcomes(a: npt.NDArray[np.bool_], b: npt.NDArray[np.bool_]) -> Outcomes:
    return Outcomes(
        both=int((a & b).sum()),
        only_first=int((a & ~b).sum()),
        only_second=int((~a & b).sum()),
        neither=int((~a & ~b).sum()),
        p=mcnemar(a, b),
    )
