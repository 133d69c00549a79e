"""The demo: labels that come from the text itself, a run that ends when it must, however slow the machine."""

from __future__ import annotations

import time

import pytest

from larvatus.cli.train.demo_english import _f1, _marks, marked
from larvatus.engine.pace import Deadline


def test_labels_are_the_marks_that_followed_the_words():
    words, tags = marked("If the File is open, it's read; Python's 3 is not. That is all!")
    assert " ".join(words) == "if the file is open it's read python's is not that is all"
    assert tags == [*"OOOO", "COMMA", "O", "COMMA", *"OO", "STOP", *"OO", "STOP"]
    assert marked("Too short.") is None


def test_f1_counts_marks_alone_and_chance_is_that_of_drawing_as_many():
    gold = [["O", "COMMA", "O", "STOP"], ["O", "O", "O", "STOP"]]
    assert _f1(gold, gold) == 1
    assert _f1([["O", "O", "O", "STOP"], ["STOP", "O", "O", "O"]], gold) == pytest.approx(2 * 1 / (2 + 3))
    assert _marks(gold) == pytest.approx(1 / 8 * 1 / 3 + 2 / 8 * 2 / 3)


def test_a_deadline_takes_steps_away_where_they_would_be_late_and_ends_in_time(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    deadline, steps = Deadline(160.0), 100
    for step in range(1, 51):  # half a second each: no reason to take any away
        steps = deadline.steps(step, steps)
        now[0] += 0.5
    assert steps == 100
    step = 50
    while step < steps:  # the machine is ten times slower from here
        step += 1
        now[0] += 5.0
        steps = deadline.steps(step, steps)
    assert now[0] <= 165.0
    assert 50 < step < 100
