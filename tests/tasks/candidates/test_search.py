"""Small data: the same folds for all candidates, one rule, a time budget, and a model that is a plain directory."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import larvatus as lv
from larvatus.core.errors import DataError, UsageError
from larvatus.core.rng import stream
from larvatus.data.labelled.records import Dataset, Place, TextExample
from larvatus.inference.model import Model
from larvatus.models.heads import ClassificationConfig
from larvatus.tasks.candidates import search as searching
from larvatus.tasks.candidates.report import BASELINE
from larvatus.tasks.candidates.search import LAYERS, LINEAR, CandidateSearch, Trial, assign_folds
from larvatus.tasks.trainer.config import Callbacks, FineTuneArguments
from tests import warm
from tests.tasks.conftest import tiny_bert

WORDS = ["the", "a", "river", "bank", "of", "was", "wide", "deep", "homework", "in", "please", "turn"]


def rows(count: int) -> list[tuple[str, str]]:
    random = stream(5, "test sentences")
    texts = [" ".join(random.choice(WORDS, size=random.integers(3, 12))) for _ in range(count)]
    return [(text, "wet" if {"river", "bank"} & {*text.split()} else "dry") for text in texts]


def dataset(examples: list[tuple[str, str]], **more: Any) -> Dataset[TextExample]:
    made = (TextExample(text, None, label, Place("t.tsv", n)) for n, (text, label) in enumerate(examples, start=1))
    return Dataset(tuple(made), "t.tsv", kind="multi-class", **more)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_bert(tmp_path_factory.mktemp("tiny") / "m", WORDS).path)


@pytest.fixture(scope="module")
def searched(model: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    out = tmp_path_factory.mktemp("searched") / "run"
    return out, lv.finetune("classify", model, train=rows(60), out=out, device="cpu", quiet=True, minutes=0.001)


# ---- folds


def test_folds_are_stratified_and_keep_equal_texts_and_groups_together() -> None:
    examples = [(f"text {n // 2}", "rare" if n < 10 else "common") for n in range(60)]
    fold = assign_folds(dataset(examples), 5)
    assert (fold[::2] == fold[1::2]).all()  # equal texts
    assert sorted(Counter(fold.tolist()).values()) == [12] * 5
    assert sorted(Counter(fold[:10].tolist()).values()) == [2] * 5
    data = dataset([(f"text {n}", "ab"[n % 2]) for n in range(40)])
    groups = {example.place: str(n // 4) for n, example in enumerate(data)}
    fold = assign_folds(dataset([(f"text {n}", "ab"[n % 2]) for n in range(40)], groups=groups), 5)
    assert (fold.reshape(10, 4) == fold.reshape(10, 4)[:, :1]).all()
    np.testing.assert_array_equal(assign_folds(data, 5), assign_folds(data, 5))


def test_fewer_groups_than_folds_are_refused() -> None:
    data = dataset([("same", "a"), ("other", "b")] * 10)
    with pytest.raises(DataError, match="2 different examples are too few for 5 folds"):
        assign_folds(data, 5)


def test_all_candidates_have_the_same_folds(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[tuple[int, ...]]] = {"linear": [], "words": [], "tuned": []}
    fit, kernel, tuned = searching.fit_scaled, searching.TermCounts.predict, CandidateSearch.tuned

    def linear(x: Any, y: Any, **more: Any) -> Any:
        seen["linear"].append(tuple(y.tolist()))
        return fit(x, y, **more)

    def words(self: Any, y: Any, trained: Any, **more: Any) -> Any:
        seen["words"].append(tuple(y[trained].tolist()))
        return kernel(self, y, trained, **more)

    def weights(self: Any, train: Any, config: Any, **more: Any) -> Any:
        if more["quiet"]:
            names = [example.label for example in train]
            seen["tuned"].append(tuple(self.head.labels.index(name) for name in names))
        return tuned(self, train, config, **more)

    monkeypatch.setattr(searching, "fit_scaled", linear)
    monkeypatch.setattr(searching.TermCounts, "predict", words)
    monkeypatch.setattr(CandidateSearch, "tuned", weights)
    monkeypatch.setattr(searching, "STEP_COST", {"all": 0.0, "last2": 0.0})  # affordable on any machine
    monkeypatch.setattr(CandidateSearch, "left", 1e9)
    monkeypatch.setattr("larvatus.tasks.trainer.config.MOST_EPOCHS", 3)
    made = lv.finetune("classify", model, train=rows(40), device="cpu", quiet=True, auto=True)
    assert len(seen["words"]) == 5
    assert seen["tuned"] == seen["words"] == list(dict.fromkeys(seen["linear"]))
    assert "fine-tuned: all weights" in str(made)


# ---- the rule


def trial(name: str, right: np.ndarray, y: np.ndarray) -> Trial:
    answers = np.where(right, y, 1 - y)
    return Trial(name=name, logits=np.eye(2)[answers], seconds=1.0)


def chosen(**shares: float) -> str:
    """The choice among candidates that are right in these shares of 200 examples."""
    y = np.arange(200) % 2
    data = dataset([(f"text {n}", "ab"[n % 2]) for n in range(200)])
    head = ClassificationConfig(labels=("a", "b"))
    fold = assign_folds(data, 5)
    bundle: Any = None
    candidates = CandidateSearch(bundle, data, head, y, fold, "accuracy", FineTuneArguments(), 60.0)
    names = {"linear": LINEAR, "layers": LAYERS, "words": BASELINE, "tuned": "fine-tuned: all weights"}
    order = stream(1, "test order").permutation(200)
    for name, share in shares.items():
        right = np.zeros(200, np.bool_)
        right[np.roll(order, 40 * list(shares).index(name))[: round(200 * share)]] = True
        candidates.trials.append(trial(names[name], right, y))
    return candidates.choose().name


def test_the_best_candidate_is_chosen_and_of_equal_ones_the_simplest() -> None:
    assert chosen(linear=0.80, layers=0.805) == LAYERS
    assert chosen(linear=0.80, layers=0.80, tuned=0.80) == LINEAR
    assert chosen(linear=0.70, layers=0.85, tuned=0.95) == "fine-tuned: all weights"


def test_the_chosen_candidate_is_compared_with_the_bag_of_words_on_the_same_texts(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "STEP_COST", {"all": 1e15, "last2": 1e15})
    monkeypatch.setattr(CandidateSearch, "left", 1e9)
    said: list[str] = []
    watch = Callbacks(say=said.append)
    made = lv.finetune("classify", model, train=rows(60), device="cpu", auto=True, watch=watch)
    scores = {each.name: each.score for each in made.search.candidates}
    compared = made.search.comparison
    assert (compared.texts, compared.metric) == (60, made.metric)
    assert compared.baseline == pytest.approx(scores[BASELINE])
    assert compared.model == pytest.approx(scores[made.search.chosen])
    assert compared.low <= compared.model - compared.baseline <= compared.high
    assert any(line.startswith(BASELINE) for line in said)  # progress names each candidate


def test_the_bag_of_words_is_never_chosen(searched: tuple[Path, Any]) -> None:
    assert chosen(linear=0.60, words=0.95) == LINEAR


# ---- the model that is saved


def test_the_result_shows_what_was_tried(searched: tuple[Path, Any]) -> None:
    out, made = searched
    record = json.loads((out / "finetuning.json").read_text())["search"]
    assert record["folds"] == 5
    assert record["examples"] == 60
    assert made.scores == pytest.approx(record["values"])
    assert made.search.chosen == record["chosen"]
    assert "95% interval" in str(made)
    assert "linear head" in (out / "README.md").read_text()


def test_a_fresh_process_predicts_the_same(searched: tuple[Path, Any]) -> None:
    out, made = searched
    texts = [text for text, _ in rows(70)[60:]]
    code = "import sys, json, larvatus as lv; m = lv.load(sys.argv[1], device='cpu'); "
    code += "print(json.dumps([p.probabilities for p in m.predict(json.loads(sys.argv[2]))]))"
    command = [sys.executable, "-c", code, str(out), json.dumps(texts)]
    done = warm.run(command, capture_output=True, text=True, check=True)
    for ours, theirs in zip(made.predict(texts), json.loads(done.stdout), strict=True):
        assert ours.probabilities == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("layers", [False, True])
def test_the_model_scores_as_the_fit_on_vectors(model: str, layers: bool) -> None:
    """Long texts too, whose windows are merged."""
    bundle = lv.load(model, device="cpu").bundle
    data = dataset([*rows(30), *((" ".join([text] * 9), label) for text, label in rows(40)[30:])])
    args = FineTuneArguments(hold_out=False)
    candidates, vectors = searching.search(bundle, data, args, minutes=0.001)
    x = vectors.layers if layers else vectors.last
    (fit,) = searching.fit_scaled(x, candidates.y, classes=2, penalties=[3.0])
    saved = vectors.model(fit, layers=layers, seed=0, device="cpu")
    answers = Model(saved, torch.device("cpu")).predict([example.text for example in data])
    logits = fit.logits(x)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    given = [[answer.probabilities[label] for label in candidates.head.labels] for answer in answers]
    np.testing.assert_allclose(given, shares, atol=1e-4)


# ---- when it searches


def test_nothing_is_searched_without_the_option(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("larvatus.tasks.trainer.config.MOST_EPOCHS", 3)
    monkeypatch.setattr(searching, "search", lambda *_, **__: pytest.fail("searched"))
    made = lv.finetune("classify", model, train=rows(40), device="cpu", quiet=True)
    assert "cross-validation" not in str(made)


def test_conflicting_options_and_budgets_are_refused_in_one_line(model: str) -> None:
    with pytest.raises(UsageError, match="--auto chooses what is trained; leave it out, or epochs"):
        lv.finetune("classify", model, train=rows(40), device="cpu", quiet=True, auto=True, epochs=1)
    with pytest.raises(UsageError, match="minutes"):
        lv.finetune("classify", model, train=rows(40), device="cpu", quiet=True, minutes=0)
    pairs = [(text, text, label) for text, label in rows(40)]
    with pytest.raises(UsageError, match="single texts with one class each"):
        lv.finetune("classify", model, train=pairs, device="cpu", quiet=True, auto=True)


def test_a_search_that_is_stopped_leaves_nothing(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"

    def stopped(self: Any) -> None:
        signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(CandidateSearch, "try_bag_of_words", stopped)
        with pytest.raises(lv.LarvatusError, match="starts it again"):
            lv.finetune("classify", model, train=rows(40), out=out, device="cpu", quiet=True, auto=True)
    left = [path.name for path in out.rglob("*")]
    assert not {"config.json", "model.safetensors", "larvatus.json", "checkpoints"} & {*left}, left
    again = lv.finetune("classify", model, train=rows(40), out=out, device="cpu", quiet=True, auto=True, resume=True)
    assert len(again.predict(["the river"])) == 1
