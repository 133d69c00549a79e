"""Strict F1 of relations: against counting by hand, and against scikit-learn on the labels of all pairs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from larvatus.metrics.entities import relation_f1

SPANS = [(0, 1, "PER"), (2, 3, "ORG"), (2, 4, "ORG"), (2, 3, "LOC")]
PAIRS = [(a, b) for a in SPANS for b in SPANS if a != b]
LABELS = ["none", "in", "of"]
labelled = st.lists(st.sampled_from(LABELS), min_size=len(PAIRS), max_size=len(PAIRS))


def relations(labels: list[str]) -> set:
    return {(a, b, label) for (a, b), label in zip(PAIRS, labels, strict=True) if label != "none"}


@settings(max_examples=50)
@given(gold=labelled, guess=labelled)
def test_micro_f1_is_that_of_the_labels_of_all_pairs(gold, guess) -> None:
    wanted = f1_score(gold, guess, labels=["in", "of"], average="micro", zero_division=0)
    assert relation_f1([relations(gold)], [relations(guess)]).micro.f1 == pytest.approx(wanted)


def test_a_wrong_boundary_type_label_or_direction_is_wrong() -> None:
    jane, org, longer, place = SPANS
    gold = [{(jane, org, "in")}, set()]
    for wrong in ((jane, longer, "in"), (jane, place, "in"), (jane, org, "of"), (org, jane, "in")):
        assert relation_f1(gold, [{wrong}, set()]).micro.f1 == 0
    score = relation_f1(gold, [{(jane, org, "in")}, {(jane, org, "in")}])
    assert (score.micro.precision, score.micro.recall, score.by_label["in"].support) == (0.5, 1.0, 1)
