"""The picture of a confusion matrix shows the classes that occur; of very many, the most frequent and the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from larvatus.tasks.evaluation.tables import MOST, REST, displayed_classes, draw_confusion


def test_of_many_classes_the_rest_stand_together_and_nothing_is_lost() -> None:
    table = np.random.default_rng(0).integers(0, 9, size=(MOST + 15, MOST + 15))
    labels = [f"class {number}" for number in range(len(table))]
    small, names = displayed_classes(table, labels)
    assert len(names) == MOST + 1
    assert names[-1] == REST
    assert small.sum() == table.sum()
    weight = table.sum(0) + table.sum(1)
    kept = [labels.index(name) for name in names[:-1]]
    assert kept == sorted(kept)
    assert min(weight[kept]) >= max(np.delete(weight, kept))


def test_classes_that_never_occur_are_left_out() -> None:
    table = np.zeros((4, 4), np.int64)
    table[1, 3] = 2
    small, names = displayed_classes(table, ["a", "b", "c", "d" * 40])
    assert names == ["b", "d" * 23 + "…"]
    assert small.tolist() == [[0, 2], [0, 0]]


def test_names_with_marks_of_mathematics_are_drawn(tmp_path: Path) -> None:
    draw_confusion(np.array([[3, 1], [0, 0]]), ["$1_x$", "a^{"], tmp_path / "x.png", title="$5")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["x.png"]
