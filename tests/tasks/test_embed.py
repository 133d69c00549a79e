"""Fine-tuning for sentence vectors: cached gradients, losses that fall, runs that are resumed, and all commands."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import larvatus as lv
from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.core.rng import stream
from larvatus.data.labelled.records import Dataset, Place
from larvatus.metrics.ranking import spearman
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.heads.embedding import DenseProjection, EmbeddingConfig
from larvatus.models.objectives.sentence_losses import CoSENT, Distillation, Matryoshka, MultipleNegatives
from larvatus.tasks.embed.compared import DenseTexts
from larvatus.tasks.embed.encode import EncodeOptions, encode_sentences
from larvatus.tasks.embed.evaluation import evaluate_sentences
from larvatus.tasks.embed.examples import SentenceExample
from larvatus.tasks.embed.mining import load_teacher, teacher_vectors
from larvatus.tasks.embed.reader import read_sentences
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.scoring import ScoringOptions, head_of
from larvatus.tasks.trainer.config import FineTuneArguments, TrainConfig
from larvatus.tasks.trainer.step_parts import step_parts
from larvatus.tasks.trainer.trainer import Trainer
from larvatus.training.engine.settings import Runtime
from tests.made_up import Call, write_rows
from tests.tasks.conftest import PLAIN
from tests.tasks.test_run import assert_bit_equal, check_resumed

PLACE = Place("test.jsonl", 1)
QUICK = ("--epochs", 2, "--batch", 8, "--rate", 0.003, "--device", "cpu")


def text(random: Any, longest: int = 8) -> str:
    return " ".join(random.choice(PLAIN, size=random.integers(2, longest)))


def examples(count: int, texts: int = 2, *, longest: int = 8) -> list[SentenceExample]:
    random = stream(1, "test sentences")
    rows = "triplets" if texts > 2 else "pairs"
    return [
        SentenceExample(
            tuple(f"{PLAIN[n % 12]} {text(random, longest)}" for _ in range(texts)), rows, PLACE, score=n / 3
        )
        for n in range(count)
    ]


LOSSES = {
    "multiple-negatives": (MultipleNegatives(symmetric=True), 3),
    "cosent": (CoSENT(), 2),
    "distillation": (Distillation(), 2),
    "matryoshka": (Matryoshka(inner=MultipleNegatives(), dimensions=(8, 4)), 2),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("microbatch", [24, 60])
def test_cached_gradients_equal_those_of_the_whole_batch(
    name: str, microbatch: int, tuned: Callable[..., Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout off: the masks of a microbatch are seeded by its number, so they differ from those of a batch."""
    loss, texts = LOSSES[name]
    config = EmbeddingConfig(pool="mean", projections=(DenseProjection(size=8),), loss=loss)
    bundle = tuned(config)
    options = EncodeOptions(pool="mean", windows=WindowOptions.of(bundle))
    data = encode_sentences(bundle, examples(9, texts, longest=12), options)
    if isinstance(loss, Distillation):
        teacher = np.random.default_rng(0).normal(size=(len(data.sequences), 8)).astype(np.float32)
        data = dataclasses.replace(data, teacher=teacher)
    gradients = []
    for tokens in (100_000, microbatch):
        args = FineTuneArguments(
            config=TrainConfig(epochs=1, batch=9, clip=0.0), runtime=Runtime(device="cpu", microbatch=tokens)
        )
        network = load_bundle(bundle.path).network
        for part in network.modules():
            if hasattr(part, "p"):
                part.p = 0.0
        trainer = Trainer(network, data, args, seed=1)
        trainer.fetch()
        monkeypatch.setattr("larvatus.tasks.trainer.trainer.train_mode", lambda model: model.eval())
        kept: dict[str, torch.Tensor] = {}

        def keep(network: Any = network, kept: dict[str, torch.Tensor] = kept) -> None:
            kept.update({n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None})

        monkeypatch.setattr(trainer.update.optimizer, "step", keep)
        trainer.step()
        gradients.append((kept, float(trainer._unread[0]) if trainer._unread else trainer.state.losses[0]))
    (whole, loss_whole), (cached, loss_cached) = gradients
    assert loss_cached == pytest.approx(loss_whole, abs=1e-5)
    assert whole.keys() == cached.keys()
    assert len(whole) > 10
    for parameter, gradient in whole.items():
        torch.testing.assert_close(cached[parameter], gradient, atol=1e-5, rtol=1e-4, msg=parameter)


