"""Eq. 11.10 to 11.12: μ, σ and z against plain loops in float64, however the corpus is cut; saved, named, refused."""

from __future__ import annotations

import json
import math
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from larvatus.core.errors import ArtefactError, UsageError
from larvatus.data.text.readers import Skipped
from larvatus.inference.model import load
from larvatus.inference.vectors.layers import LayerWeights
from larvatus.inference.vectors.passages import LocatedText, PassageOptions, passages, sample
from larvatus.inference.vectors.standardise import RunningMoments, Standardiser, find_standardiser
from larvatus.inference.vectors.standardise_fit import FitOptions, fit_standardiser


def standardiser(x, *, unit="word", pool="mean") -> Standardiser:
    moments = RunningMoments()
    moments.add(np.asarray(x))
    return Standardiser.of(moments, name="mine", unit=unit, pool=pool, model="m", corpus="c")


@given(
    seed=st.integers(0, 2**32 - 1),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    far=st.sampled_from([0.0, 1.0, 1e4]),
    merged=st.booleans(),
)
def test_eq_11_10_and_11_11_any_cutting_of_the_corpus_gives_the_loops_mean_and_spread(seed, cuts, far, merged):
    x = np.random.default_rng(seed).normal(far, 1.0, (2, 41, 3))
    edges = [0, *sorted(cuts), 41]
    moments = RunningMoments()
    for low, high in pairwise(edges):
        if merged:
            other = RunningMoments()
            other.add(x[:, low:high])
            moments.merge(other)
        else:
            moments.add(x[:, low:high])
    assert moments.count == 41
    for layer in range(2):
        for dimension in range(3):
            values = x[layer, :, dimension].tolist()
            mean = math.fsum(values) / 41
            variance = math.fsum((value - mean) ** 2 for value in values) / 41
            assert_allclose(moments.mean[layer, dimension], mean, rtol=1e-12, atol=1e-12)
            assert_allclose(np.sqrt(moments.variance[layer, dimension]), math.sqrt(variance), rtol=1e-10)


def test_a_rogue_dimension_where_the_textbook_formula_turns_negative_keeps_its_spread():
    x = (1e4 + 1e-3 * np.random.default_rng(0).standard_normal((1, 5000, 1))).astype(np.float32)
    textbook = (x**2).mean() - x.mean() ** 2
    moments = RunningMoments()
    for low in range(0, 5000, 7):
        moments.add(x[:, low : low + 7])
    assert textbook <= 0 or textbook > 100 * x.astype(float).var()
    assert_allclose(moments.variance[0, 0], x.astype(np.float64).var(), rtol=1e-9)


def test_units_without_a_vector_are_skipped_and_counted():
    x = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    x[1, 2, 0] = np.nan
    moments = RunningMoments()
    moments.add(x)
    moments.add(np.full((2, 3, 3), np.nan))
    assert (moments.count, moments.skipped) == (3, 4)
    assert_allclose(moments.mean, x[:, [0, 1, 3]].mean(1))


@pytest.mark.parametrize("layers", ["last", "last2", "last3-sum", "0", "0.1,-0.5,0,2", "all"])
def test_eq_11_12_one_fit_serves_every_layer_and_mix(layers):
    """z-scores of a mix from the fit over single layers equal those computed from the mixed vectors themselves."""
    x = np.random.default_rng(3).normal(2.0, 3.0, (4, 50, 5)).astype(np.float32)
    mix = LayerWeights.read(layers, layers=3)
    mixed = (
        mix.mix([torch.from_numpy(x[layer]) for layer in mix.layers]) if layers != "last" else torch.from_numpy(x[3])
    )
    z = standardiser(x).apply(mixed, mix).double().numpy()
    expected = mixed.double().numpy()
    expected = (expected - expected.mean(-2, keepdims=True)) / expected.std(-2, keepdims=True)
    assert_allclose(z, expected, atol=1e-5)


def test_a_dimension_that_never_varies_is_centred_and_not_scaled():
    x = np.random.default_rng(3).normal(size=(1, 20, 3)).astype(np.float32)
    x[..., 1] = 7.1
    x[..., 2] = 0.0
    z = standardiser(x).apply(torch.from_numpy(x[0]), LayerWeights(((0, 1.0),))).numpy()
    assert_allclose(z[:, 1:], 0.0, atol=1e-5)
    assert_allclose(z[:, 0].std(), 1.0, atol=1e-5)


