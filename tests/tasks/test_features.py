"""Frozen features kept on disk: the same numbers, and so the same training, as through the encoder."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch, WordTokens
from larvatus.core.errors import ArtefactError
from larvatus.core.targets import ClassTargets, WordTags
from larvatus.models.heads import ClassificationConfig, TaggingConfig
from larvatus.models.network import Network
from larvatus.models.nn import TransformerConfig, on_device
from larvatus.tasks import features as module
from larvatus.tasks.features import Features
from larvatus.tasks.scoring import ScoringOptions, head_of
from larvatus.tasks.trainer.trainable import TrainableConfig, train_mode, trainable
from larvatus.training.engine.optimizer import set_rate

VOCABULARY, HIDDEN, EXAMPLES = 30, 16, 23
KNOWN = ("A", "B", "C")
HEADS: dict[str, Any] = {
    "cls": ClassificationConfig(labels=KNOWN, dropout=0.0),
    "mean": ClassificationConfig(labels=KNOWN, dropout=0.0, pool="mean", dense="none"),
    "max": ClassificationConfig(labels=KNOWN, dropout=0.0, pool="max"),
    "mixed": ClassificationConfig(labels=KNOWN, dropout=0.0, mix=True),
    "subwords": TaggingConfig(labels=KNOWN, dropout=0.0),
    "words": TaggingConfig(labels=KNOWN, dropout=0.0, learn="words", pool="mean"),
    "lstm": TaggingConfig(labels=KNOWN, dropout=0.0, lstm=6, mix=True),
    "crf": TaggingConfig(labels=KNOWN, dropout=0.0, crf=True),
}
BUDGETS = [(head, budget) for head in ("cls", "words", "lstm") for budget in (1, 100_000)]
"""Tokens at once: every text is cut, and all are read together; of a text, of words, and of both with all layers."""


class Listed:
    """Examples made in advance, each of one sequence or of several."""

    def __init__(self, made: list[TrainingBatch[Ints]]) -> None:
        self.made = made

    def __len__(self) -> int:
        return len(self.made)

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        return TrainingBatch.join([self.made[number] for number in examples])


def example(draw: np.random.Generator) -> TrainingBatch[Ints]:
    """Some windows of random length; words of one to three tokens, and now and then one without a token."""
    lengths = draw.integers(3, 14, size=draw.choice([1, 1, 1, 2, 4]))
    tokens = TokenBatch.of([draw.integers(0, VOCABULARY, n).tolist() for n in lengths])
    rows, words, counts, word = [], [], [], 0
    for start, length in zip(np.cumsum(lengths) - lengths, lengths, strict=True):
        place, before = 1, word
        while place < length - 1:
            size = min(int(draw.integers(0, 4)), length - 1 - place)
            rows += [int(start) + place + n for n in range(size)]
            words += [word] * size
            place, word = place + size, word + 1
        counts.append(word - before)
    tags = draw.integers(0, len(KNOWN), word)
    classes = ClassTargets(
        labels=np.full(len(lengths), draw.integers(0, len(KNOWN))),
        weights=np.full(len(lengths), 1 / len(lengths), np.float32),
    )
    pieces = WordTokens(
        rows=np.array(rows, np.int64),
        words=np.array(words, np.int64),
        counts=np.array(counts),
        starts=np.array(counts),
        total=word,
    )
    tagged = WordTags(tags=tags, counts=np.array(counts))
    targets = {ClassTargets: classes, WordTags: tagged}
    return TrainingBatch(tokens=dataclasses.replace(tokens, word_tokens=pieces), targets=targets)


@pytest.fixture(scope="module")
def data() -> Listed:
    draw = np.random.default_rng(5)
    return Listed([example(draw) for _ in range(EXAMPLES)])


def model(head: str, **shape: object) -> Network:
    settings = {"layers": 2, "hidden": HIDDEN, "heads": 2, "max_positions": 16, "init": 0.3, **shape}
    config = TransformerConfig(**settings)  # type: ignore[arg-type]
    return Network.build(config, [HEADS[head]], VOCABULARY, seed=1)


@pytest.mark.parametrize(("head", "budget"), [*((head, 40) for head in HEADS), *BUDGETS])
def test_cached_features_are_those_of_the_encoder(head: str, budget: int, data: Listed) -> None:
    """Whatever the portions, even where one example has to be cut; dropout of the encoder plays no part."""
    whole = model(head, dropout=0.5, attention_dropout=0.5).train()
    own = head_of(whole)
    features = Features.build(whole, data, ScoringOptions(tokens=budget))
    chosen = np.array([7, 0, 19, 7, 22])
    batch = on_device(data.batch(chosen), "cpu")
    states = own.states(whole.eval().encoder, batch.tokens)
    if head == "subwords":
        expected = states[batch.tokens.word_tokens.rows]
    else:
        expected = own.features(states, batch)
    assert_close(features.of(chosen), expected.detach(), rtol=0, atol=1e-6)
    assert features.of(chosen).dtype == torch.float32


@pytest.mark.parametrize("head", HEADS)
def test_training_from_the_cache_equals_training_through_the_encoder(head: str, data: Listed) -> None:
    through, cached = model(head), model(head)
    runs = []
    for whole in (through, cached):
        groups = trainable(whole, TrainableConfig.read("head"), decay=0.01, seed=1)
        runs.append(torch.optim.AdamW(groups))
    features = Features.build(cached, data, ScoringOptions(tokens=64))
    draw = np.random.default_rng(2)
    for _ in range(6):
        chosen = draw.permutation(EXAMPLES)[:8]
        batch = on_device(data.batch(chosen), "cpu")
        train_mode(through)
        train_mode(cached)
        own = head_of(through)
        expected = own.loss(own.states(through.encoder, batch.tokens), batch, through.encoder, accuracy=True)
        found = features.loss(head_of(cached), chosen, batch, accuracy=True)
        assert_close(found.total, expected.total, rtol=1e-5, atol=1e-5)
        assert_close(found.count, expected.count)
        assert found.correct == expected.correct
        assert float(found.count) == pytest.approx(own.size(batch))
        for optimizer, loss in zip(runs, (expected, found), strict=True):
            optimizer.zero_grad()
            loss.mean.backward()
            set_rate(optimizer, 0.01)
            optimizer.step()
    before = model(head).state_dict()
    after = through.state_dict()
    for name, tensor in cached.state_dict().items():
        assert_close(tensor, after[name], rtol=1e-3, atol=1e-4)
        if name.startswith("encoder."):
            assert torch.equal(tensor, before[name])
    assert any(not torch.allclose(tensor, before[name]) for name, tensor in after.items())


@pytest.mark.parametrize(("head", "budget"), [*((head, 60) for head in HEADS), *BUDGETS])
def test_scores_from_the_cache_are_those_through_the_encoder(head: str, budget: int, data: Listed) -> None:
    whole = model(head)
    features = Features.build(whole, data, ScoringOptions(tokens=budget), learning=False)
    for parameter in whole.objectives.parameters():  # the head has learnt since
        parameter.data.add_(0.1)
    batch = on_device(data.batch(np.arange(EXAMPLES)), "cpu")
    with torch.inference_mode():
        own = head_of(whole.eval())
        expected = own.scores(own.states(whole.encoder, batch.tokens), batch)
    whole.train()
    assert_close(torch.from_numpy(features.scores(head_of(whole))), expected, rtol=0, atol=1e-5)


def test_where_subwords_learn_each_pair_of_token_and_word_is_a_row() -> None:
    pieces = WordTokens(
        rows=np.array([1, 2, 3, 6, 7]),
        words=np.array([0, 0, 2, 3, 3]),  # word 1 has no token
        counts=np.array([3, 0, 1]),
        starts=np.array([3, 0, 1]),
        total=4,
    )
    tokens = dataclasses.replace(TokenBatch.of([[2, 5, 5, 5], [3], [2, 7, 7]]), word_tokens=pieces)
    head = head_of(model("subwords"))
    assert head.rows(tokens, learning=True).tolist() == [3, 0, 2]
    assert head.rows(tokens).tolist() == [3, 0, 1]
    batch = TrainingBatch(
        tokens=tokens, targets={WordTags: WordTags(tags=np.array([5, 6, -100, 8]), counts=pieces.counts)}
    )
    assert head.size(batch) == 4  # words 0 and 3 on two subwords each


def test_no_file_is_left_to_see(data: Listed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    features = Features.build(model("cls"), data, ScoringOptions())
    assert isinstance(features.rows, np.memmap)
    assert list(tmp_path.iterdir()) == []
    assert float(features.of(np.arange(EXAMPLES)).abs().sum()) > 0


def test_progress_is_told_in_tokens_to_the_end(data: Listed) -> None:
    seen: list[tuple[int, int]] = []
    Features.build(model("cls"), data, ScoringOptions(tokens=50), progress=lambda done, all: seen.append((done, all)))
    total = sum(one.tokens.size for one in data.made)
    assert seen[-1] == (total, total)
    assert sorted(seen) == seen
    assert len(seen) > 3


def test_a_disk_too_small_is_said_before_anything_is_read(data: Listed, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 100})
    monkeypatch.setattr(module.shutil, "disk_usage", lambda place: usage)
    with pytest.raises(ArtefactError, match="set TMPDIR"):
        Features.build(model("cls"), data, ScoringOptions())


def test_sentences_without_words_have_no_rows() -> None:
    nothing, none = np.empty(0, np.int64), np.zeros(1, np.int64)
    pieces = WordTokens(rows=nothing, words=nothing, counts=none, starts=none, total=0)
    tokens = dataclasses.replace(TokenBatch.of([[2, 3]]), word_tokens=pieces)
    one = TrainingBatch(tokens=tokens, targets={WordTags: WordTags(tags=nothing, counts=none)})
    whole = model("words")
    features = Features.build(whole, Listed([one, one]), ScoringOptions())
    assert features.of(np.array([1, 0])).shape == (0, HIDDEN)
    loss = features.loss(head_of(whole), np.array([1]), on_device(one, "cpu"))
    assert float(loss.total.detach()) == float(loss.count) == 0
