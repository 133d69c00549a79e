"""A sample of the hostile invocations of `attack_commands.py`: none ends in a traceback, and none hangs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.attack_commands import Attack, attacks, outcome, run_attacks
from tests.faults.forked import Done
from tests.tiny import make_tiny


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    subprocess.run(["rm", "-rf", tmp_path / "fifo.txt", tmp_path / "fifo.jsonl"], check=True)


@pytest.mark.parametrize(("count", "seed"), [(8, 3), pytest.param(24, 4, marks=pytest.mark.proof)])
def test_a_sample_of_attacks_ends_in_one_line(folder: Path, count: int, seed: int) -> None:
    fell: list[Attack] = []
    lines = attacks(folder, make_tiny(folder / "model"), count=count, seed=seed)
    counts = run_attacks(lines, folder, fell.append)
    assert fell == []
    assert sum(counts.values()) == count


def test_the_same_seed_gives_the_same_attacks(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    drawn = []
    for folder in folders:
        folder.mkdir()
        lines = attacks(folder, folder / "model", count=50, seed=5)
        drawn.append([[word.replace(str(folder), "") for word in line] for line in lines])
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
    ("code", "said", "expected"),
    [
        (0, "", "success"),
        (2, "larvatus: no", "usage"),
        (1, "Traceback (most recent call last):\n  …", "traceback"),
        (70, "larvatus: unforeseen", "traceback"),
        (124, "it hung", "hang"),
        (-9, "", "killed"),
        (4, "larvatus: one\nlarvatus: two", "several lines"),
    ],
)
def test_outcomes_are_told_apart(code: int, said: str, expected: str) -> None:
    assert outcome(Done(code, said, 0.0)) == expected
