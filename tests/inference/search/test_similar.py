"""Cosines of word instances, and the nearest of a corpus, against naive loops; bad input in one line each."""

from __future__ import annotations

import functools
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from larvatus.core.errors import UsageError
from larvatus.data.text.readers import Skipped
from larvatus.data.text.words import segment_words
from larvatus.inference.model import load
from larvatus.inference.search import concordance
from larvatus.inference.search import concordance as nearest_module
from larvatus.inference.search.concordance import nearest_rows
from larvatus.inference.search.index import InstanceIndex
from larvatus.inference.vectors.passages import PassageOptions, passages
from larvatus.inference.vectors.similarity import word_instance
from larvatus.interfaces.cli.main import run

TEXTS = ["the *bank* of the river", "a wide *bank* and the river", "turn your *homework* in", "the *river*"]
SENTENCES = [
    "The bank of the river was deep.",
    "Please turn your homework in, the bank was wide.",
    "a river, a deep river",
]
try:
    import usearch  # noqa: F401

    found = True
except ImportError:
    found = False
library = pytest.mark.skipif(not found, reason="usearch, the extra `index`, is not installed: no search is tested")


@pytest.fixture(scope="module")
def directory(tiny_model, save_tiny, tmp_path_factory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"), tiny_model())


@pytest.fixture(scope="module")
def model(directory):
    return load(directory, device="cpu")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    chosen = np.random.default_rng(0).integers(0, 3, (40, 3))
    path.write_text("\n\n".join("\n".join(SENTENCES[n] for n in row) for row in chosen) + "\n")
    return path


@pytest.fixture
def larvatus(larvatus):
    return functools.partial(larvatus, "similar")


def cosine(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return a @ b / np.sqrt((a @ a) * (b @ b))


def test_cosines_equal_those_of_vectors_computed_one_by_one(model, larvatus, directory):
    alone = [model.embed([text], unit="span", layers="last2", pool="sum")[0][0] for text in TEXTS]
    expected = [[cosine(a, b) for a in alone] for b in alone]
    found = model.similarities(TEXTS, layers="last2", pool="sum")
    assert_allclose(found.matrix, expected, atol=1e-5)
    assert_allclose(model.similarity(*TEXTS[:2], layers="last2", pool="sum"), expected[0][1], atol=1e-5)
    plain = [text.replace("*", "") for text in TEXTS]
    spans = [(text.index("*"), text.rindex("*") - 1) for text in TEXTS]
    assert_allclose(model.similarities(plain, spans=spans, layers="last2", pool="sum").matrix, found.matrix, atol=1e-5)
    asked = ("--model", directory, "--layers", "last2", "--pool", "sum", "--json")
    code, said, complaint = larvatus(*TEXTS, *asked)
    assert code == 0, complaint
    shown = json.loads(said)
    assert_allclose(shown["cosines"], expected, atol=1e-5)
    assert [one["word"] for one in shown["instances"]] == ["bank", "bank", "homework", "river"]
    code, said, _ = larvatus(*plain[:2], "--span", "4:8", "--span", "7:11", *asked)
    assert_allclose(json.loads(said)["cosines"], np.array(expected)[:2, :2], atol=1e-5)
    code, said, _ = larvatus(*plain[:2], "--word", "bank", *asked)
    assert_allclose(json.loads(said)["cosines"], np.array(expected)[:2, :2], atol=1e-5)
    code, said, _ = larvatus("words", *TEXTS, "--model", directory)
    assert (code, "the *bank* of the river" in said, "1.000" in said) == (0, True, True)


def naive(model, corpus, query, word, options):
    """All instances with their cosines, by embedding every passage and looking at every word."""
    vector = model.embed([query], unit="span", **options)[0][0]
    found = []
    for piece in passages([str(corpus)], PassageOptions(), Skipped()):
        vectors = model.embed([piece.text], unit="word", **options)[0]
        for (start, end), own in zip(segment_words(piece.text).tolist(), vectors, strict=True):
            text = piece.text[start:end]
            if text.casefold() == word if word else text.isalnum():
                line = piece.line + piece.text.count("\n", 0, start)
                found.append((cosine(vector, own), line, piece.start + start, text))
    return sorted(found, key=lambda one: -one[0])


def check(hits, expected, top, atol):
    assert len(hits) == top
    assert_allclose([hit.cosine for hit in hits], [one[0] for one in expected[:top]], atol=atol)
    by_place = {one[1:]: one[0] for one in expected}
    for hit in hits:
        assert_allclose(hit.cosine, by_place[hit.row.line, hit.row.start, hit.row.word], atol=atol)
    assert all(a.cosine >= b.cosine for a, b in pairwise(hits))


@library
@pytest.mark.parametrize("word", ["bank", "RIVER", None])
def test_the_nearest_in_text_index_and_file_are_those_of_a_loop(
    model, directory, corpus, larvatus, tmp_path, monkeypatch, word
):
    monkeypatch.setattr(concordance, "CHARACTERS", 200)
    options = {"layers": "last2", "pool": "mean"}
    expected = naive(model, corpus, TEXTS[0], word and word.casefold(), options)
    asked = {"word": word, "any_word": word is None, "top": 7}
    near = model.nearest(TEXTS[0], str(corpus), **asked, **options)
    check(near.hits, expected, 7, 1e-5)
    assert near.searched == len(expected)
    first = near.hits[0].row
    assert first.source == str(corpus)
    assert first.word in corpus.read_text().split("\n")[first.line - 1]

    index = tmp_path / "index"
    code, said, complaint = larvatus("index", corpus, "--word", word or "all", "--layers", "last2", "--out", index,
                                     "--model", directory)  # fmt: skip
    assert code == 0, complaint
    assert f"{len(expected):,} instances" in said
    monkeypatch.setattr("larvatus.inference.search.index.AT_ONCE", 30)
    near = model.nearest(TEXTS[0], str(index), **asked)
    check(near.hits, expected, 7, 2e-3)  # half precision
    assert {hit.row.left for hit in near.hits} <= {row.left for row in _all_rows(index)}

    for suffix in ("parquet", "arrow"):
        file = tmp_path / f"v.{suffix}"
        with pytest.raises(SystemExit):
            run(f"embed {corpus} --model {directory} --unit word --layers last2 --out {file}".split())
        monkeypatch.setattr("larvatus.inference.search.search._AT_ONCE", 17)
        near = model.nearest(TEXTS[0], str(file), **asked)
        assert near.searched == len(expected)
        assert_allclose([hit.cosine for hit in near.hits], [one[0] for one in expected[:7]], atol=1e-4)
        texts = corpus.read_text().split("\n\n")
        for hit in near.hits:
            row = hit.row
            shown = "".join((row.left + row.word + row.right).split())
            homes = [text for text in texts if text[row.start : row.start + len(row.word)] == row.word]
            assert any(shown in "".join(text.split()) for text in homes)
            assert len(row.left + row.right) > 10


def _all_rows(path):
    return [row for block in InstanceIndex.open(path).blocks(None) for row in block.rows(range(len(block.vectors)))]


@library
def test_a_search_from_the_command_line_shows_lines_with_their_context(larvatus, directory, corpus):
    code, said, complaint = larvatus(TEXTS[0], "--in", corpus, "--top", "3", "--model", directory)
    assert code == 0, complaint
    assert "nearest of" in said
    assert f"{corpus}:" in said.split("\n")[1]
    code, said, _ = larvatus(TEXTS[0], "--in", corpus, "--word", "river", "--top", "3", "--model", directory, "--json")
    assert [hit["word"] for hit in json.loads(said)["hits"]] == ["river"] * 3


@library
def test_an_index_keeps_its_standardiser_and_refuses_what_does_not_fit(
    larvatus, directory, corpus, tmp_path, tiny_model, save_tiny
):
    own = tmp_path / "z.safetensors"
    with pytest.raises(SystemExit):
        run(["isotropy", "fit", "--model", str(directory), "--corpus", str(corpus), "--out", str(own)])
    index = tmp_path / "index"
    build = ("index", corpus, "--word", "bank", "--out", index, "--model", directory)
    code, _, complaint = larvatus(*build, "--standardise", own)
    assert code == 0, complaint
    model = load(directory, device="cpu")
    by_text = model.nearest(TEXTS[0], [str(corpus)], standardise=str(own), top=4)
    own.unlink()
    by_index = model.nearest(TEXTS[0], [str(index)], top=4)
    assert_allclose([h.cosine for h in by_index.hits], [h.cosine for h in by_text.hits], atol=5e-3)

    search = (TEXTS[0], "--in", index, "--model")
    code, _, complaint = larvatus(*search, directory, "--layers", "0")
    assert (code, "computed with another --layers" in complaint) == (2, True)
    code, _, complaint = larvatus(*search, directory, "--pool", "first")
    assert (code, "computed with another --pool" in complaint) == (2, True)
    other = save_tiny(tmp_path / "other", tiny_model(seed=3))
    code, _, complaint = larvatus(*search, other)
    assert (code, "computed with another model" in complaint) == (5, True)
    code, _, complaint = larvatus(*search, directory, "--word", "rivr")
    assert (code, "holds no instance of 'rivr'" in complaint) == (4, True)
    code, _, complaint = larvatus(*build)
    assert (code, "is there already" in complaint) == (5, True)
    data = bytearray((index / "vectors.npy").read_bytes())
    data[-1] ^= 1
    (index / "vectors.npy").write_bytes(data)
    code, _, complaint = larvatus(*search, directory)
    assert (code, "vectors.npy does not match its checksum" in complaint) == (5, True)
    (index / "vectors.npy").unlink()
    code, _, complaint = larvatus(*search, directory)
    assert (code, "is missing; build the index again" in complaint) == (5, True)


@library
def test_a_killed_build_goes_on_and_ends_with_the_same_index(larvatus, directory, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(concordance, "CHARACTERS", 200)
    build = ("index", corpus, "--word", "all", "--model", directory, "--out")
    assert larvatus(*build, tmp_path / "whole")[0] == 0
    real, calls = concordance.embed_texts, []

    def failing(*arguments, **options):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(concordance, "embed_texts", failing)
    assert larvatus(*build, tmp_path / "cut")[0] == 130
    monkeypatch.setattr(concordance, "embed_texts", real)
    code, _, complaint = larvatus(*build, tmp_path / "cut")
    assert (code, "continue with --resume" in complaint) == (5, True)
    code, _, complaint = larvatus(*build, tmp_path / "cut", "--resume", "--layers", "0")
    assert (code, "begun with other settings" in complaint) == (5, True)
    assert larvatus(*build, tmp_path / "cut", "--resume")[0] == 0
    for name in ("vectors.npy", "rows.npy", "words.arrow"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not (tmp_path / "cut.parts").exists()


def test_a_word_that_is_not_marked_or_marked_twice_is_refused(larvatus, directory, corpus, tmp_path):
    asked = ("--model", directory)
    for texts, said in [
        (["the bank", TEXTS[0]], "no word is marked in 'the bank'"),
        (["*the* *bank*", TEXTS[0]], "2 words are marked"),
        (["the *bank", TEXTS[0]], "a mark is not closed"),
        (["the ** bank", TEXTS[0]], "there is nothing between two stars"),
        ([TEXTS[0]], "1 was given, give 2 or more"),
        ([*TEXTS[:2], "--layers", "all"], "name one layer or a mix"),
        ([*TEXTS[:2], "--layers", "9"], "there is no layer 9"),
        ([*TEXTS[:2], "--span", "0:3"], "2 texts, but 1 spans"),
        (["bank", "river", "--span", "0:3", "--span", "0:9"], "has no span 0:9"),
        (["bank", "river", "--span", "0:3", "--span", "0-2"], "is not START:END"),
        (["the river", "the bank", "--word", "bank"], "'bank' is not in 'the river'"),
        (["bank and bank", "the bank", "--word", "bank"], "'bank' occurs 2 times in"),
        ([*TEXTS[:2], "--in", corpus], "and 2 texts are given; give one"),
        ([*TEXTS[:2], "--any-word"], "name one with --in"),
    ]:
        code, _, complaint = larvatus(*texts, *asked)
        assert (code, said in complaint, complaint.count("\n")) == (2, True, 0), complaint
    for arguments, said in [
        ((corpus, "--out", tmp_path / "i"), "name the words to index"),
        ((corpus, "--out", tmp_path / "i", "--word", "two words"), "is not one word"),
    ]:
        code, _, complaint = larvatus("index", *arguments, *asked)
        assert (code, said in complaint) == (2, True), complaint
    with pytest.raises(UsageError, match="has no span"):
        word_instance("bank", (2, 2))


@library
def test_an_empty_corpus_and_an_absent_word_are_told_apart(larvatus, directory, corpus, tmp_path):
    asked = ("--model", directory)
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    code, _, complaint = larvatus(TEXTS[0], "--in", empty, *asked)
    assert (code, "no text in" in complaint) == (4, True)
    code, _, complaint = larvatus(TEXTS[0], "--in", corpus, "--word", "glacier", *asked)
    assert (code, f"'glacier' does not occur in {corpus}" in complaint) == (4, True)
    code, _, complaint = larvatus(TEXTS[0], "--in", corpus, "--top", "0", *asked)
    assert (code, "--top = 0 must lie between 1" in complaint) == (2, True)
    code, _, complaint = larvatus("index", empty, "--word", "bank", "--out", tmp_path / "i", *asked)
    assert (code, "the corpus holds no text" in complaint) == (4, True)
    words = tmp_path / "words.txt"
    words.write_text("glacier\n\n")
    code, _, complaint = larvatus("index", corpus, "--words", words, "--out", tmp_path / "i", *asked)
    assert (code, "glacier does not occur in the corpus" in complaint) == (4, True)
    assert not list(tmp_path.glob("i*"))
    file = tmp_path / "v.parquet"
    with pytest.raises(SystemExit):
        run(["embed", str(corpus), "--model", str(directory), "--unit", "sentence", "--out", str(file)])
    code, _, complaint = larvatus(TEXTS[0], "--in", file, *asked)
    assert (code, "holds vectors of sentences, and a search needs words" in complaint) == (2, True)


@library
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@given(seed=st.integers(0, 10**6), count=st.integers(1, 90), top=st.integers(1, 12), stretch=st.integers(1, 40))
def test_without_the_library_the_same_is_found(dtype, seed, count, top, stretch):
    random = np.random.default_rng(seed)
    vectors, query = random.standard_normal((count, 8)).astype(dtype), random.standard_normal(8).astype(dtype)
    by_library = nearest_rows(vectors, query, top)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest_module, "find_spec", lambda name: None)
        patch.setattr(nearest_module, "SLICE", stretch)
        by_numpy = nearest_rows(vectors, query, top)
    exact = vectors.astype(np.float64) @ query.astype(np.float64) / np.linalg.norm(vectors.astype(np.float64), axis=1)
    for places in (by_library, by_numpy):
        assert places == sorted(set(places))
        assert np.sort(exact[places]) == pytest.approx(np.sort(exact)[-min(top, count) :], abs=5e-3)


def test_without_the_library_a_corpus_is_searched(larvatus, directory, corpus, monkeypatch):
    monkeypatch.setattr(nearest_module, "find_spec", lambda name: None)
    code, said, complaint = larvatus(TEXTS[0], "--in", corpus, "--model", directory)
    assert (code, complaint) == (0, "")
    assert said.count("bank") >= 2
