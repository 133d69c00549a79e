"""The demo: labels that come from the text itself, a run that ends when it must, however slow the machine."""

from __future__ import annotations

import re
import sys
import time
import tomllib
from pathlib import Path

import pytest

from larvatus.interfaces.cli.commands.demo import _f1, _marks, marked
from larvatus.training.engine.reporter import Deadline
from tests import warm

ROOT = Path(__file__).parents[3]


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


def test_the_tour_wants_nothing_that_a_plain_installation_lacks():
    """`make demo` installs no extra; here all of them are hidden."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [line for extra in project["optional-dependencies"].values() for line in extra]
    hidden = sorted({re.split(r"[\[<>=; ]", line)[0].replace("-", "_") for line in wanted} | {"sklearn", "umap"})
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({hidden!r}))\n"
        "import larvatus as lv\n"
        "from larvatus.interfaces.cli.commands.demo import tour\n"
        "tour(lv.load(device='cpu'), print)\n"
    )
    done = warm.run_bare([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "capital" in done.stdout
    assert done.stdout.rstrip().splitlines()[-2].startswith("  The *bank* raised its interest rates.")