def test_the_two_passes_of_a_microbatch_draw_the_same_masks(tuned: Callable[..., Bundle]) -> None:
    """Else the gradient would be of other vectors than the loss: a step with dropout lowers its own loss."""
    bundle = tuned(EmbeddingConfig())
    data = encode_sentences(bundle, examples(8), EncodeOptions(pool="mean", windows=WindowOptions.of(bundle)))
    args = FineTuneArguments(config=TrainConfig(epochs=1, batch=8), runtime=Runtime(device="cpu", microbatch=24))
    trainer = Trainer(load_bundle(bundle.path).network, data, args, seed=1)
    trainer.fetch()
    trainer.model.train()
    batch = data.batch(np.arange(8))
    parts = [*step_parts(trainer.model, data, np.arange(8), None)]
    micros = trainer._microbatches(parts, 0, 0, budget=24)
    assert len(micros) > 2
    cached = micros[0].loss.args[0]  # type: ignore[attr-defined]
    first = [cached.loss(item) for item in range(len(micros))]
    vectors = []
    for item in range(len(micros)):
        cached._seed(item)
        vectors.append(cached._vectors(item).detach())
    expected = head_of(trainer.model).score_loss(
        torch.cat(vectors), batch.targets[next(iter(batch.targets))].map(torch.as_tensor)
    )
    assert sum(float(part.figures) for part in first) == pytest.approx(float(expected.mean), abs=1e-6)


def similar(path: Path, count: int = 60, seed: int = 0) -> Path:
    """A pair has the same first word; words after it are noise."""
    random = stream(seed, "test similar")
    rows = []
    for number in range(count):
        word = PLAIN[number % 14]
        rows.append({"anchor": f"{word} {word} {text(random, 4)}", "positive": f"{word} {word} {text(random, 4)}"})
    return write_rows(path, rows)


def scored(path: Path, count: int = 60, seed: int = 0) -> Path:
    random = stream(seed, "test scored")
    rows = []
    for _ in range(count):
        words = random.choice(PLAIN, size=5, replace=False).tolist()
        other = random.choice(PLAIN, size=5).tolist()
        same = int(random.integers(0, 6))
        rows.append({"text1": " ".join(words), "text2": " ".join(words[:same] + other[same:]), "score": same})
    return write_rows(path, rows)


def test_from_pairs_to_vectors_by_the_commands(finetune: Call, larvatus: Call, tmp_path: Path) -> None:
    train, out = similar(tmp_path / "train.jsonl"), tmp_path / "out"
    code, told, errors = finetune("embed", "--train", train, *QUICK, "--matryoshka", 8, "--out", out)
    assert code == 0, errors
    assert "read as: pairs, anchor = anchor, positive = positive" in told
    assert "loss: multiple-negatives (scale 20.0, symmetric False) over the first 16, 8 dimensions" in told
    assert "mrr@10" in told
    model = lv.load(out)
    vectors = model.embed(["the river", "a bank"])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(model.predict("the river").vector, vectors[0], atol=1e-6)
    code, told, errors = larvatus("evaluate", out, "--data", similar(tmp_path / "test.jsonl", seed=3), "--json")
    assert code == 0, errors
    metrics = json.loads(told)["metrics"]
    assert 0 < metrics["mrr@10"]["value"] <= 1
    code, told, errors = larvatus("predict", out, "the river was wide", "--json")
    assert code == 0, errors
    assert len(json.loads(told)["vector"]) == 16
    code, _, errors = larvatus("embed", train, "--model", out, "--out", tmp_path / "v.npy", "--text", "anchor")
    assert code == 0, errors
    assert np.linalg.norm(np.load(tmp_path / "v.npy"), axis=1) == pytest.approx(1.0, abs=1e-5)
    assert "sentence-transformers" in (out / "README.md").read_text(encoding="utf-8")


