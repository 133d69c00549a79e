"""Means and deviations over seeds, what is best, and how it is said."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from larvatus.evaluation.compare.fine_tuned import SeedMean
from larvatus.evaluation.compare.plot import COLOURS, draw, spread_heights
from larvatus.evaluation.compare.results import ComparedObjective, ComparisonResults, LossPoint, RunResult
from larvatus.evaluation.compare.word_nll import WordNLL
from larvatus.metrics.intervals import mean_interval


def run(label, seed, loss, *, tokenizer="one", objective="masked-lm"):
    word = WordNLL(loss=loss, error=0.1, bits=loss / 3, accuracy=0.1, words=9, pieces=1.2, windowed=0)
    curve = [
        LossPoint(step=k, tokens=1000 * k, seconds=6.0 * k, loss=7 - k * loss / 40, guess=7.0) for k in range(1, 11)
    ]
    return RunResult(
        label=label,
        seed=seed,
        path=label,
        parameters=1000,
        vocabulary=700,
        tokenizer=tokenizer,
        cased=True,
        steps=10,
        tokens=10_000,
        seconds=60.0,
        epochs=0.5,
        length=64,
        objectives={objective: ComparedObjective(loss=loss, accuracy=0.2, count=50)},
        guess_loss=7.0,
        word_nll=word,
        curve=tuple(curve),
    )


def row(results, name):
    return next(row for row in results.rows() if row.name == name)


def test_seeds_become_mean_and_sample_deviation():
    losses = [5.0, 5.5, 4.7]
    results = ComparisonResults(runs=tuple(run("a", s, loss) for s, loss in enumerate(losses)), budget="10 steps")
    found = row(results, "masked-lm loss").values["a"]
    assert math.isclose(found.mean, np.mean(losses))
    assert math.isclose(found.deviation, np.std(losses, ddof=1))
    assert row(results, "steps").values["a"].deviation == 0.0


def test_the_best_is_marked_only_where_numbers_compare():
    one = ComparisonResults(runs=(run("a", 0, 5.0), run("b", 0, 6.0)), budget="")
    two = ComparisonResults(runs=(run("a", 0, 5.0), run("b", 0, 6.0, tokenizer="two")), budget="")
    assert row(two, "gain over unigram").better is None
    assert row(two, "loss a word, nats").best == "a"
    assert row(one, "masked-lm loss").best is None  # masks may differ
    assert row(ComparisonResults(runs=(run("a", 0, 5.0),), budget=""), "loss a word, nats").best is None


def test_the_best_is_marked_only_where_its_interval_lies_apart_from_all_others():
    def best(*candidates):
        runs = [run(label, seed, loss) for label, losses in candidates for seed, loss in enumerate(losses)]
        return row(ComparisonResults(runs=tuple(runs), budget=""), "loss a word, nats").best

    # standard error 0.1 over passages, so ± 0.196 each
    assert best(("a", [5.0]), ("b", [5.39])) is None
    assert best(("a", [5.0]), ("b", [5.40])) == "a"
    assert best(("a", [5.0]), ("b", [5.40]), ("c", [5.1])) is None
    # over three seeds of deviation 0.3, mean ± 4.303 × 0.3 / √3 = 0.745: wider than over passages
    assert best(("a", [4.7, 5.0, 5.3]), ("b", [5.4, 5.7, 6.0])) is None
    assert best(("a", [4.7, 5.0, 5.3]), ("b", [6.2, 6.5, 6.8])) == "a"


def test_one_seed_without_an_interval_marks_nobody():
    one = ComparisonResults(runs=(run("a", 0, 5.0), run("b", 0, 6.0)), budget="")
    assert row(one, "gain over unigram").best is None
    two = ComparisonResults(
        runs=(run("a", 0, 5.0), run("a", 1, 5.001), run("b", 0, 6.0), run("b", 1, 6.001)), budget=""
    )
    assert row(two, "gain over unigram").best == "a"


def test_intervals_over_seeds_are_students():
    values = [0.3, 0.5, 0.45, 0.38]
    expected = scipy.stats.t.interval(0.95, 3, np.mean(values), scipy.stats.sem(values))
    assert mean_interval(values) == pytest.approx(expected, abs=1e-4)
    assert SeedMean.of(values).interval == pytest.approx(expected, abs=1e-4)


def test_any_objective_has_its_lines_and_a_recipe_without_it_a_dash():
    results = ComparisonResults(runs=(run("a", 0, 5.0), run("b", 0, 0.4, objective="anything-else")), budget="")
    assert row(results, "anything-else loss").values["a"] is None
    assert row(results, "anything-else right").values["b"].mean == 0.2
    assert row(results, "gain over unigram").values["b"] is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10).map(sorted))
def test_names_of_lines_keep_apart_and_in_order(heights):
    placed = spread_heights(heights, gap=0.055)
    assert all(b - a >= 0.055 - 1e-9 for a, b in itertools.pairwise(placed))
    assert max(placed) <= 1 + 1e-9
    if all(b - a >= 0.055 for a, b in itertools.pairwise(heights)):
        assert placed == heights


def test_more_candidates_than_colours_are_drawn(tmp_path):
    runs = [run(f"recipe {n}", seed, 5.0 + n / 10) for n in range(len(COLOURS) + 2) for seed in (1, 2)]
    assert draw(ComparisonResults(runs=tuple(runs), budget="10 steps"), tmp_path / "many.png")
