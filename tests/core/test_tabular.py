"""Results as rows: every result that Python gives has `to_dicts` and `to_pandas`."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import larvatus as lv
from larvatus.core.errors import LarvatusError
from larvatus.core.tables import ResultList, Tabular
from larvatus.inference.model import Model
from larvatus.metrics.accuracy import PairAccuracies, accuracy
from larvatus.models.heads import ClassificationConfig, TaggingConfig
from larvatus.tasks.choose.encode import Chosen
from larvatus.tasks.results import Answer, AnswerSpan, Coverage, Entity, Spanned, Tagged, TaggedWord

READ = Coverage(tokens=3, read=3, windows=1)


@pytest.fixture(scope="module")
def model(tiny_model: Any, save_tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return lv.load(save_tiny(tmp_path_factory.mktemp("plain") / "m", tiny_model()))


def test_rows_of_blanks_scores_vectors_and_cosines(model: Model) -> None:
    frame = model.fill("the [MASK] was wide", top=3).to_pandas()
    assert list(frame.columns) == ["text", "rank", "token", "probability", "filled"]
    assert frame["probability"].is_monotonic_decreasing
    marginals = model.fill("the [MASK] [MASK]", top=2, joint=False).to_dicts()
    assert [(row["blank"], row["rank"]) for row in marginals] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    scores = model.score(["the river", "a bank"])
    assert isinstance(scores, ResultList)
    assert scores == list(scores)
    assert scores.to_pandas()["item"].tolist() == [0, 1]
    assert scores.to_pandas()["total"].tolist() == [score.total for score in scores]
    vectors = model.vectors("the river").to_pandas()
    assert vectors["text"].tolist() == ["the", "river"]
    assert len(vectors["vector"][0]) == 16
    cosines = model.similarities(["the *river*", "a *river*", "the *bank*"])
    assert [(row["first"], row["second"]) for row in cosines.to_dicts()] == [(1, 2), (1, 3), (2, 3)]
    assert cosines.to_dicts()[0]["cosine"] == pytest.approx(float(cosines.matrix[0, 1]), abs=1e-6)
    attention = model.attention("the river").to_pandas()
    assert len(attention) == 2 * 2 * 4 * 4
    sums = attention.groupby(["layer", "head", "from"])["weight"].sum()
    assert sums.tolist() == pytest.approx([1.0] * len(sums), abs=1e-5)


def test_rows_of_predictions(tiny_model: Any, save_tiny: Any, tmp_path: Path) -> None:
    head = ClassificationConfig(labels=("bad", "good"))
    loaded = lv.load(save_tiny(tmp_path / "m", tiny_model(objectives=(head,)), (head,)))
    frame = loaded.predict(["the river", "a bank"]).to_pandas()
    assert frame[["probabilities.bad", "probabilities.good"]].sum(axis=1).tolist() == pytest.approx([1, 1])
    assert set(frame["label"]) <= {"bad", "good"}
    scores = lv.evaluate(loaded, data=[("the river", "good"), ("a bank", "bad")] * 4, samples=50)
    assert scores.to_pandas().set_index("metric")["value"]["accuracy"] == scores.metrics["accuracy"].value
    against = lv.evaluate(loaded, data=[("the river", "good"), ("a bank", "bad")] * 4, against=loaded, samples=50)
    assert (against.to_pandas()["difference"] == 0).all()
    tags = TaggingConfig(labels=("NOUN", "VERB"), scheme="none")
    tagger = lv.load(save_tiny(tmp_path / "t", tiny_model(objectives=(tags,)), (tags,)))
    assert tagger.predict("the river").to_pandas()["word"].tolist() == ["the", "river"]


def test_rows_of_nested_results_lose_no_text() -> None:
    place = Entity(text="Rome", label="LOC", start=0, end=4, score=0.9)
    word = TaggedWord(text="Rome", tag="B-LOC", start=0, end=4, probability=0.9)
    other = TaggedWord(text="is", tag="O", start=5, end=7, probability=0.9)
    tagged = Tagged(text="Rome is", words=(word, other), entities=(place,), coverage=READ)
    assert tagged.to_dicts() == [
        {"text": "Rome is", "entity": "Rome", "label": "LOC", "start": 0, "end": 4, "score": 0.9}
    ]
    nothing = Tagged(text="is", words=(other,), entities=(), coverage=READ)
    assert nothing.to_dicts() == [
        {"text": "is", "entity": None, "label": None, "start": None, "end": None, "score": None}
    ]
    assert Spanned(text="Rome", entities=(place, place), coverage=READ).to_pandas()["label"].tolist() == ["LOC", "LOC"]
    span = AnswerSpan(text="Rome", start=0, end=4, score=0.5)
    answer = Answer(
        question="Where?", text="Rome", start=0, end=4, score=0.5, null_score=None, others=(span, span), coverage=READ
    )
    (row,) = answer.to_dicts()
    assert (row["question"], row["text"], "others" in row) == ("Where?", "Rome", False)
    chosen = Chosen(context="x", choice=1, probabilities={"a": 0.2, "b": 0.8}, coverage=READ)
    assert [(row["ending"], row["chosen"]) for row in chosen.to_dicts()] == [("a", False), ("b", True)]


def test_rows_of_tables() -> None:
    pairs = PairAccuracies(
        overall=accuracy(right=3, total=4), by={"field": {"syntax": accuracy(right=3, total=4)}}, ties=0
    )
    assert [(row["by"], row["group"], row["right"]) for row in pairs.to_dicts()] == [
        ("overall", "all", 3),
        ("field", "syntax", 3),
    ]
    assert isinstance(pairs.to_pandas(), pd.DataFrame)


def test_pandas_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)

    class One(Tabular):
        def to_dicts(self) -> list[dict[str, Any]]:
            return [{"a": 1}]

    with pytest.raises(LarvatusError, match="pip install pandas"):
        One().to_pandas()
    assert One().to_dicts() == [{"a": 1}]


def test_results_do_not_import_pandas_by_themselves(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refusing(name: str, *more: Any) -> Any:
        assert name.partition(".")[0] != "pandas"
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", refusing)
    assert model.score(["the river"]).to_dicts()[0]["text"] == "the river"