def test_what_is_learnt_shows_on_other_examples(finetune: Call, tmp_path: Path) -> None:
    train, dev = scored(tmp_path / "train.jsonl", 120), scored(tmp_path / "dev.jsonl", 60, seed=9)
    out = tmp_path / "out"
    code, _, errors = finetune(
        "embed", "--train", train, "--dev", dev, "--epochs", 4, "--batch", 16, "--rate", 0.003, "--out", out
    )
    assert code == 0, errors
    found = evaluate_sentences(load_bundle(out), read_sentences(dev))
    history = json.loads((out / "finetuning.json").read_text())["runs"][0]["history"]
    first, best = history[0]["scores"]["values"]["spearman"], found.metrics["spearman"].value
    assert best > 0.6
    assert best >= first
    rows = [json.loads(line) for line in dev.read_text().splitlines()]
    vectors = [lv.load(out).embed([row[name] for row in rows]) for name in ("text1", "text2")]
    assert spearman((vectors[0] * vectors[1]).sum(1), [row["score"] for row in rows]) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("more", [(), ("--microbatch", 64)])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    finetune: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[Any, ...]
) -> None:
    command = ("embed", "--train", similar(tmp_path / "train.jsonl", 40), *QUICK, *more)
    check_resumed(finetune, *command, at=2, folder=tmp_path, monkeypatch=monkeypatch)


