"""Scores of spans and answers that are resampled equal those counted in one go, with and without paired tests."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.records import Dataset, Place, QuestionExample
from larvatus.data.labelled.span_records import SpannedWords
from larvatus.data.text.tag_schemes import EntitySpan
from larvatus.metrics.entities import span_f1
from larvatus.models.heads import ClassificationConfig, QuestionAnsweringConfig, SpansConfig
from larvatus.tasks.answers.evaluation import evaluate_answers, resampled_answers
from larvatus.tasks.evaluation.comparison import compare_evaluations
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.spans.evaluation import evaluate_spans, resampled_spans, span_scores

FEW = EvaluationOptions(samples=20)
Spans = set[tuple[int, int, str]]


@st.composite
def texts(draw: st.DrawFn) -> tuple[list[Spans], list[Spans]]:
    def one() -> st.SearchStrategy[Spans]:
        span = st.tuples(st.integers(0, 4), st.integers(1, 5), st.sampled_from("ABC"))
        return st.sets(span.map(lambda s: (s[0], s[0] + s[1], s[2])), max_size=6)

    pairs = draw(st.lists(st.tuples(one(), one()), min_size=1, max_size=6))
    return [gold for gold, _ in pairs], [found for _, found in pairs]


@settings(max_examples=60, deadline=None)
@given(texts())
def test_sums_over_texts_give_the_scores_of_all(both: tuple[list[Spans], list[Spans]]) -> None:
    wanted = span_scores(span_f1(*both))
    rows = resampled_spans(*both)
    assert list(rows) == list(wanted)
    for name, one in rows.items():
        assert float(one.score(one.rows.sum(0))) == pytest.approx(wanted[name]), name
    twice = resampled_spans(*([*side, *side] for side in both))  # texts drawn twice change nothing
    for name, one in twice.items():
        assert float(one.score(one.rows.sum(0))) == pytest.approx(wanted[name]), name


def spanned(*spans: tuple[int, int, str], line: int = 1) -> SpannedWords:
    words = ("the", "river", "bank", "was", "wide")
    return SpannedWords(words, tuple(sorted(EntitySpan(*one) for one in spans)), Place("test.conllu", line))


DATA = Dataset(
    (spanned((0, 3, "LOC"), (1, 2, "WATER")), spanned(line=2), spanned((1, 3, "LOC"), line=3)), "test.conllu"
)


def test_two_models_of_spans_are_paired_text_by_text(tuned: Any) -> None:
    config = SpansConfig(labels=("LOC", "WATER"), longest=3, hidden=8, dropout=0.0)
    swapped = SpansConfig(labels=("WATER", "LOC"), longest=3, hidden=8, dropout=0.0)
    first, second = (evaluate_spans(tuned(one, seed=n), DATA, FEW) for n, one in enumerate((config, swapped)))
    both = compare_evaluations(first, second, samples=20)
    for name, one in both.metrics.items():
        assert one.first == pytest.approx(first.metrics[name].value), name
        assert one.second == pytest.approx(second.metrics[name].value), name
    binary = evaluate_spans(tuned(SpansConfig(labels=("SPAN",), longest=3, hidden=8)), DATA, FEW)
    assert binary.gold_spans[0] == {(0, 3, "SPAN"), (1, 2, "SPAN")}
    with pytest.raises(UsageError, match="do not find the same types"):
        compare_evaluations(first, binary)


def test_models_and_data_that_do_not_fit(tuned: Any) -> None:
    classifier = tuned(ClassificationConfig(labels=("no", "yes")))
    with pytest.raises(UsageError, match="does not find spans"):
        evaluate_spans(classifier, DATA)
    with pytest.raises(UsageError, match="does not answer questions"):
        evaluate_answers(classifier, ASKED)
    unknown = Dataset((SpannedWords(("the",), None, Place("a", 7)),), "a")
    with pytest.raises(DataError, match="a:7: its words have no spans"):
        evaluate_spans(tuned(SpansConfig(labels=("LOC",), hidden=8)), unknown)
    hidden = Dataset((QuestionExample("x", "which ?", "the river", (), False, None, Place("b", 7)),), "b")
    with pytest.raises(DataError, match="b:7: its answer is not given"):
        evaluate_answers(tuned(QuestionAnsweringConfig()), hidden)


def question(number: int, *answers: str) -> QuestionExample:
    passage = "the river bank was wide and deep ."
    found = tuple((text, passage.index(text)) for text in answers)
    return QuestionExample(f"q{number}", "was ?", passage, found, not answers, None, Place("dev.json", number))


ASKED = Dataset((question(1, "river bank"), question(2, "wide", "deep"), question(3), question(4)), "dev.json")


def tokens_of(text: str) -> list[str]:
    """Lower case, no ASCII punctuation, no articles, split at white space: SQuAD's rules, written out again."""
    kept = "".join(c for c in text.lower() if c not in string.punctuation)
    return [word for word in kept.split() if word not in ("a", "an", "the")]


def by_hand(golds: Sequence[str], prediction: str) -> tuple[float, float]:
    """F1 and exact match of one question under the rules of version 2, the best over its right answers."""
    found = []
    for gold in golds or [""]:
        wanted, given = tokens_of(gold), tokens_of(prediction)
        shared = 0
        rest = list(wanted)
        for token in given:
            if token in rest:
                rest.remove(token)
                shared += 1
        f1 = float(wanted == given) if not wanted or not given else 2 * shared / (len(wanted) + len(given))
        found.append((f1, float(wanted == given)))
    return max(f1 for f1, _ in found), max(exact for _, exact in found)


@pytest.mark.parametrize("null", [True, False])
def test_answers_score_by_squads_rules_written_out_again(tuned: Any, null: bool) -> None:
    bundle = tuned(QuestionAnsweringConfig(null=null, threshold=-0.5 if null else 0.0))
    found = evaluate_answers(bundle, ASKED, FEW)
    rows = [by_hand(one.golds, found.predictions[one.id]) for one in ASKED]
    assert (found.metrics["f1"].value, found.metrics["exact-match"].value) == pytest.approx(np.mean(rows, axis=0))
    assert (found.threshold is not None, bool(found.best), len(found.null_scores)) == (null, null, 4 if null else 0)
    answered = Dataset(ASKED.examples[:2], "dev.json")
    plain = evaluate_answers(tuned(QuestionAnsweringConfig(null=False)), answered, FEW)
    assert (plain.version, set(plain.metrics)) == ("1.1", {"f1", "exact-match"})
    both = [by_hand(own.golds, plain.predictions[own.id]) for own in answered]
    assert (plain.metrics["f1"].value, plain.metrics["exact-match"].value) == pytest.approx(np.mean(both, axis=0))


def test_a_kind_of_question_that_is_not_drawn_has_no_score() -> None:
    impossible = np.array([True, False, False])
    rows = resampled_answers(np.array([1.0, 0.0, 1.0]), np.array([1.0, 0.5, 1.0]), impossible, "2.0")
    assert set(rows) == {"f1", "exact-match", "has-answer-f1", "has-answer-exact", "no-answer"}
    assert np.isnan(rows["no-answer"].score(rows["no-answer"].rows[1:].sum(0)))
    assert float(rows["has-answer-f1"].score(rows["has-answer-f1"].rows.sum(0))) == 0.75
    assert set(resampled_answers(np.ones(1), np.ones(1), np.array([False]), "2.0")) & {"no-answer"} == set()
