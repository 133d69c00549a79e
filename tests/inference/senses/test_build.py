"""Sense vectors: eq. 11.8 against each word embedded alone; directories that are damaged or belong elsewhere."""

from __future__ import annotations

import shutil
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from larvatus.core.errors import ArtefactError, DataError
from larvatus.inference.senses import build
from larvatus.inference.senses.build import build_senses
from larvatus.inference.senses.inventory import SenseInventory, standardised
from larvatus.inference.senses.tagged import ReadingCounts, SenseInstance, SenseSentence, read_semcor
from larvatus.inference.senses.wordnet import WordNet
from larvatus.inference.vectors.pooling import EmbedOptions


def built(model, wordnet, sentences, reading=None, **options):
    return build_senses(
        model.encoder,
        model.tokenizer,
        sentences,
        EmbedOptions(unit="span", **options),
        wordnet=wordnet,
        reading=reading or ReadingCounts(),
        model=("print", "tiny"),
    )


@pytest.fixture(scope="module")
def words(model, semcor, wordnet):
    """Every tagged word with its keys and its vector, each sentence read alone, in float64."""
    found = []
    for sentence in read_semcor(semcor, wordnet, ReadingCounts()):
        spans = [[(one.start, one.end) for one in sentence.instances]]
        vectors = model.embed([sentence.text], unit="span", layers="last2", pool="first", spans=spans)[0]
        found += zip((one.keys for one in sentence.instances), vectors.astype(np.float64), strict=True)
    return found


def test_eq_11_8_a_sense_is_the_mean_of_its_words(model, semcor, wordnet, words, monkeypatch):
    monkeypatch.setattr(build, "AT_ONCE", 2)  # the three sentences come in two blocks
    reading = ReadingCounts()
    inventory = built(model, wordnet, read_semcor(semcor, wordnet, reading), reading, layers="last2", pool="first")
    groups = defaultdict(list)
    for keys, vector in words:
        for key in keys:
            groups[key].append(vector)
    assert inventory.keys == tuple(sorted(groups))
    for key, vector, count in zip(inventory.keys, inventory.vectors, inventory.counts, strict=True):
        assert count == len(groups[key])
        assert_allclose(vector, np.mean(groups[key], axis=0), atol=1e-5)
    assert (inventory.count("bank%1:17:01::"), inventory.count("absent%1:03:00::")) == (2, 0)
    every = np.stack([vector for _, vector in words])
    assert_allclose(inventory.mean, every.mean(0), atol=1e-5)
    assert_allclose(inventory.deviation, every.std(0), atol=1e-5)
    assert (inventory.origin.unknown, inventory.origin.instances) == (1, 8)


def test_eq_11_12_standardised_means_are_means_of_standardised_words(model, semcor, wordnet, words):
    inventory = built(model, wordnet, read_semcor(semcor, wordnet, ReadingCounts()), layers="last2", pool="first")
    every = np.stack([vector for _, vector in words])
    z = (every - every.mean(0)) / every.std(0)
    own = [row for row, (keys, _) in enumerate(words) if "bank%1:17:01::" in keys]
    ours = standardised(inventory.vectors, inventory.mean, inventory.deviation)[inventory.row("bank%1:17:01::")]
    assert_allclose(ours, z[own].mean(0), atol=1e-3)


def test_a_dimension_that_only_rounding_moves_is_silenced():
    deviation = np.array([1.0, 1e-7, 0.0], dtype=np.float32)
    z = standardised(np.ones((1, 3), dtype=np.float32), np.zeros(3, dtype=np.float32), deviation)
    assert z.tolist() == [[1.0, 0.0, 0.0]]


def test_an_inventory_is_saved_whole_and_a_changed_byte_is_refused(model, semcor, wordnet, tmp_path):
    inventory = built(model, wordnet, read_semcor(semcor, wordnet, ReadingCounts()))
    inventory.save(tmp_path / "senses")
    back = SenseInventory.load(tmp_path / "senses")
    assert (back.keys, back.origin) == (inventory.keys, inventory.origin)
    for name in ("vectors", "counts", "mean", "deviation"):
        np.testing.assert_array_equal(getattr(back, name), getattr(inventory, name))
    with pytest.raises(ArtefactError, match="senses is there already; remove it, or choose another --out"):
        inventory.save(tmp_path / "senses")
    file = tmp_path / "senses" / "senses.safetensors"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    with pytest.raises(ArtefactError, match=r"senses.safetensors does not match its checksum"):
        SenseInventory.load(tmp_path / "senses")
    with pytest.raises(ArtefactError, match="holds no sense vectors; make some"):
        SenseInventory.load(tmp_path)
    with pytest.raises(ArtefactError, match="holds no sense vectors; make some"):
        SenseInventory.load(model.bundle.path)


def test_another_wordnet_or_model_is_refused(model, semcor, wordnet, wordnet_folder, tmp_path):
    inventory = built(model, wordnet, read_semcor(semcor, wordnet, ReadingCounts()))
    folder = shutil.copytree(wordnet_folder, tmp_path / "other")
    index = (folder / "index.sense").read_text()
    (folder / "index.sense").write_text(index + "new%1:03:00:: 00000000 1 0\n")
    inventory.check(WordNet.open(folder))  # it has more senses, and ours among them
    (folder / "index.sense").write_text(index.replace("bank%1:17:01::", "bank%1:17:07::"))
    with pytest.raises(DataError, match=r"1 of the \d+ senses are not in .*other \(bank%1:17:01::\): they were built"):
        inventory.check(WordNet.open(folder))
    inventory.check_model("print", "tiny")
    with pytest.raises(ArtefactError, match="built with tiny, and runs/other is another model"):
        inventory.check_model("other", "runs/other")


def test_text_of_another_wordnet_gives_too_few_senses(model, wordnet):
    reading = ReadingCounts(instances=1, sentences=1)
    reading.unknown.update({"bank%1:99:00::": 5})
    sentence = SenseSentence("d", "the bank", (SenseInstance(4, 8, (("bank", "n"),), keys=("bank%1:17:01::",)),))
    with pytest.raises(
        DataError, match=r"too few senses: 5 of its tags are not in .*bank%1:99:00::.*; use the WordNet"
    ):
        built(model, wordnet, [sentence], reading)
    with pytest.raises(DataError, match="too few senses: no word of it is tagged"):
        built(model, wordnet, [])
    unseen = replace(sentence, text="the \u0301", instances=(replace(sentence.instances[0], start=4, end=5),))
    with pytest.raises(DataError, match="no word of it is tagged"):
        built(model, wordnet, [unseen])  # the vocabulary deletes the only word
