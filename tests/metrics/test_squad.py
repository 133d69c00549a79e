"""Exact match and F1 of answers.

The figures were measured with the official script of SQuAD 1.1 (as `evaluate` carries it) and with that of version 2
(as early releases of `transformers` carried it).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from larvatus.core.errors import DataError
from larvatus.metrics.squad import (
    answer_f1,
    exact_match,
    normalise_answer,
    question_scores,
)
from tests.squad_scores import squad2_scores, squad_scores

MEASURED = [  # right answer, prediction, exact match, F1 of version 1.1, F1 of version 2
    ("Denver Broncos", "the Denver Broncos.", 1.0, 1.0, 1.0),
    ("the", "a", 1.0, 0.0, 1.0),
    ("", "", 1.0, 0.0, 1.0),
    ("x", "", 0.0, 0.0, 0.0),
    ("...", "", 1.0, 0.0, 1.0),
    ("", "the", 1.0, 0.0, 1.0),
    ("Broncos, Denver", "Denver Broncos of Denver", 0.0, 2 / 3, 2 / 3),
    ("1990s", "the 1990s", 1.0, 1.0, 1.0),
    ("O'Neil", "ONeil", 1.0, 1.0, 1.0),
    ("x-ray", "x ray", 0.0, 0.0, 0.0),
    ("The_cat", "cat", 0.0, 0.0, 0.0),  # the underscore goes before the article is looked for
    ("İstanbul", "istanbul", 0.0, 0.0, 0.0),  # whose lower case has a dot of its own
    ("naïve", "naive", 0.0, 0.0, 0.0),
    ("a b c d", "b c", 0.0, 0.8, 0.8),
    ("two two one", "two one one", 0.0, 2 / 3, 2 / 3),
    ("“the” end", "end", 0.0, 0.5, 0.5),  # only ASCII punctuation is dropped
    ("山 水", "山水", 0.0, 0.0, 0.0),
    ("an  apple\t a\xa0day", "apple day", 1.0, 1.0, 1.0),
    ("A-the", "Athe", 1.0, 1.0, 1.0),
    ("$1,000", "1000", 1.0, 1.0, 1.0),
    ("thee", "the e", 0.0, 0.0, 0.0),
]
GOLDS = {
    "a": ["Denver Broncos", "Broncos"],
    "b": [],
    "c": ["in 1990"],
    "d": [],
    "e": ["the"],
    "f": ["Mt. Sanitas", "Sanitas"],
}
PREDICTIONS = {"a": "the Broncos of Denver", "b": "", "c": "1990", "d": "a river", "e": "", "f": "mt sanitas"}
AGAINST = {"a": 0.1, "b": 0.9, "c": 0.4, "d": 0.6, "e": 0.55, "f": 0.4}


@pytest.mark.parametrize(("gold", "prediction", "exact", "first", "second"), MEASURED)
def test_pairs_score_as_the_official_scripts_say(
    gold: str, prediction: str, exact: float, first: float, second: float
) -> None:
    assert exact_match(gold, prediction) == exact
    assert answer_f1(gold, prediction) == pytest.approx(first, abs=1e-12)
    assert answer_f1(gold, prediction, version="2.0") == pytest.approx(second, abs=1e-12)


WORDS = ["the", "a", "An", "River,", "bank", "1990s", "x-ray", "İ", "...", "O'Neil", "two"]
# none is empty or nothing but articles: there their F1 is that of version 2, whatever the version
ANSWERS = st.builds(
    lambda before, word, after: " ".join([*before, word, *after]),
    st.lists(st.sampled_from(WORDS), max_size=3),
    st.sampled_from(["river", "山"]),
    st.lists(st.sampled_from(WORDS), max_size=2),
)


@given(st.lists(st.tuples(st.lists(ANSWERS, min_size=1, max_size=3), ANSWERS), min_size=1, max_size=6))
def test_a_set_scores_as_torchmetrics_scores_it(questions: list[tuple[list[str], str]]) -> None:
    """An implementation of version 1.1 that nobody here wrote, from the strings on."""
    from torchmetrics.functional.text import squad

    golds = {str(number): texts for number, (texts, _) in enumerate(questions)}
    predictions = {str(number): text for number, (_, text) in enumerate(questions)}
    ours = squad_scores(golds, predictions)
    theirs = squad(
        [{"id": own, "prediction_text": text} for own, text in predictions.items()],
        [
            {"id": own, "answers": {"text": texts, "answer_start": [0] * len(texts)}, "context": "", "question": ""}
            for own, texts in golds.items()
        ],
    )
    assert 100 * ours.exact == pytest.approx(float(theirs["exact_match"]), rel=1e-5)
    assert 100 * ours.f1 == pytest.approx(float(theirs["f1"]), rel=1e-5)


def test_a_set_scores_as_the_script_of_version_1_says() -> None:
    golds = {own: texts for own, texts in GOLDS.items() if texts}
    found = squad_scores(golds, {own: text for own, text in PREDICTIONS.items() if own != "f"})
    assert (100 * found.exact, 100 * found.f1) == pytest.approx((25.0, 36.66666666666667))
    assert (found.total, found.missing) == (4, 1)


def test_a_set_scores_as_the_script_of_version_2_says() -> None:
    plain = squad2_scores(GOLDS, PREDICTIONS)
    assert plain.has_answer is not None
    assert plain.no_answer is not None
    assert (100 * plain.exact, 100 * plain.f1) == pytest.approx((50.0, 74.44444444444444))
    assert (100 * plain.has_answer.exact, 100 * plain.has_answer.f1) == pytest.approx((50.0, 86.66666666666667))
    assert (100 * plain.no_answer.exact, plain.no_answer.total) == (50.0, 2)
    strict = squad2_scores(GOLDS, PREDICTIONS, no_answer=AGAINST, threshold=0.5)
    assert strict.has_answer is not None
    assert strict.no_answer is not None
    assert strict.best_exact is not None
    assert strict.best_f1 is not None
    assert (100 * strict.exact, 100 * strict.f1) == pytest.approx((50.0, 74.44444444444444))
    assert (100 * strict.has_answer.f1, 100 * strict.no_answer.f1) == pytest.approx((61.66666666666667, 100.0))
    assert (100 * strict.best_exact.score, strict.best_exact.threshold) == pytest.approx((66.66666666666667, 0.55))
    assert (100 * strict.best_f1.score, strict.best_f1.threshold) == pytest.approx((91.1111111111111, 0.55))


@given(st.text(max_size=20), st.lists(st.text(max_size=20), min_size=1, max_size=3))
def test_the_nearest_right_answer_counts(prediction: str, golds: list[str]) -> None:
    for version in ("1.1", "2.0"):
        exact, f1 = question_scores(golds, prediction, version=version)
        assert 0.0 <= f1 <= 1.0
        assert exact == max(exact_match(gold, prediction) for gold in golds) or version == "2.0"
        assert question_scores([*golds, prediction], prediction, version=version)[0] == 1.0 or not normalise_answer(
            prediction
        )
        if exact and normalise_answer(prediction):
            assert f1 == 1.0
        assert answer_f1(golds[0], prediction) == answer_f1(prediction, golds[0])


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1), min_size=6, max_size=6))
def test_the_best_threshold_reaches_its_score(against: dict[str, float]) -> None:
    found = squad2_scores(GOLDS, {**PREDICTIONS, "b": "some river"}, no_answer=against)
    assert found.best_f1 is not None
    at = [
        squad2_scores(GOLDS, {**PREDICTIONS, "b": "some river"}, no_answer=against, threshold=one).f1
        for one in (-1.0, *against.values())
    ]
    assert found.best_f1.score >= max(at) - 1e-12
    if len(set(against.values())) == len(against):  # of equal values the script answers some, a threshold all or none
        assert found.best_f1.score == pytest.approx(max(at))


def test_what_cannot_be_scored_is_refused() -> None:
    with pytest.raises(DataError, match="no questions"):
        squad_scores({}, {})
    with pytest.raises(DataError, match="score it as version"):
        squad_scores({"q": []}, {"q": ""})
    with pytest.raises(DataError, match="1 questions have no prediction, f among them"):
        squad2_scores(GOLDS, dict.fromkeys("abcde", ""))
    with pytest.raises(DataError, match="a has no score for being without"):
        squad2_scores(GOLDS, PREDICTIONS, no_answer={})
