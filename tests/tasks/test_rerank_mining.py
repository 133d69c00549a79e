"""Hard negatives of queries against the definition, one passage at a time, and in a run."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import larvatus as lv
from larvatus.core.errors import DataError
from larvatus.data.labelled.records import Dataset, Place
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.embedding import EmbeddingConfig
from larvatus.tasks.rerank import task as mining
from larvatus.tasks.rerank.reader import RelevanceExample
from larvatus.tasks.rerank.task import RerankOptions
from larvatus.tasks.scoring import ScoringOptions
from tests.tasks.conftest import PLAIN


@cache
def vector(text: str) -> np.ndarray:
    """A fixed random vector, near to that of texts that begin alike."""
    topic = np.random.default_rng(ord(text[0].lower())).normal(size=16)
    return (topic + np.random.default_rng([*text.encode()]).normal(size=16)).astype(np.float32)


def data(rows: list[tuple[str, str, float]]) -> Dataset[RelevanceExample]:
    return Dataset(tuple(RelevanceExample(*row, Place("t.tsv", n)) for n, row in enumerate(rows, start=2)), "t.tsv")


def mined(rows: list[tuple[str, str, float]], monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[tuple[Any, ...]]:
    """The examples after mining with the vectors above."""
    monkeypatch.setattr(mining, "load_teacher", lambda name: SimpleNamespace(path=name))
    monkeypatch.setattr(mining, "teacher_vectors", lambda _, texts, *more, **kept: np.stack([vector(t) for t in texts]))
    said: list[str] = []
    train = mining.with_mined_negatives(data(rows), RerankOptions(**options), ScoringOptions(), said.append)
    assert "by english" in said[0]
    return [(example.query, example.passage, example.grade) for example in train]


def naive(rows: list[tuple[str, str, float]], *, count: int, margin: float, skip: int) -> set[tuple[str, str, float]]:
    """The definition, in float64."""

    def cosine(a: str, b: str) -> float:
        x, y = vector(a).astype(np.float64), vector(b).astype(np.float64)
        return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))

    def plain(text: str) -> str:
        return " ".join(text.lower().split())

    negatives = set()
    for query in {query for query, _, _ in rows}:
        relevant = [passage for other, passage, grade in rows if other == query and grade > 0]
        if not relevant:
            continue
        never = {plain(query)} | {plain(passage) for other, passage, _ in rows if other == query}
        worst = min(cosine(query, passage) for passage in relevant)
        scored = [
            (-cosine(query, passage), passage)
            for passage in {passage for _, passage, _ in rows}
            if plain(passage) not in never and cosine(query, passage) <= worst - margin * abs(worst)
        ]
        negatives |= {(query, passage, 0.0) for _, passage in sorted(scored)[skip : skip + count]}
    return negatives


ROWS = [
    (f"{chr(97 + n % 5)} question {n // 3}", f"{chr(97 + n % 5)} passage {n % 29}", float(n % 4 != 1))
    for n in range(72)
]
ROWS += [("a question 0", "A  Passage 5", 0.0), ("nobody knows", "z passage", 0.0)]


@pytest.mark.parametrize(("margin", "skip"), [(0.0, 0), (0.2, 0), (0.0, 2)])
def test_negatives_are_those_of_the_definition(monkeypatch: pytest.MonkeyPatch, margin: float, skip: int) -> None:
    train = mined(ROWS, monkeypatch, mine=3, mine_margin=margin, mine_skip=skip)
    expected = naive(ROWS, count=3, margin=margin, skip=skip)
    assert set(train) - set(ROWS) == expected - set(ROWS)
    assert len(train) == len(ROWS) + len(expected)
    assert [row for row in train if row in set(ROWS)] == sorted(ROWS, key=lambda row: QUERIES.index(row[0]))
    assert len(expected) > 30


QUERIES = list(dict.fromkeys(query for query, _, _ in ROWS))


def test_what_cannot_be_mined_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="no query has a relevant passage"):
        mined([("a", "b", 0.0), ("c", "d", 0.0)], monkeypatch, mine=1)
    with pytest.raises(DataError, match="no passage is a hard negative"):
        mined([("a", "b", 1.0), ("a", "B ", 0.0)], monkeypatch, mine=1)


def test_a_run_learns_from_positives_only(tuned: Callable[..., Bundle], tiny_directory: Path, tmp_path: Path) -> None:
    miner = str(tuned(EmbeddingConfig()).path)
    rows = [{"query": f"{word} ran", "positive": f"a {word} is here"} for word in PLAIN[:12]]
    run: dict[str, Any] = {"train": rows[4:], "dev": rows[:4], "epochs": 1, "batch": 8, "device": "cpu", "quiet": True}
    with pytest.raises(DataError, match=r"all labels are 1.*--mine"):
        lv.finetune("rerank", str(tiny_directory), **run)
    mining: dict[str, Any] = {"mine": 2, "mine_margin": 0.0, "mine_model": miner, "mined": str(tmp_path / "kept")}
    for loss in ("binary-cross-entropy", "softmax"):
        first = lv.finetune("rerank", str(tiny_directory), loss=loss, **mining, **run)
        again = lv.finetune("rerank", str(tiny_directory), loss=loss, **mining, **run)
        scores = [[row.score for row in model.rerank("river ran", PLAIN[:4])] for model in (first, again)]
        assert scores[0] == scores[1]
        with pytest.raises(DataError, match="list in memory: no passage is a hard negative"):
            lv.finetune("rerank", str(tiny_directory), loss=loss, **mining, **run | {"dev": rows[:1]})
    assert list((tmp_path / "kept").glob("*.npy"))