def test_what_it_was_not_fitted_for_is_refused():
    x = np.random.default_rng(3).normal(size=(4, 20, 5))
    words = standardiser(x)
    words.check("span", "mean")
    with pytest.raises(
        UsageError, match=r"fitted for words pooled by mean, not for sentences by cls; .*--unit sentence"
    ):
        words.check("sentence", "cls")
    with pytest.raises(UsageError, match="not for words by first"):
        words.check("word", "first")
    with pytest.raises(ArtefactError, match="3 layers of 5 numbers"):
        words.apply(torch.zeros(2, 6), LayerWeights(((0, 1.0),)))
    with pytest.raises(ArtefactError, match="3 layers of 5 numbers"):
        words.apply(torch.zeros(2, 5), LayerWeights(((4, 1.0),)))
    biggest = standardiser(x, pool="max")
    biggest.moments(LayerWeights(((2, 1.0),)))
    with pytest.raises(UsageError, match="name one layer"):
        biggest.moments(LayerWeights(((2, 0.5), (3, 0.5))))


@pytest.fixture(scope="module")
def corpus(prose, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "prose.txt"
    path.write_text("\n\n".join([*prose, "a \u0301 river."]) + "\n", encoding="utf-8")
    return path


def test_passages_hold_every_sentence_once_and_know_their_lines(corpus):
    text = corpus.read_text(encoding="utf-8")
    found = list(passages([str(corpus)], PassageOptions(characters=300), Skipped()))
    assert max(len(piece.text) for piece in found) < 700
    assert "".join("".join(piece.text for piece in found).split()) == "".join(text.split())
    lines = text.split("\n")
    for piece in found:
        assert piece.text.split("\n")[0] in lines[piece.line - 1]
    alone = list(passages([str(corpus)], PassageOptions(characters=0), Skipped()))
    assert len(alone) > len(found)


@pytest.mark.parametrize("unit", ["word", "token", "sentence"])
def test_a_fit_over_a_corpus_equals_the_loop_over_its_vectors(wordpiece, corpus, unit, monkeypatch):
    options = FitOptions(unit=unit, punctuation=True, passages=PassageOptions(characters=200))
    texts = [piece.text for piece in passages([str(corpus)], options.reading, Skipped())]
    x = np.concatenate([found.vectors for found in wordpiece.vectors(texts, unit=unit, layers="all")], axis=1)
    x = x[:, ~np.isnan(x[0, :, 0])].astype(np.float64)
    for size in (150, 1 << 14):
        monkeypatch.setattr("larvatus.inference.vectors.standardise_fit.CHARACTERS", size)
        fitted = fit_standardiser(wordpiece.encoder, wordpiece.tokenizer, [str(corpus)], options, name="d", model="m")
        assert fitted.count == x.shape[1]
        assert_allclose(fitted.mean, x.mean(1), atol=1e-5)
        assert_allclose(np.sqrt(np.diagonal(fitted.covariance, axis1=1, axis2=2).T), x.std(1), atol=1e-5)


def test_a_sample_is_drawn_from_all_of_the_corpus_and_reaches_its_size():
    pieces = [LocatedText(f"a b {number}", number, "x", 1) for number in range(2_000)]
    drawn = sample(iter(pieces), 900)
    assert len(drawn) == 300
    numbers = [piece.document for piece in drawn]
    assert numbers == sorted(set(numbers))
    assert 850 < np.mean(numbers) < 1_150
    assert sample(pieces, 901)[0] in drawn
    assert len(sample(pieces, 901)) == 301
    assert sample(pieces, 10**6) == pieces
    assert sample(pieces, 900, seed=1) != drawn


def test_saved_with_the_model_and_used_by_name_everywhere(larvatus, directory, corpus, tmp_path):
    fit = ("isotropy", "fit", "--model", directory, "--corpus", corpus)
    code, said, complaint = larvatus(*fit, "--punctuation", "--json")
    assert code == 0, complaint
    summary = json.loads(said)
    path = directory / "standardise" / "default.safetensors"
    assert (summary["path"], summary["layers"], summary["size"]) == (str(path), 3, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoModel

        assert AutoModel.from_pretrained(directory).config.hidden_size == 16  # still a Hugging Face directory
    model = load(directory, device="cpu")
    texts = ["the *bank* of the river", "the *bank* raised its rates"]
    plain = np.concatenate(model.embed(texts, unit="span", layers="last2"))
    found = np.concatenate(model.embed(texts, unit="span", layers="last2", standardise="default"))
    fitted = find_standardiser(directory, "default")
    mean, scale = fitted.moments(LayerWeights.read("last2", layers=3))
    assert_allclose(found, (plain - mean) / scale, atol=1e-4)
    unit = np.concatenate(model.embed(texts, unit="span", layers="last2", standardise=fitted, normalise=True))
    assert_allclose(np.linalg.norm(unit, axis=1), 1.0, atol=1e-5)
    alone = model.embed(texts[:1], unit="span", layers="last2", standardise="default")[0]
    assert_allclose(alone, found[:1], atol=1e-4)  # whatever else is in the batch

    out = tmp_path / "v.npy"
    asked = ("embed", corpus, "--model", directory, "--unit", "word", "--out", out, "--standardise", "default")
    code, _, complaint = larvatus(*asked)
    assert code == 0, complaint
    z = np.load(out).astype(np.float64)
    z = z[~np.isnan(z[:, 0])]
    assert np.abs(z.mean(0)).max() < 0.2  # documents are read whole here, and in passages when it was fitted
    assert_allclose(z.std(0), 1.0, atol=0.2)
    code, _, complaint = larvatus(*fit)
    assert (code, complaint) == (
        5,
        f"larvatus: {path} is there already; choose another name, or replace it with --overwrite",
    )


def test_bad_standardisers_are_refused_in_one_line(larvatus, directory, corpus, tmp_path, wordpiece):
    own = tmp_path / "own.safetensors"
    code, _, complaint = larvatus("isotropy", "fit", "--model", directory, "--corpus", corpus, "--out", own)
    assert code == 0, complaint
    embed = ("embed", corpus, "--model", directory, "--unit", "word", "--out", tmp_path / "v.npy", "--standardise")
    code, _, complaint = larvatus(*embed, "defualt")
    assert code == 5
    assert "has no standardiser 'defualt'" in complaint
    code, _, complaint = larvatus(*embed, tmp_path / "none.safetensors")
    assert (code, "does not exist; fit it" in complaint) == (5, True)
    code, _, complaint = larvatus(*embed, "../x")
    assert (code, "cannot name a standardiser" in complaint) == (2, True)
    code, _, complaint = larvatus(*embed, own, "--pool", "first")
    assert (code, "not for words by first" in complaint) == (2, True)

    find = tmp_path / "other.safetensors"
    loaded = Standardiser.load(own)
    standardiser(np.random.default_rng(0).normal(size=(4, 9, 16))).save(find)
    code, _, complaint = larvatus(*embed, find)
    assert (code, "was fitted for another model" in complaint) == (5, True)

    data = bytearray(own.read_bytes())
    data[-5] ^= 0xFF
    own.write_bytes(data)
    code, _, complaint = larvatus(*embed, own)
    assert code == 5
    assert "checksum" in complaint or "NaN" in complaint
    own.write_bytes(data[:100])
    code, _, complaint = larvatus(*embed, own)
    assert (code, "not a sound safetensors file" in complaint) == (5, True)
    code, _, complaint = larvatus(*embed, directory / "model.safetensors")
    assert (code, "is not a standardiser" in complaint) == (5, True)
    assert loaded.count > 100

    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n")
    fit = ("isotropy", "fit", "--model", directory, "--name", "new", "--corpus")
    code, _, complaint = larvatus(*fit, empty)
    assert (code, "0 words with a vector, and 2 are needed" in complaint) == (4, True)
    empty.write_text("river\n")
    code, _, complaint = larvatus(*fit, empty)
    assert (code, "1 words with a vector, and 2 are needed" in complaint) == (4, True)
    code, _, complaint = larvatus(*fit, corpus, "--unit", "span")
    assert (code, "no marked spans" in complaint) == (2, True)
    code, _, complaint = larvatus(*fit, corpus, "--most", "1")
    assert (code, "must lie between 2" in complaint) == (2, True)
    assert not (directory / "standardise" / "new.safetensors").exists()
