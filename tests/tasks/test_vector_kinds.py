"""`finetune embed --vectors late` and `sparse`: cached gradients, commands, resumed runs, long texts, options."""

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
from larvatus.core.errors import UsageError
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.new_heads import attach_head
from larvatus.models.heads.embedding import EmbeddingConfig, LateInteractionConfig
from larvatus.models.heads.head import HeadConfig
from larvatus.models.heads.sparse import SparseConfig
from larvatus.models.objectives.late_interaction import Splade
from larvatus.models.objectives.sentence_losses import CoSENT, MultipleNegatives, Triplet
from larvatus.tasks.embed.compared import SparseTexts, TokenTexts, compared_texts, reading_of
from larvatus.tasks.embed.encode import embedder_of, encode_sentences
from larvatus.tasks.embed.examples import SentenceExample
from larvatus.tasks.embed.mining import load_teacher
from larvatus.tasks.embed.options import SentenceOptions, text_head, with_sparse_start
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.trainer.config import FineTuneArguments, TrainConfig
from larvatus.tasks.trainer.trainer import Trainer
from larvatus.training.engine.settings import Runtime
from tests.made_up import Call
from tests.tasks.test_embed import PLACE, QUICK, examples, scored, similar
from tests.tasks.test_run import check_resumed

HEADS: dict[str, tuple[HeadConfig, int]] = {
    "late": (LateInteractionConfig(size=4), 3),
    "late scores": (LateInteractionConfig(size=4, loss=CoSENT(scale=1.0)), 2),
    "late triplets": (LateInteractionConfig(size=4, loss=Triplet()), 3),
    "sparse": (SparseConfig(loss=Splade(query_weight=0.1, document_weight=0.1)), 3),
}


@pytest.fixture
def with_head(tiny_directory: Path, tmp_path: Path, save_tiny: Any) -> Callable[..., Bundle]:
    """A function that saves the tiny model with such a head, and loads it."""

    def make(config: HeadConfig) -> Bundle:
        made, _ = attach_head(load_bundle(tiny_directory), config, seed=0)
        return load_bundle(save_tiny(tmp_path / "with head", made.network, made.objectives))

    return make


def gradients(bundle: Bundle, data: Any, settings: Any, patch: pytest.MonkeyPatch) -> tuple[dict[str, Any], float]:
    """Those of the third of four steps, in microbatches of so many tokens, without dropout."""
    tokens, head = settings
    args = FineTuneArguments(
        config=TrainConfig(epochs=4, batch=9, clip=0.0), runtime=Runtime(device="cpu", microbatch=tokens)
    )
    trainer = Trainer(load_bundle(bundle.path).network, data, args, seed=1)
    trainer.head.replaced(loss=head.loss)  # which a directory does not keep
    trainer.state.step = 2
    trainer.fetch()
    trainer._chosen = np.arange(9)
    kept: dict[str, torch.Tensor] = {}
    patch.setattr("larvatus.tasks.trainer.trainer.train_mode", lambda model: model.eval())
    named = list(trainer.model.named_parameters())
    patch.setattr(
        trainer.update.optimizer,
        "step",
        lambda: kept.update({name: p.grad.clone() for name, p in named if p.grad is not None}),
    )
    trainer.step()
    return kept, float(trainer._unread[0])


