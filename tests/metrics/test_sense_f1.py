"""Sense F1 is that of the official scorer: cases counted by hand, and its definition as a loop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from larvatus.metrics.classification import sense_f1


def test_a_case_counted_by_hand():
    """5 words; one answered wrongly, one not at all, one with two answers of which one is right, two rightly."""
    gold = {
        "t1": ["art%1:09:00::"],
        "t2": ["peculiar%5:00:00:specific:00", "peculiar%5:00:00:characteristic:00"],
        "t3": ["be%2:42:03::"],
        "t4": ["rest%1:24:00::", "rest%1:28:00::"],
        "t5": ["world%1:17:00::"],
    }
    answers = {
        "t1": ["art%1:09:00::"],
        "t2": ["peculiar%5:00:00:characteristic:00"],  # one of the gold keys is enough
        "t3": ["be%2:42:06::"],
        "t4": ["rest%1:24:00::", "rest%1:04:00::"],  # half a point
        "elsewhere": ["world%1:17:00::"],  # gold does not know this word
    }
    score = sense_f1(gold, answers)
    assert (score.right, score.answered, score.total) == (2.5, 4, 5)
    assert (score.precision, score.recall) == (2.5 / 4, 2.5 / 5)
    assert score.f1 == pytest.approx(2 * 0.625 * 0.5 / 1.125)
    assert f"{100 * score.f1:.1f}" == "55.6"


def test_nothing_answered_or_nothing_right_is_zero():
    assert sense_f1({"t1": ["a%1:03:00::"]}, {}).f1 == 0
    assert sense_f1({"t1": ["a%1:03:00::"]}, {"t1": ["b%1:03:00::"]}).f1 == 0
    assert sense_f1({}, {}).recall == 0


KEYS = st.dictionaries(st.sampled_from("uvwxyz"), st.lists(st.sampled_from("abcd"), min_size=1, max_size=4), max_size=6)


@given(gold=KEYS, answers=KEYS)
def test_the_score_is_the_official_scorers(gold, answers):
    """Its definition: shares of right and of wrong answers, P over their sum, R over the words of gold."""
    good = bad = 0.0
    for name, own in answers.items():
        if name in gold:
            distinct = list(dict.fromkeys(own))
            good += sum(answer in gold[name] for answer in distinct) / len(distinct)
            bad += sum(answer not in gold[name] for answer in distinct) / len(distinct)
    score = sense_f1(gold, answers)
    assert score.precision == pytest.approx(good / (good + bad) if good + bad else 0.0)
    assert score.recall == pytest.approx(good / len(gold) if gold else 0.0)
