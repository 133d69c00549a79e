"""Reranking: windows, lists, loss and metrics against naive ones, and a rule that is learnt through the commands."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import larvatus as lv
from larvatus.core.batch import edges
from larvatus.core.errors import DataError, UsageError
from larvatus.core.rng import stream
from larvatus.core.targets import RelevanceTargets
from larvatus.data.labelled.records import Dataset, Place
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.heads.sequence_score import RerankingConfig
from larvatus.models.nn.device import on_device
from larvatus.models.objectives.ranking import ListNet, MeanSquared
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.evaluation.comparison import compare_evaluations
from larvatus.tasks.rerank.encode import EncodedRelevance, encode_relevance, pair_scores
from larvatus.tasks.rerank.evaluation import RelevanceValidation, evaluate_relevance
from larvatus.tasks.rerank.reader import RelevanceExample
from larvatus.tasks.scoring import ScoringOptions, head_of, loss_of
from tests.made_up import Call, sentences, write_rows
from tests.tasks.conftest import PLAIN, random_text
from tests.tasks.test_run import check_resumed

QUICK = ("--epochs", 4, "--batch", 16, "--rate", 0.01, "--device", "cpu")


@pytest.fixture(scope="module")
def reranker(tuned: Callable[..., Bundle]) -> Bundle:
    return tuned(RerankingConfig())


def examples(queries: int, *, longest: int = 12, seed: int = 1) -> list[RelevanceExample]:
    """Queries of one to five passages in random words, grades 0 to 2; some are longer than a window of 16 tokens."""
    random = stream(seed, "test relevance")
    text = functools.partial(random_text, random, longest)

    rows = []
    for number in range(queries):
        query = f"{PLAIN[number % 7]} {text()}"
        for _ in range(int(random.integers(1, 6))):
            rows.append(RelevanceExample(query, text(), float(random.integers(3)), Place("t.tsv", len(rows))))
    return rows


def encoded(bundle: Bundle, rows: list[RelevanceExample], *, listwise: bool = True) -> EncodedRelevance:
    return encode_relevance(bundle, rows, WindowOptions(limit=16, truncate=False), listwise=listwise)


@settings(max_examples=8)
@given(seed=st.integers(0, 50), tokens=st.integers(20, 400))
def test_no_batch_changes_a_score_and_the_best_window_counts(reranker: Bundle, seed: int, tokens: int) -> None:
    rows = examples(4, seed=seed)
    data = encoded(reranker, rows, listwise=False)
    scores = pair_scores(reranker.network, data.sequences, ScoringOptions())
    again = pair_scores(reranker.network, data.sequences, ScoringOptions(tokens=tokens))
    np.testing.assert_allclose(scores, again, atol=1e-5)
    for row, score, windows in zip(rows, scores, data.sequences.parts, strict=True):
        own = encoded(reranker, [row])
        assert len(own.sequences.lengths) == windows
        with torch.inference_mode():
            batch = on_device(own.batch(np.array([0])), "cpu")
            head = head_of(reranker.network)
            each = head.logits(head.features(head.states(reranker.network.encoder, batch.tokens), batch), batch)
        assert float(score) == pytest.approx(float(each.max()), abs=1e-5)


@given(seed=st.integers(0, 100), budget=st.integers(1, 300))
def test_no_microbatch_cuts_a_query_apart(reranker: Bundle, seed: int, budget: int) -> None:
    data = encoded(reranker, examples(6, seed=seed))
    chosen = stream(seed, "chosen").permutation(len(data))
    batch = data.batch(chosen)
    for parts in (list(batch.cuts(budget)), list(batch.split(budget))):
        targets = [part.targets[RelevanceTargets] for part in parts]
        grades = np.concatenate([target.grades for target in targets])
        assert grades.tolist() == data.grades[data.pairs_of(chosen)].tolist()
        for part, target in zip(parts, targets, strict=True):
            assert target.windows.sum() == part.tokens.count == part.tokens.groups.sum()
            assert target.candidates.sum() == len(target.windows) == len(target.grades)
            assert len(part.tokens.groups) == len(target.candidates)


@given(seed=st.integers(0, 100), size=st.integers(1, 40), listwise=st.booleans())
def test_an_epoch_has_every_list_once_and_no_empty_step(reranker: Bundle, seed: int, size: int, listwise: bool) -> None:
    data = encoded(reranker, examples(6, seed=seed), listwise=listwise)
    for epoch in range(2):
        steps = data.epoch_batches(seed, epoch, size)
        assert len(steps) == data.steps(size)
        assert min(map(len, steps)) > 0
        assert sorted(np.concatenate(steps).tolist()) == list(range(len(data)))
        if not listwise:
            assert max(map(len, steps)) <= size


def test_the_loss_is_that_of_a_naive_loop_over_windows_and_queries(tuned: Callable[..., Bundle]) -> None:
    bundle = tuned(RerankingConfig(pool="mean", dropout=0.0, loss=ListNet()), seed=2)
    network = bundle.network.double()
    rows = examples(7)
    data = encoded(bundle, rows)
    assert data.sequences.parts.max() > 1
    batch = data.batch(np.arange(len(data)))
    head = head_of(network)
    loss = loss_of(network, on_device(batch, "cpu"), head)
    z_ND = network.encoder(on_device(batch, "cpu").tokens)
    windows = iter(
        [head.classifier(torch.tanh(head.dense(z.mean(0)))) for z in z_ND.split(batch.tokens.lengths.tolist())]
    )
    parts, grades = iter(data.sequences.parts.tolist()), iter(data.grades.tolist())
    total = 0.0
    for count in data.candidates.tolist():
        scores = torch.stack([torch.stack([next(windows) for _ in range(next(parts))]).max() for _ in range(count)])
        labels = torch.tensor([next(grades) for _ in range(count)], dtype=torch.float64)
        total = total - (torch.softmax(labels, 0) * torch.log_softmax(scores, 0)).sum()
    torch.testing.assert_close(loss.total, total, rtol=1e-9, atol=1e-9)
    assert float(loss.count) == head.size(batch) == len(data)


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_padded_sequences_have_the_same_scores(tuned: Callable[..., Bundle], pool: Any) -> None:
    bundle = tuned(RerankingConfig(pool=pool))
    data = encoded(bundle, examples(3), listwise=False)
    scores = pair_scores(bundle.network, data.sequences, ScoringOptions())
    head = head_of(bundle.network)
    with torch.inference_mode():
        batch = on_device(data.batch(np.arange(len(data))), "cpu")
        rows = bundle.network.encoder(batch.tokens).split(batch.tokens.lengths.tolist())
        z_BLD = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=9.0)
        mask_BL = torch.arange(z_BLD.shape[1])[None] < batch.tokens.lengths[:, None]
        padded = head.padded_logits(z_BLD, mask_BL.long())[:, 0].numpy()
    np.testing.assert_allclose(np.maximum.reduceat(padded, edges(data.sequences.parts)[:-1]), scores, atol=1e-5)


def naive_metrics(scores: list[float], grades: list[float]) -> tuple[float, float, float]:
    order = sorted(range(len(scores)), key=lambda n: (-scores[n], grades[n]))
    ranked = [grades[n] for n in order]
    gain = sum(g / np.log2(r + 2) for r, g in enumerate(ranked[:10]))
    best = sum(g / np.log2(r + 2) for r, g in enumerate(sorted(grades, reverse=True)[:10]))
    hits = [r for r, g in enumerate(ranked, start=1) if g > 0]
    precision = [n / r for n, r in enumerate(hits, start=1)]
    return gain / best, 1 / hits[0] if hits[0] <= 10 else 0.0, sum(precision) / len(precision)


def test_metrics_are_those_of_a_naive_loop_in_training_and_evaluation(reranker: Bundle) -> None:
    rows = examples(40, seed=3)
    data = Dataset(tuple(rows), "test.tsv")
    evaluation = evaluate_relevance(reranker, data)
    held = RelevanceValidation(encode_relevance(reranker, rows, WindowOptions.of(reranker), listwise=True))
    scores = held.scores(reranker.network, ScoringOptions())
    frozen = held.read_once(reranker.network, ScoringOptions()).scores(reranker.network, ScoringOptions())
    each = pair_scores(reranker.network, held.data.sequences, ScoringOptions()).tolist()
    values, at = [], 0
    for count in held.data.candidates.tolist():
        grades = held.data.grades[at : at + count].tolist()
        if max(grades) > min(grades):
            values.append(naive_metrics(each[at : at + count], grades))
        at += count
    wanted = dict(zip(("ndcg@10", "mrr@10", "map"), np.mean(values, axis=0).tolist(), strict=True))
    assert 0 < evaluation.queries == len(values) < evaluation.all_queries == len(held.data)
    for name, value in wanted.items():
        assert evaluation.metrics[name].value == pytest.approx(value)
        assert scores.values[name] == pytest.approx(value)
        assert frozen.values[name] == pytest.approx(value)
        assert evaluation.metrics[name].low <= value <= evaluation.metrics[name].high
    assert scores.main == scores.values["ndcg@10"]
    assert np.isfinite(scores.validation_loss)
    assert "do not count" in str(evaluation)
    comparison = compare_evaluations(evaluation, evaluation, samples=50, seed=0)
    assert json.dumps([evaluation.to_dict(), comparison.to_dict()], allow_nan=False)


def relevance(path: Path, queries: int, seed: int) -> Path:
    """A passage is relevant if it is about a river."""
    random = stream(seed, "test rule")
    rows = []
    for number, words in enumerate(sentences(queries, seed)):
        wrong = ["a deep homework", "turn in", "please", "was wide"][: int(random.integers(1, 5))]
        query = f"{' '.join(words)} {PLAIN[number % 11]}"
        rows.append({"query": query, "positives": ["the river"], "negatives": wrong})
    return write_rows(path, rows)


@pytest.mark.parametrize("loss", ["binary-cross-entropy", "softmax"])
def test_a_rule_is_learnt_through_the_commands(finetune: Call, larvatus: Call, tmp_path: Path, loss: str) -> None:
    train, dev = relevance(tmp_path / "train.jsonl", 48, 0), relevance(tmp_path / "dev.jsonl", 24, 1)
    place = tmp_path / "out"
    code, out, err = finetune("rerank", "--train", train, "--dev", dev, "--out", place, "--loss", loss, *QUICK)
    assert (code, err) == (0, "")
    assert "read as: positives, query = query, positive = positives, negative = negatives" in out
    assert f"loss: {loss}" in out
    assert ("a step has whole queries with their candidates" in out) == (loss == "softmax")
    code, out, _ = larvatus("evaluate", place, "--data", dev, "--json", "--device", "cpu")
    said = json.loads(out)
    assert said["metrics"]["ndcg@10"]["value"] > 0.9
    card = (place / "README.md").read_text()
    assert "CrossEncoder(" in card
    assert "pipeline_tag: text-ranking" in card
    config = json.loads((place / "config.json").read_text())
    assert config["sentence_transformers"]["activation_fn"].endswith("Sigmoid")

    code, out, _ = larvatus("predict", place, "the bank", "--pair", "the river", "--json", "--device", "cpu")
    good = json.loads(out)["score"]
    code, out, _ = larvatus("predict", place, "the bank", "--pair", "turn in", "--json", "--device", "cpu")
    assert 1 > good > json.loads(out)["score"] > 0
    pairs = write_rows(tmp_path / "pairs.jsonl", [{"query": "the bank", "passage": "the river", "id": "p7"}])
    code, out, _ = larvatus("predict", place, "--file", pairs, "--json", "--device", "cpu")
    assert (json.loads(out)["score"], json.loads(out)["id"]) == (pytest.approx(good), "p7")
    for wrong in (("the bank",), ("the bank", "--pair", " ")):
        code, _, err = larvatus("predict", place, *wrong, "--device", "cpu")
        assert (code in (2, 4), "Traceback" in err) == (True, False)


def test_python_does_what_the_commands_do(tiny_directory: Path, tmp_path: Path) -> None:
    rows = [("the bank", "turn in", 0), ("the bank", "the river", 2), ("a bank", "please", 0), ("a bank", "river", 1)]
    out = tmp_path / "out"
    model = lv.finetune(
        "rerank", tiny_directory, train=rows * 6, dev=rows, out=out, epochs=6, rate=0.01, batch=8, device="cpu"
    )
    (config,) = load_bundle(out).objectives
    assert isinstance(config, RerankingConfig)
    assert (config.loss, config.activation) == (MeanSquared(), "none")  # by the labels
    assert lv.evaluate(model, data=rows, samples=50).metrics["ndcg@10"].value == 1
    ranked = model.rerank("the bank", ["turn in", "the river", "please"])
    assert [row.rank for row in ranked] == [1, 2, 3]
    assert (ranked[0].index, ranked[0].passage) == (1, "the river")
    assert sorted((row.score for row in ranked), reverse=True) == [row.score for row in ranked]
    assert [row.to_dict()["rank"] for row in model.rerank("the bank", ["turn in", "the river"], top=1)] == [1]
    assert len(ranked.to_pandas()) == 3
    pair: Any = model.predict(("the bank", "the river"))
    assert pair.score == pytest.approx(ranked[0].score, abs=1e-5)
    assert model.rerank("the bank", []) == []
    equal = model.rerank("the bank", ["river", "river"])
    assert [row.index for row in equal] == [0, 1]
    for wrong, fault, message in (
        (("the bank", ["river", " "]), DataError, "passage 2: the passage is empty"),
        (("", ["river"]), DataError, "the query is empty"),
        (("the bank", "river"), UsageError, "list of texts, not one text"),
    ):
        with pytest.raises(fault, match=message):
            model.rerank(*wrong)
    with pytest.raises(UsageError, match="top is 1 or more"):
        model.rerank("the bank", ["river"], top=0)
    with pytest.raises(UsageError, match="is a model for no task, and reranking needs one for rerank"):
        lv.load(tiny_directory).rerank("the bank", ["river"])


@pytest.mark.parametrize("loss", ["binary-cross-entropy", "mean-squared", "softmax", "listnet"])
def test_a_head_over_a_frozen_encoder_learns_with_every_loss(tiny_directory: Path, loss: Any) -> None:
    rows = [("the bank", "turn in", 0), ("the bank", "the river", 1), ("a bank", "please", 0), ("a bank", "river", 1)]
    settings: dict[str, Any] = {"epochs": 20, "rate": 0.02, "batch": 4, "device": "cpu", "quiet": True}
    model = lv.finetune("rerank", tiny_directory, train=rows, dev=rows, trained="head", loss=loss, **settings)
    assert lv.evaluate(model, data=rows, samples=20).metrics["mrr@10"].value == 1


def test_a_long_passage_is_read_to_its_end(reranker: Bundle) -> None:
    model = lv.load(reranker.path, device="cpu")
    passage = " ".join(["homework"] * 60 + ["river"])
    (whole,), (cut,) = model.rerank("the bank", [passage]), model.rerank("the bank", [passage], truncate=True)
    assert (whole.coverage.read, whole.coverage.windows > 1) == (whole.coverage.tokens, True)
    assert cut.coverage.read < cut.coverage.tokens
    assert whole.score >= cut.score


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    finetune: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("rerank", "--train", relevance(tmp_path / "train.jsonl", 24, 0), "--loss", "softmax", *QUICK)
    check_resumed(finetune, *command, at=3, folder=tmp_path, monkeypatch=monkeypatch)
