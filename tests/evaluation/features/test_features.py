"""Sparse features: a planted dictionary is recovered, steps equal a naive one, and a directory holds what was found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from larvatus.core.errors import ArtefactError, DataError, NumericsError, UsageError
from larvatus.core.rng import stream
from larvatus.evaluation.features.autoencoder import AutoencoderTrainer, FeatureSettings
from larvatus.evaluation.features.results import SparseFeatures
from larvatus.evaluation.features.train import random_encoder
from larvatus.inference.model import Model, load
from larvatus.interfaces.api.causes import train_features

SMALL: dict[str, Any] = {"layer": 1, "size": 24, "k": 3, "tokens": 1_000, "batch": 64, "epochs": 2}
SENTENCES = ("The river bank was wide and deep.", "Please turn your homework in, please!", "A bank of the river?")


@pytest.fixture(scope="module")
def model(tiny_model: Any, save_tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load(save_tiny(tmp_path_factory.mktemp("features") / "m", tiny_model()), device="cpu")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    draw = stream(1, "text")
    lines = [" ".join(SENTENCES[n] for n in draw.integers(0, 3, 2 + item % 3)) for item in range(60)]
    path.write_text("\n\n".join(lines))
    return path


@pytest.fixture(scope="module")
def features(model: Model, corpus: Path) -> SparseFeatures:
    return train_features(model, corpus, **SMALL)


def test_a_planted_dictionary_is_recovered() -> None:
    """States are sums of 3 of 40 directions in 24 dimensions: more directions than dimensions."""
    draw = stream(0, "planted")
    atoms = draw.standard_normal((40, 24))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    active = np.zeros((5_000, 40))
    for row in active:
        row[draw.permutation(40)[:3]] = 1 + draw.random(3)
    states = torch.from_numpy(active @ atoms).float()
    settings = FeatureSettings(size=56, k=3, batch=256, epochs=20, learning_rate=3e-3, dead_after=3_000)
    trainer = AutoencoderTrainer.of(states, settings)
    trainer.train(states)
    learned = trainer.autoencoder.decoder.detach().numpy()
    assert_allclose(np.linalg.norm(learned, axis=1), 1, rtol=1e-5)
    cosines = atoms @ learned.T
    assert (cosines.max(1) > 0.95).mean() >= 0.95
    assert (atoms @ AutoencoderTrainer.of(states, settings).autoencoder.decoder.detach().numpy().T).max(1).max() < 0.9
    values, numbers = trainer.autoencoder.encode(states[:200])
    fired = np.zeros((200, 56), np.bool_)
    np.put_along_axis(fired, numbers.numpy(), values.numpy() > 0.1, axis=1)
    assert (fired[:, cosines.argmax(1)] == (active[:200] > 0)).mean() > 0.97


def test_a_step_follows_the_equations() -> None:
    """Loss and gradients of one step against loops in float64, with dead features."""
    draw = np.random.default_rng(2)
    states = torch.from_numpy(draw.standard_normal((6, 4))).float()
    trainer = AutoencoderTrainer.of(states, FeatureSettings(size=8, k=2, dead_after=1))
    made = trainer.autoencoder
    with torch.no_grad():
        made.bias.copy_(torch.from_numpy(draw.standard_normal(8)))
    trainer.states = 100
    trainer._fired_F[:] = 100
    trainer._fired_F[[1, 5, 6]] = 0
    x = made.normalise(states).double().numpy()
    w, bias = made.decoder.detach().double().numpy(), made.bias.detach().double().numpy()
    assert torch.equal(made.encoder, made.decoder)
    assert_allclose(np.square(x).mean(), 1, rtol=1e-5)
    error = auxiliary = 0.0
    fired: set[int] = set()
    residuals, activations = [], []
    for row in x:
        a = w @ row + bias
        top = np.argsort(-a)[:2]
        fired |= {int(f) for f in top if a[f] > 0}
        residuals.append(row - sum(max(a[f], 0) * w[f] for f in top))
        activations.append(a)
        error += np.square(residuals[-1]).sum()
    dead = [f for f in range(8) if f not in fired]  # nothing else fired in the last state
    for residual, a in zip(residuals, activations, strict=True):
        best = sorted(dead, key=lambda f: -a[f])[: min(len(dead), 2)]
        auxiliary += np.square(residual - sum(max(a[f], 0) * w[f] for f in best)).sum()
    expected = error / np.square(x).sum() + auxiliary / error / 32
    assert_allclose(trainer.step(made.normalise(states)), expected, rtol=1e-5)
    assert_allclose(made.decoder.detach().norm(dim=1), torch.ones(8), rtol=1e-5)


def test_equal_seeds_give_equal_features_and_other_buffers_others(
    model: Model, corpus: Path, features: SparseFeatures
) -> None:
    again = train_features(model, [corpus], **SMALL)
    assert again.to_dict() == features.to_dict()
    for name, made in features.autoencoders.items():
        assert torch.equal(made.decoder, again.autoencoders[name].decoder)
    other = train_features(model, corpus, **SMALL, seed=1)
    assert not torch.equal(other.autoencoders["trained"].decoder, features.autoencoders["trained"].decoder)


def test_the_random_encoder_has_the_same_shape_and_other_weights(model: Model) -> None:
    other, mine = random_encoder(model.encoder, 0), model.encoder
    shapes = [(name, tensor.shape) for name, tensor in mine.state_dict().items()]
    assert shapes == [(name, tensor.shape) for name, tensor in other.state_dict().items()]
    assert not torch.equal(other.word_vectors, mine.word_vectors)
    assert torch.equal(random_encoder(mine, 0).word_vectors, other.word_vectors)


def test_what_is_reported_is_what_the_held_out_tokens_do(model: Model, corpus: Path, features: SparseFeatures) -> None:
    """Explained variance, rates and contexts, recomputed from the states of the held-out passages."""
    texts = [text for n, text in enumerate(corpus.read_text().split("\n\n")) if n % 10 == 9]
    vectors = model.vectors(texts, unit="token", layers=1)
    assert features.origin.passages == len(texts) == 6
    assert features.origin.held_out == sum(map(len, vectors))
    made = features.autoencoders["trained"]
    states = torch.from_numpy(np.concatenate([each.vectors for each in vectors])).float()
    values, numbers = made.encode(states)
    rebuilt = torch.zeros_like(states)
    for row in range(len(states)):
        for value, number in zip(values[row], numbers[row], strict=True):
            rebuilt[row] += value * made.decoder.detach()[number] * made.scale
        rebuilt[row] += made.centre
    explained = 1 - float((states - rebuilt).square().sum() / (states - states.mean(0)).square().sum())
    summary = features.dictionaries["trained"]
    assert_allclose(summary.explained, explained, rtol=1e-4)
    assert summary.low <= summary.explained <= summary.high
    active = torch.zeros(len(states), 24).scatter_(1, numbers, values)
    listed = features.features["trained"]
    assert_allclose([each.rate for each in listed], (active > 0).float().mean(0), atol=1e-6)
    assert summary.dead == sum(not each.contexts for each in listed)
    strongest = max(listed, key=lambda each: each.contexts[0].value if each.contexts else 0)
    assert_allclose(strongest.contexts[0].value, active.max(), rtol=1e-5)
    source = corpus.read_text()
    for context in strongest.contexts:
        document = source.split("\n\n")[context.document]
        assert document[context.place : context.place + len(context.word)] == context.word
        assert context.word in source.split("\n")[context.line - 1]
        assert context.text[context.start : context.end] == context.word
        assert context.source == str(corpus)
    forms = [{c.word.casefold() for c in each.contexts} for each in listed if len(each.contexts) > 1]
    assert summary.compared == len(forms)
    assert_allclose(summary.one_form, np.mean([len(each) == 1 for each in forms]))
    rows = features.to_dicts()
    assert len(rows) == 24
    assert set(rows[0]) == {"number", "rate", "one_form", "consistency", "word", "context"}


def test_consistency_is_the_mean_cosine_of_the_words_of_the_contexts(
    model: Model, features: SparseFeatures, corpus: Path
) -> None:
    texts = [text for n, text in enumerate(corpus.read_text().split("\n\n")) if n % 10 == 9]
    last = np.concatenate([each.vectors for each in model.vectors(texts, unit="token")]).astype(np.float64)
    mean, deviation = last.mean(0), last.std(0)
    feature = next(f for f in features.features["trained"] if len({c.word for c in f.contexts}) > 1)
    vectors = []
    for context in feature.contexts:
        text = corpus.read_text().split("\n\n")[context.document]
        each = model.vectors([text], unit="token")[0]
        starts = each.spans[:, 0].tolist()
        # a token of the word, which may have several: the strongest is one of them
        vectors.append(
            [each.vectors[n] for n, s in enumerate(starts) if context.place <= s < context.place + len(context.word)]
        )
    assert all(len(of_word) == 1 for of_word in vectors)
    rows = (np.array([of_word[0] for of_word in vectors]) - mean) / deviation
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = (rows @ rows.T)[~np.eye(len(rows), dtype=bool)]
    assert_allclose(feature.consistency, cosines.mean(), atol=1e-4)


def test_a_directory_holds_the_features_and_a_changed_byte_is_refused(
    tmp_path: Path, model: Model, features: SparseFeatures, tiny_model: Any, save_tiny: Any
) -> None:
    features.save(tmp_path / "f")
    read = SparseFeatures.load(tmp_path / "f")
    assert read.to_dict() == features.to_dict()
    text = "the river bank was deep"
    fired = read.activations(model, text)
    assert fired == features.activations(model, text)
    assert [fired[0].token, fired[0].start] == ["the", 0]
    assert str(read) == str(features)
    assert "random weights" in str(read)
    assert "<mark>" in read._repr_html_()
    with pytest.raises(ArtefactError, match="is there already; remove it, or choose another --out"):
        features.save(tmp_path / "f")
    other = load(save_tiny(tmp_path / "other", tiny_model(seed=3)), device="cpu")
    with pytest.raises(ArtefactError, match="has other weights"):
        read.activations(other, text)
    (tmp_path / "f" / "features.json").write_text(
        (tmp_path / "f" / "features.json").read_text().replace("river", "rivet")
    )
    with pytest.raises(ArtefactError, match=r"features\.json"):
        SparseFeatures.load(tmp_path / "f")
    with pytest.raises(ArtefactError, match="holds no sparse features"):
        SparseFeatures.load(tmp_path)


def test_passages_longer_than_the_window_are_read_and_counted(model: Model, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("\n\n".join(["the river bank was wide and deep " * 20] * 25))
    trained = train_features(model, tmp_path / "long.txt", **{**SMALL, "tokens": 2_000})
    assert trained.origin.long > trained.origin.passages == 2
    assert f"{trained.origin.long} passages are longer than the model's window" in str(trained.comparison())


def test_features_are_chosen_by_word_number_and_order(features: SparseFeatures) -> None:
    rates = [each.rate for each in features.chosen(of="trained", sort="rate")]
    assert rates == sorted(rates, reverse=True)
    word = features.chosen(of="random", sort="number", word="RIVER")
    assert word
    assert all(any(c.word.casefold() == "river" for c in each.contexts) for each in word)
    assert features.chosen(of="trained", sort="rate", number=3)[0].number == 3
    for wrong, message in (({"number": 25}, "no feature 25: they are numbered 1 to 24"), ({"word": "kiwi"}, "'kiwi'")):
        with pytest.raises(UsageError, match=message):
            features.chosen(of="trained", sort="rate", **wrong)  # type: ignore[arg-type]


def test_what_cannot_be_trained_is_one_line(tmp_path: Path, model: Model, corpus: Path) -> None:
    (tmp_path / "short.txt").write_text("The river.")
    (tmp_path / "one.txt").write_text("\n\n".join(["The river bank was wide and deep."] * 12))
    (tmp_path / "there").mkdir()
    for given, error, message in (
        ({"layer": 3}, UsageError, "there is no layer 3: the model has layers 0, the embeddings, to 2"),
        ({"layer": "1"}, UsageError, "there is no layer '1': the model has layers 0"),
        ({"k": 30}, UsageError, "--k 30 features cannot be active of 24"),
        ({"corpus": tmp_path / "short.txt"}, DataError, "2 tokens in 1 passages are too few|3 tokens in 1 passages"),
        ({"corpus": tmp_path / "one.txt"}, DataError, "are too few to train on and hold out two, every 10th passage"),
        ({"out": tmp_path / "there"}, ArtefactError, "is there already"),
        ({"learning_rate": 0}, UsageError, "learning_rate"),
    ):
        with pytest.raises(error, match=message):
            train_features(model, **{"corpus": corpus, **SMALL, **given})  # type: ignore[arg-type]
    with pytest.raises(NumericsError, match="all equal or not finite"):
        AutoencoderTrainer.of(torch.ones(10, 4), FeatureSettings(k=2))
    assert not list(tmp_path.glob("there/*"))