@pytest.mark.parametrize("name", HEADS)
def test_cached_gradients_equal_those_of_the_whole_batch(
    name: str, with_head: Callable[..., Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, texts = HEADS[name]
    bundle = with_head(config)
    for part in bundle.network.heads.values():
        if getattr(part.config, "in_modules", False):
            assert part.config.describe()  # type: ignore[union-attr]
    reading = dataclasses.replace(reading_of(embedder_of(bundle.network), WindowOptions.of(bundle)))
    data = encode_sentences(bundle, examples(9, texts, longest=40), reading)
    assert data.sequences.parts.max() > 1  # some texts are read in windows
    whole, loss = gradients(bundle, data, (100_000, config), monkeypatch)
    cached, loss_cached = gradients(bundle, data, (90, config), monkeypatch)
    assert loss_cached == pytest.approx(loss, abs=1e-5)
    assert whole.keys() == cached.keys()
    assert len(whole) > 10
    for parameter, gradient in whole.items():
        torch.testing.assert_close(cached[parameter], gradient, atol=1e-5, rtol=1e-4, msg=parameter)
    trained = "late-interaction.projections.0.weight" if "late" in name else "masked-lm.bias"
    assert whole[f"objectives.{trained}"].abs().sum() > 0


def max_item(weights: dict[str, float]) -> tuple[str, float]:
    return max(weights.items(), key=lambda item: item[1])


@pytest.mark.parametrize("kind", ["late", "sparse"])
def test_from_pairs_to_a_search_by_the_commands(kind: str, finetune: Call, larvatus: Call, tmp_path: Path) -> None:
    train, out = similar(tmp_path / "train.jsonl"), tmp_path / "out"
    code, told, errors = finetune("embed", "--vectors", kind, "--train", train, *QUICK, "--out", out)
    assert code == 0, errors
    more = " of MaxSim" if kind == "late" else " and FLOPS (weight 5e-05 of queries, 3e-05 of documents)"
    assert f"loss: multiple-negatives (scale 1.0, symmetric False){more}, from pairs" in told
    assert "mrr@10" in told
    code, told, errors = larvatus("evaluate", out, "--data", similar(tmp_path / "test.jsonl", seed=3), "--json")
    assert code == 0, errors
    assert 0 < json.loads(told)["metrics"]["mrr@10"]["value"] <= 1
    code, told, errors = larvatus("predict", out, "the river was wide", "--json")
    assert code == 0, errors
    result = json.loads(told)
    if kind == "late":
        lengths = np.linalg.norm(np.array(result["vectors"]), axis=1)
        assert lengths == pytest.approx([1.0] * 6, abs=1e-6)  # four words, [CLS] and [SEP]
    else:
        assert all(weight > 0 for weight in result["weights"].values())
        assert lv.load(out).predict("the river was wide").weights == pytest.approx(result["weights"])
    code, told, errors = larvatus("predict", out, "the river was wide")
    assert code == 0, errors
    shown = "6 vectors of 128 dimensions" if kind == "late" else "{} {:.2f}".format(*max_item(result["weights"]))
    assert shown in told
    code, _, errors = larvatus("embed", train, "--model", out, "--out", tmp_path / "v.npy", "--text", "anchor")
    assert code == 2
    assert "not one vector for a text" in errors
    assert lv.load(out).embed(["the river"], pool="mean").shape == (1, 16)
    with pytest.raises(UsageError, match="late or sparse vectors; use a teacher with one"):
        load_teacher(str(out))


@pytest.mark.parametrize("kind", ["late", "sparse"])
def test_a_run_that_was_stopped_resumes_to_the_same_bits(
    kind: str, finetune: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = similar(tmp_path / "train.jsonl", 40)
    command = ("embed", "--vectors", kind, "--train", train, *QUICK, "--microbatch", 64)
    check_resumed(finetune, *command, at=2, folder=tmp_path, monkeypatch=monkeypatch)


def test_the_weight_of_flops_follows_the_steps(tmp_path: Path, finetune: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    plain = Splade.__call__

    def noted(self: Splade, *args: Any, progress: float = 1.0) -> Any:
        seen.append(progress)
        return plain(self, *args, progress=progress)

    monkeypatch.setattr(Splade, "__call__", noted)
    train = similar(tmp_path / "train.jsonl", 16)
    command = ("embed", "--vectors", "sparse", "--train", train, *QUICK, "--no-dev")
    assert finetune(*command, "--out", tmp_path / "out")[0] == 0
    assert seen == [step / 4 for step in range(4)]


def test_a_strong_regulariser_makes_vectors_sparse(finetune: Call, tmp_path: Path) -> None:
    train, words = similar(tmp_path / "train.jsonl", 64), []
    for weight in (0.0, 3.0):
        out = tmp_path / f"{weight}"
        flags = ("--flops-query", weight, "--flops-document", weight, "--epochs", 6, "--no-dev")
        code, _, errors = finetune("embed", "--vectors", "sparse", "--train", train, *QUICK, *flags, "--out", out)
        assert code == 0, errors
        words.append(len(lv.load(out).predict("the river bank was wide and deep").weights))
    assert words[1] < words[0] / 2


def test_sparse_vectors_begin_sparse_and_fills_stay(tiny_directory: Path, tmp_path: Path, save_tiny: Any) -> None:
    """A constant in all logits, which a softmax ignores, would make every weight of the vocabulary positive."""
    made = load_bundle(tiny_directory)
    with torch.no_grad():
        made.network.objectives["masked-lm"].bias.add_(30.0)  # type: ignore[operator,union-attr]
    bundle = load_bundle(save_tiny(tmp_path / "high", made.network, made.objectives))
    texts = examples(9, 2, longest=12)
    started, lower = with_sparse_start(bundle, texts, ScoringOptions(device="cpu"))
    assert 25 < lower < 60
    counts = []
    for model in (attach_head(bundle, SparseConfig(), seed=0)[0], started):
        data = encode_sentences(model, texts, reading_of(embedder_of(model.network), WindowOptions.of(model)))
        read = compared_texts(model.network, data, ScoringOptions(device="cpu"))
        assert isinstance(read, SparseTexts)
        counts.append(np.median(read.lengths_U) / read.vocabulary)
    assert counts[0] == 1
    assert counts[1] <= 0.5  # of a vocabulary this small
    fills = [lv.load(tiny_directory), lv.load(save_tiny(tmp_path / "lower", started.network, started.objectives))]
    first, second = (model.fill("the [MASK] was wide", top=5) for model in fills)
    for one_fill, other in zip(first, second, strict=True):
        assert (one_fill.text, one_fill.probability) == (other.text, pytest.approx(other.probability, abs=1e-5))
    assert with_sparse_start(started, texts, ScoringOptions(device="cpu"))[1] == pytest.approx(0, abs=0.5)


@pytest.mark.parametrize("kind", [LateInteractionConfig(size=4), SparseConfig()])
def test_long_texts_are_read_in_windows(kind: HeadConfig, with_head: Callable[..., Bundle]) -> None:
    bundle = with_head(kind)
    words = ["river", "bank", "wide", "deep", "run"] * 20
    result = lv.load(bundle.path).predict(" ".join(words))
    assert result.coverage.windows > 1
    assert result.coverage.read == result.coverage.tokens == 100
    if isinstance(kind, LateInteractionConfig):
        assert result.vectors.shape == (102, 4)


def test_scores_of_texts_are_naive_sums(with_head: Callable[..., Bundle]) -> None:
    """In the order of the texts, though they are read short ones first."""
    texts = ["the river bank was wide", "run", "a deep river", "turn your homework in , please !"]
    rows = [SentenceExample((text,), "texts", PLACE) for text in texts]
    for config in (LateInteractionConfig(size=4), SparseConfig()):
        bundle = with_head(config)
        data = encode_sentences(bundle, rows, reading_of(embedder_of(bundle.network), WindowOptions.of(bundle)))
        compared = compared_texts(bundle.network, data, ScoringOptions(tokens=12))
        one_by_one = [lv.load(bundle.path).predict(text) for text in texts]
        numbers = np.arange(4)
        if isinstance(compared, TokenTexts):
            vectors = [result.vectors.astype(np.float64) for result in one_by_one]
            expected = [[sum(max(i @ j for j in d) for i in q) for d in vectors] for q in vectors]
        else:
            assert isinstance(compared, SparseTexts)
            named = [result.weights for result in one_by_one]
            expected = [[sum(w * d.get(token, 0.0) for token, w in q.items()) for d in named] for q in named]
        np.testing.assert_allclose(compared.scores(numbers, numbers), expected, rtol=1e-4)
        np.testing.assert_allclose(
            compared.paired(numbers, numbers[::-1]), np.array(expected)[numbers, ::-1].diagonal(), rtol=1e-4
        )


REFUSED = {
    "--pool is for dense vectors, and these are late": {"vectors": "late", "pool": "cls"},
    "--matryoshka is for dense vectors, and these are sparse": {"vectors": "sparse", "matryoshka": (8,)},
    "--dense is for dense and late vectors, and these are sparse": {"vectors": "sparse", "dense": 8},
    "--flops-query is for sparse vectors, and these are late": {"vectors": "late", "flops_query": 0.1},
    "--flops-document is for sparse vectors, and these are dense": {"flops_document": 0.1},
}


@pytest.mark.parametrize("message", REFUSED)
def test_options_of_another_kind_are_refused(message: str, tiny_directory: Path) -> None:
    with pytest.raises(UsageError, match=message):
        text_head(load_bundle(tiny_directory), "pairs", SentenceOptions(**REFUSED[message]), teacher=0)


def test_heads_follow_options_and_the_model(tiny_directory: Path, with_head: Callable[..., Bundle]) -> None:
    plain = load_bundle(tiny_directory)
    options = SentenceOptions(vectors="late", dense=7, scale=3.0)
    assert text_head(plain, "pairs", options, teacher=0) == LateInteractionConfig(
        size=7, loss=MultipleNegatives(scale=3.0)
    )
    late = with_head(LateInteractionConfig(size=4))
    assert text_head(late, "pairs", SentenceOptions(), teacher=0) == LateInteractionConfig(size=4)
    assert isinstance(text_head(late, "pairs", SentenceOptions(vectors="dense"), teacher=0), EmbeddingConfig)
    with pytest.raises(UsageError, match="has none; give a masked language model"):
        text_head(late, "pairs", SentenceOptions(vectors="sparse"), teacher=0)
    options = SentenceOptions(vectors="late", teacher="x", vector_weight=1.0)
    with pytest.raises(UsageError, match="leave out --vector-weight"):
        text_head(plain, "texts", options, teacher=16)


def test_only_the_encoder_is_frozen_for_one_vector(finetune: Call, tmp_path: Path) -> None:
    train = similar(tmp_path / "train.jsonl", 16)
    flags = ("--vectors", "late", "--train", train, "--trained", "head", *QUICK)
    code, _, errors = finetune("embed", *flags, "--out", tmp_path / "out")
    assert code == 2
    assert "give --trained all, last2 or lora" in errors


def test_scored_pairs_and_teachers_train_them_too(finetune: Call, tmp_path: Path, tuned: Callable[..., Bundle]) -> None:
    rows = scored(tmp_path / "train.jsonl", 24)
    command = ("embed", "--vectors", "late", "--train", rows, *QUICK, "--out", tmp_path / "scores")
    code, told, errors = finetune(*command)
    assert code == 0, errors
    assert "loss: cosent (scale 1.0) of MaxSim, from scores" in told
    teacher = tuned(EmbeddingConfig(normalise=True), seed=3).path
    command = ("embed", "--vectors", "sparse", "--train", rows, "--teacher", teacher, *QUICK, "--dev", rows)
    code, told, errors = finetune(*command, "--out", tmp_path / "taught")
    assert code == 0, errors
    assert "loss: distillation (vectors 0.0, similarities 1.0) and FLOPS" in told
