"""Anisotropy, rogue dimensions and the frequency effect against loops over all pairs, and what bad text gets."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from larvatus.data.text.readers import Skipped
from larvatus.data.text.words import segment_words
from larvatus.inference.interpret.frequency import A_BIN, choose_words
from larvatus.inference.interpret.isotropy import (
    IsotropyOptions,
    RunningCosines,
    RunningCovariance,
    measure_isotropy,
    unit_vectors,
)
from larvatus.inference.model import load
from larvatus.inference.vectors.passages import PassageOptions, passages, sample
from larvatus.inference.vectors.standardise_fit import FitOptions, counted, every_layer, fit_standardiser
from larvatus.metrics.ranking import spearman

SENTENCES = [
    "the river was deep .",
    "a bank of the river",
    "the bank was wide , and the river was deep",
    "turn your bank in",
]


@pytest.fixture(scope="module")
def directory(tiny_model, save_tiny, tmp_path_factory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"), tiny_model())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    chosen = np.random.default_rng(0).integers(0, 4, 60)
    path.write_text(
        "\n\n".join(f"{SENTENCES[a]} {SENTENCES[b]}" for a, b in zip(chosen[:30], chosen[30:], strict=True))
    )
    return path


def test_expected_cosine_contributions_and_covariance_equal_loops_over_pairs():
    generator = np.random.default_rng(2)
    passages_ = [generator.normal(0.5, 1.0, (2, size, 4)) for size in (3, 5, 1, 4)]
    cosines, covariance = RunningCosines(2, 4), RunningCovariance(2, 4)
    for x in passages_:
        cosines.add(unit_vectors(x)[0])
        covariance.add(x)
    cosines.add(np.empty((2, 0, 4)))
    for layer in range(2):
        products = [
            (a / np.linalg.norm(a)) * (b / np.linalg.norm(b))
            for i, first in enumerate(passages_)
            for second in passages_[:i]
            for a in first[layer]
            for b in second[layer]
        ]
        assert_allclose(cosines.contributions(layer), np.mean(products, axis=0), atol=1e-12)
        assert_allclose(cosines.expected(layer), np.mean(np.sum(products, axis=1)), atol=1e-12)
        assert_allclose(covariance.value[layer], np.cov(np.concatenate([x[layer] for x in passages_]).T, bias=True))
    assert (cosines.count, cosines.passages) == (13, 4)


def test_the_standard_error_is_about_what_new_passages_would_show():
    """Against the spread of the estimate over 300 fresh samples of clustered data."""
    generator = np.random.default_rng(5)
    estimates, errors = [], []
    for _ in range(300):
        cosines = RunningCosines(1, 6)
        for _ in range(40):
            topic = generator.normal(size=6)
            x = np.array([1.0, 0, 0, 0, 0, 0]) + topic + 0.5 * generator.normal(size=(1, 8, 6))
            cosines.add(unit_vectors(x)[0])
        estimates.append(cosines.expected(0))
        errors.append(cosines.standard_error(0))
    assert_allclose(np.mean(errors), np.std(estimates), rtol=0.15)


def test_units_without_a_direction_are_left_out():
    x = np.ones((2, 3, 4))
    x[1, 0] = 0.0
    x[0, 2] = np.nan
    u, sound = unit_vectors(x)
    assert sound.tolist() == [False, True, False]
    assert_allclose(u, 0.5)


@pytest.mark.parametrize("standardised", [False, True])
def test_a_report_equals_loops_over_the_words_of_the_text(directory, corpus, standardised):
    model = load(directory, device="cpu")
    reading = PassageOptions(characters=0)
    options = IsotropyOptions(most=10**6, passages=reading)
    fitted = fit_standardiser(
        model.encoder, model.tokenizer, [str(corpus)], FitOptions(passages=reading), name="d", model="m"
    )
    report = measure_isotropy(
        model.encoder, model.tokenizer, [str(corpus)], options, standardise=fitted if standardised else None
    )
    pieces = list(passages([str(corpus)], reading, Skipped()))
    blocks = every_layer(model.encoder, model.tokenizer, pieces, "word", "mean")
    found = [counted(vectors, punctuation=False) for block in blocks for vectors in block]
    words = [word for _, own in found for word in own]
    x = np.concatenate([vectors for vectors, _ in found], axis=1).astype(np.float64)
    home = np.concatenate([np.full(len(own), n) for n, (_, own) in enumerate(found)])
    assert "." not in words
    assert (report.instances, report.passages) == (len(words), len(pieces))
    if standardised:
        x = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    u = x / np.linalg.norm(x, axis=2, keepdims=True)
    counts = Counter(words)
    assert report.counted == len(words)
    for layer in report.layers:
        figures = layer.standardised if standardised else layer.plain
        gram = u[layer.layer] @ u[layer.layer].T
        assert_allclose(figures.expected, gram[home[:, None] != home].mean(), atol=1e-6)
        top = figures.rogue[0]
        assert_allclose(top.share, top.contribution / figures.expected)
        assert len(figures.rogue) == 3
        similarity = {}
        for word in counts:
            own = [n for n, other in enumerate(words) if other == word]
            if len(own) >= 2:
                similarity[word] = np.mean([gram[a, b] for a in own for b in own if a != b])
        effect = figures.frequency
        assert effect.words == len(similarity)
        logs = [math.log10(counts[word]) for word in similarity]
        assert_allclose(effect.spearman, spearman(logs, np.round(list(similarity.values()), 7)), atol=0.05)
        assert_allclose(sum(one.similarity * one.words for one in effect.bins), sum(similarity.values()), atol=1e-4)
        assert sum(one.instances for one in effect.bins) == sum(counts[word] for word in similarity)
    if standardised:
        assert abs(report.layers[-1].standardised.expected) < abs(report.layers[-1].plain.expected)


def test_words_of_the_sample_are_those_that_the_model_reads(corpus):
    drawn = sample(passages([str(corpus)], PassageOptions(characters=0), Skipped()), 50, seed=1)
    assert 50 <= sum(len(segment_words(piece.text)) for piece in drawn) < 70


def test_of_each_range_of_frequency_some_words_are_drawn_and_rare_ones_left_out():
    portion = {f"w{n}": 2 for n in range(300)} | {"once": 1, "often": 50}
    frequency = {**portion, "often": 5_000}
    chosen = choose_words(portion, frequency, seed=0)
    assert len(chosen) == A_BIN + 1
    assert "often" in chosen
    assert "once" not in chosen
    assert chosen == choose_words(portion, frequency, seed=0)


def test_show_prints_a_table_json_and_a_picture(larvatus, directory, corpus, tmp_path):
    own = tmp_path / "z.safetensors"
    code, said, complaint = larvatus("isotropy", "fit", "--model", directory, "--corpus", corpus, "--out", own)
    assert code == 0, complaint
    picture = tmp_path / "isotropy.png"
    show = ("isotropy", "show", "--model", directory, "--corpus", corpus)
    code, said, complaint = larvatus(*show, "--standardise", own, "--plot", picture)
    assert code == 0, complaint
    assert "expected cosine" in said
    assert picture.read_bytes().startswith(b"\x89PNG")
    code, said, _ = larvatus(*show, "--json", "--most", "100", "--rogue", "1", "--shrinkage", "0.5", "--punctuation")
    report = json.loads(said)
    assert code == 0
    assert [layer["layer"] for layer in report["layers"]] == [0, 1, 2]
    assert report["layers"][0]["standardised"] is None
    assert len(report["layers"][0]["plain"]["rogue"]) == 1


def test_bad_text_and_options_are_refused_in_one_line(larvatus, directory, corpus, tmp_path):
    text = tmp_path / "t.txt"
    show = ("isotropy", "show", "--model", directory, "--corpus")
    text.write_text("\n")
    code, _, complaint = larvatus(*show, text)
    assert (code, "there are 0 passages; name more text" in complaint) == (4, True)
    text.write_text("the river\n")
    code, _, complaint = larvatus(*show, text)
    assert (code, "there are 1 passages; name more text" in complaint) == (4, True)
    text.write_text("...\n\n,\n")
    code, _, complaint = larvatus(*show, text)
    assert (code, "fewer than 2 passages have words" in complaint) == (4, True)
    for options in (["--most", "1"], ["--shrinkage", "1.5"], ["--rogue", "-1"], ["--plot", "a.jpg"]):
        code, _, complaint = larvatus(*show, corpus, *options)
        assert code == 2, complaint
    code, _, complaint = larvatus(*show, corpus, "--standardise", "none")
    assert (code, "has no standardiser" in complaint) == (5, True)