def test_a_student_learns_its_teacher_whose_vectors_are_computed_once(
    finetune: Call, tmp_path: Path, tuned: Callable[..., Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher = tuned(EmbeddingConfig(projections=(DenseProjection(size=8),), normalise=True), seed=5)
    random = stream(0, "test lines")
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(text(random) + "\n" for _ in range(80)))
    kept = tmp_path / "vectors"
    command = ("embed", "--train", lines, "--teacher", teacher.path, "--teacher-vectors", kept, "--dense", 8, *QUICK)
    code, told, errors = finetune(*command, "--out", tmp_path / "one")
    assert code == 0, errors
    assert "loss: distillation (vectors 1.0, similarities 1.0), from texts" in told
    assert "teacher-pearson" in told
    history = json.loads((tmp_path / "one" / "finetuning.json").read_text())["runs"][0]["history"]
    assert history[-1]["training_loss"] < history[0]["training_loss"]
    monkeypatch.setattr("larvatus.tasks.embed.mining._computed", _only_for_validation(kept))
    code, told, errors = finetune(*command, "--out", tmp_path / "two")
    assert code == 0, errors
    assert "vectors are in" in told
    assert_bit_equal(tmp_path / "one", tmp_path / "two")


def _only_for_validation(kept: Path) -> Callable[..., Any]:
    from larvatus.tasks.embed import mining as teacher

    plain = teacher._computed

    def computed(bundle: Any, texts: Any, start: int, scoring: Any) -> Any:
        assert len(texts) < 20, "the training texts are embedded a second time"
        return plain(bundle, texts, start, scoring)

    return computed


def test_teacher_vectors_resume_and_refuse_other_texts(
    tmp_path: Path, tuned: Callable[..., Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("larvatus.tasks.embed.mining.AT_ONCE", 4)
    teacher = load_teacher(str(tuned(EmbeddingConfig()).path))
    texts = [" ".join(PLAIN[n : n + 4]) for n in range(11)]
    whole = teacher_vectors(teacher, texts, ScoringOptions())
    folder = tmp_path / "kept"
    from larvatus.tasks.embed import mining as module

    plain, calls = module._computed, []

    def stops(bundle: Any, texts: Any, start: int, scoring: Any) -> Any:
        calls.append(start)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return plain(bundle, texts, start, scoring)

    monkeypatch.setattr(module, "_computed", stops)
    with pytest.raises(KeyboardInterrupt):
        teacher_vectors(teacher, texts, ScoringOptions(), folder=folder)
    kept = teacher_vectors(teacher, texts, ScoringOptions(), folder=folder)
    assert calls == [0, 4, 8, 8]
    np.testing.assert_allclose(np.asarray(kept), np.asarray(whole), atol=1e-6)
    np.testing.assert_array_equal(kept[np.array([9, 0, 9])], np.asarray(kept)[[9, 0, 9]])
    with pytest.raises(ArtefactError, match="other settings"):
        teacher_vectors(teacher, texts[::-1], ScoringOptions(), folder=folder)
    part = folder / "00001.npy"
    part.write_bytes(part.read_bytes()[:-1] + b"\x00")
    with pytest.raises(ArtefactError, match=r"00001\.npy"):
        teacher_vectors(teacher, texts, ScoringOptions(), folder=folder)


def test_what_cannot_be_learnt_is_refused_with_the_fix(finetune: Call, tmp_path: Path) -> None:
    pairs, lines = similar(tmp_path / "pairs.jsonl"), tmp_path / "lines.txt"
    lines.write_text("the river\n" * 3 + "a bank was wide\n" * 30)
    out = ("--out", tmp_path / "out", *QUICK)
    refused = {
        ("--train", pairs, "--loss", "cosent"): "cannot be computed of pairs; give multiple-negatives",
        ("--train", pairs, "--loss", "distillation"): "give --teacher MODEL",
        ("--train", pairs, "--matryoshka", 99): "more than the 16 dimensions",
        ("--train", pairs, "--trained", "head"): "give --dense SIZE",
        ("--train", pairs, "--metric", "spearman"): "does not score this task",
        ("--train", lines): "give --dev with scored pairs or pairs, or --no-dev",
    }
    for command, said in refused.items():
        code, _, errors = finetune("embed", *command, *out)
        assert code == 2, errors
        assert said in errors
    one = write_rows(tmp_path / "one.jsonl", [{"anchor": "the river", "positive": "a bank"}])
    code, _, errors = finetune("embed", "--train", one, "--no-dev", *out)
    assert code == 4
    assert "vectors learn from two examples or more" in errors


def test_only_a_linear_layer_is_trained_over_frozen_vectors(finetune: Call, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("embed", "--train", similar(tmp_path / "train.jsonl", 40), *QUICK, "--trained", "head", "--dense", 6)
    code, told, errors = finetune(*command, "--out", out)
    assert code == 0, errors
    assert "then 6 dimensions, scaled to length 1; new layers" in told
    assert lv.load(out).embed("the river").shape == (6,)


def test_simcse_needs_dropout_and_no_labels(finetune: Call, tmp_path: Path) -> None:
    random = stream(0, "test lines")
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(text(random) + "\n" for _ in range(40)))
    dev = scored(tmp_path / "dev.jsonl", 20)
    code, told, errors = finetune("embed", "--train", lines, "--dev", dev, *QUICK, "--out", tmp_path / "out")
    assert code == 0, errors
    assert "loss: simcse (scale 20.0), from texts" in told
    assert "spearman" in told


def test_evaluation_counts_by_hand(tuned: Callable[..., Bundle], monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tuned(EmbeddingConfig())
    rows = [("a", "b"), ("a", "c"), ("d", "e")]
    texts = {"a": [1, 0.0], "b": [0.6, 0.8], "c": [0, 1.0], "d": [0.0, -1.0], "e": [1, 0.1]}
    names = {"a": "the", "b": "river", "c": "bank", "d": "wide", "e": "deep"}
    data = Dataset(tuple(SentenceExample((names[x], names[y]), "pairs", PLACE) for x, y in rows), "test")
    order = [names[name] for name in ("a", "b", "c", "d", "e")]
    made = np.array([texts[name] for name in ("a", "b", "c", "d", "e")], np.float32)
    assert order == ["the", "river", "bank", "wide", "deep"]
    monkeypatch.setattr("larvatus.tasks.embed.evaluation.compared_texts", lambda *given: DenseTexts(made))
    found = evaluate_sentences(bundle, data)
    # a: e 0.995, b 0.6, c 0 → first relevant at 2, none at 1, both in ten; d: e −0.1, b −0.8, c −1 → at 1
    assert found.metrics["mrr@10"].value == pytest.approx((1 / 2 + 1) / 2)
    assert found.metrics["recall@1"].value == pytest.approx((0 + 1) / 2)
    assert found.metrics["recall@10"].value == pytest.approx(1.0)
    assert (found.searched, found.anchors) == (3, 2)
    with pytest.raises(DataError, match="nothing to measure vectors by"):
        evaluate_sentences(bundle, Dataset((SentenceExample(("the",), "texts", PLACE),), "test"))
    same = Dataset(tuple(SentenceExample(("the", "a"), "scores", PLACE, score=1.0) for _ in range(3)), "test")
    with pytest.raises(DataError, match="all scores are 1"):
        evaluate_sentences(bundle, same)


def test_a_pair_to_predict_is_refused(tuned: Callable[..., Bundle]) -> None:
    model = lv.load(tuned(EmbeddingConfig()).path)
    with pytest.raises(UsageError, match="give both apart"):
        model.predict([("the river", "a bank")])
