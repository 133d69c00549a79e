"""A model directory may say which layers its word vectors are of: then these, where no layers are requested."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import larvatus as lv
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.inference.vectors.word_layers import set_word_layers
from larvatus.interfaces.api.vectors import build_index, embed_files
from larvatus.interfaces.cli.main import run
from larvatus.models.bundle.convert import convert_bundle
from larvatus.models.bundle.directory import load_bundle

TEXTS = ["the *bank* of the river was wide", "the *bank* of the town was old"]


@pytest.fixture
def directory(tmp_path, tiny_model, save_tiny) -> Path:
    save_tiny(tmp_path / "model", tiny_model())
    return tmp_path / "model"


def command(capsys, *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        run(list(words))
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out, told.err


def test_words_are_of_these_layers_and_whole_texts_of_the_last(directory):
    before = lv.load(directory, device="cpu")
    assert set_word_layers(directory, 1) == "1"
    model = lv.load(directory, device="cpu")
    for unit in ("word", "token"):
        (own,), (first,) = model.embed(TEXTS[:1], unit=unit), before.embed(TEXTS[:1], unit=unit, layers=1)
        assert np.array_equal(own, first)
        assert not np.allclose(own, before.embed(TEXTS[:1], unit=unit)[0])
        assert np.array_equal(
            model.embed(TEXTS[:1], unit=unit, layers="last")[0], before.embed(TEXTS[:1], unit=unit)[0]
        )
    assert np.array_equal(model.embed(TEXTS), before.embed(TEXTS))
    assert model.similarity(*TEXTS) == before.similarity(*TEXTS, layers=1) != before.similarity(*TEXTS)
    assert model.similarities(TEXTS).layers == model.vectors(TEXTS[0]).layers == "1"
    assert "layer 1" in str(model.similarities(TEXTS))
    assert "layer" not in str(before.similarities(TEXTS))
    assert model.fingerprint == before.fingerprint


def test_without_it_the_manifest_has_no_field_and_last_takes_it_out_again(directory):
    before = (directory / "larvatus.json").read_bytes()
    assert b"word_layers" not in before
    set_word_layers(directory, "last2")
    assert json.loads((directory / "larvatus.json").read_bytes())["word_layers"] == "last2"
    assert "| layers of word vectors | last2 |" in (directory / "README.md").read_text()
    set_word_layers(directory, "last")
    assert "word_layers" not in json.loads((directory / "larvatus.json").read_bytes())
    assert "layers of word vectors" not in (directory / "README.md").read_text()


def test_convert_and_save_keep_it(directory, tmp_path):
    set_word_layers(directory, 1)
    convert_bundle(directory, tmp_path / "int8", dtype="int8")
    lv.load(directory, device="cpu").save(tmp_path / "saved")
    assert [load_bundle(tmp_path / name).word_layers for name in ("int8", "saved")] == ["1", "1"]
    assert "| layers of word vectors | 1 |" in (tmp_path / "int8" / "README.md").read_text()


def test_files_indexes_and_searches_say_it(directory, tmp_path):
    set_word_layers(directory, 1)
    model, text = lv.load(directory, device="cpu"), tmp_path / "text.txt"
    text.write_text("the bank of the river was wide\nthe bank of the town was old\nthe old bank was wide\n")
    assert build_index(model, text, out=tmp_path / "index", words="bank").layers == "1"
    (tmp_path / "line.txt").write_text("the bank of the river was wide\n")
    embed_files(model, tmp_path / "line.txt", out=tmp_path / "words.npy", unit="word")
    expected = model.embed("the bank of the river was wide", unit="word", layers=1)
    np.testing.assert_allclose(np.load(tmp_path / "words.npy"), expected, rtol=0, atol=1e-6)
    asked, indexed = model.nearest(TEXTS[0], str(text)), model.nearest(TEXTS[0], str(tmp_path / "index"))
    assert asked.layers == indexed.layers == "1"
    assert asked.hits[0].cosine == pytest.approx(indexed.hits[0].cosine, abs=1e-3)
    last = model.nearest(TEXTS[0], str(text), layers="last").hits[0].cosine
    assert asked.hits[0].cosine != pytest.approx(last, abs=1e-3)
    assert model.map("bank", str(text), method="pca", clusters=1).notes == ("vectors of layer 1",)


def test_the_command_sets_it_and_the_card_is_verified(directory, capsys):
    code, out, _ = command(capsys, "similar", "layers", "1", "--model", str(directory))
    assert (code, out) == (0, f"{directory}: word vectors of layer 1\n")
    code, out, _ = command(capsys, "similar", *TEXTS, "--model", str(directory), "--device", "cpu")
    assert code == 0
    assert out.startswith("layer 1")
    code, out, _ = command(capsys, "card", str(directory), "--verify", "--device", "cpu")
    assert code == 0, out


@pytest.mark.parametrize(
    ("layers", "error", "words"),
    [("9", UsageError, "there is no layer 9"), ("all", UsageError, "one vector"), ("high", UsageError, "names no")],
)
def test_layers_that_the_model_lacks_are_refused(directory, layers, error, words):
    with pytest.raises(error, match=words):
        set_word_layers(directory, layers)
    assert b"word_layers" not in (directory / "larvatus.json").read_bytes()


def test_a_directory_of_others_has_no_place_for_it(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ArtefactError, match="larvatus convert"):
        set_word_layers(tmp_path, 1)
