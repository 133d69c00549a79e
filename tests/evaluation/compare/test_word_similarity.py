"""SCWS and WiC: scores against loops with scipy, the readers against their formats and against bad lines."""

from __future__ import annotations

import functools
import json
import lzma
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose

from larvatus.core.errors import DataError
from larvatus.evaluation.compare.word_similarity import WordPair, english_forms, read_scws, read_wic
from larvatus.inference.model import load

CONTEXTS = [
    "the {} of the river was wide .",
    "turn your {} in , please",
    "a deep {} and the river",
    "was the {} deep ?",
]
WORDS = ["bank", "river", "homework", "run"]


@pytest.fixture(scope="module")
def directory(tiny_model, save_tiny, tmp_path_factory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"), tiny_model())


@pytest.fixture
def larvatus(larvatus):
    return functools.partial(larvatus, "similar", "evaluate")


@pytest.fixture(scope="module")
def pairs():
    generator = np.random.default_rng(0)
    rows = generator.integers(0, 4, (30, 4)).tolist()
    return [(WORDS[a], CONTEXTS[b], WORDS[c], CONTEXTS[d], float(n % 11)) for n, (a, b, c, d) in enumerate(rows)]


@pytest.fixture(scope="module")
def scws(pairs, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("scws") / "scws.tsv.xz"
    with lzma.open(path, "wt") as file:
        for number, (a, left, b, right, rating) in enumerate(pairs, start=1):
            contexts = left.format(f"<b> {a} </b>"), right.format(f"<b> {b} </b>")
            file.write("\t".join([str(number), a, "n", b, "n", *contexts, str(rating), *["1.0"] * 10]) + "\n")
    return path


@pytest.fixture(scope="module")
def wic(pairs, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("wic") / "wic.jsonl"
    lines = []
    for number, (a, left, _, right, _) in enumerate(pairs):
        text = f"Word: {a}. Sentence 1: {left.format(a)} Sentence 2: {right.format(a.capitalize() + 's')}"
        lines.append(json.dumps({"label": number % 2, "text": text}))
    lines.append(json.dumps({"label": 1, "text": "Word: bank. Sentence 1: the bank Sentence 2: the river"}))
    path.write_text("\n".join(lines) + "\n")
    return path


def cosines(directory, marked, layers):
    model = load(directory, device="cpu")
    vectors = [model.embed([text], unit="span", layers=layers)[0][0].astype(np.float64) for text in marked]
    vectors = [vector / np.linalg.norm(vector) for vector in vectors]
    return np.array([a @ b for a, b in zip(vectors[::2], vectors[1::2], strict=True)])


def test_scws_is_the_rank_correlation_that_scipy_gives(larvatus, directory, scws, pairs):
    code, said, complaint = larvatus("scws", scws, "--model", directory, "--json")
    assert code == 0, complaint
    result = json.loads(said)
    assert [score["layers"] for score in result["scores"]] == ["0", "1", "2"]
    marked = [text for a, left, b, right, _ in pairs for text in (left.format(f"*{a}*"), right.format(f"*{b}*"))]
    ratings = [pair[4] for pair in pairs]
    for layer, score in enumerate(result["scores"]):
        expected = scipy.stats.spearmanr(np.round(cosines(directory, marked, layer), 6), ratings).statistic
        assert_allclose(score["value"], expected, atol=5e-3)
    code, said, _ = larvatus("scws", scws, "--model", directory, "--layers", "last2", "--layers", "last")
    assert (code, "last2" in said) == (0, True)


def test_wic_is_the_accuracy_beyond_the_pairs_of_the_threshold(larvatus, directory, wic, pairs):
    code, said, complaint = larvatus("wic", wic, "--model", directory, "--layers", "last", "--json")
    assert code == 0, complaint
    result = json.loads(said)
    assert result["pairs"] == 30
    assert result["notes"][1] == "1 pairs left out: the word is not found in a sentence (line 31)"
    score = result["scores"][0]
    marked = [
        text for a, left, _, right, _ in pairs for text in (left.format(f"*{a}*"), right.format(f"*{a.capitalize()}s*"))
    ]
    said_yes = cosines(directory, marked, "last") > score["threshold"]
    right = said_yes == (np.arange(30) % 2 == 1)
    assert score["value"] * 15 == pytest.approx(round(score["value"] * 15))  # 15 pairs were left for it
    assert right.sum() >= round(score["value"] * 15)


def test_words_of_wic_are_found_in_their_forms_and_by_given_characters(tmp_path):
    records = [
        {"label": 1, "text": "Word: break. Sentence 1: She broke it . Sentence 2: Breaking a break ."},
        {"label": False, "word": "run", "sentence1": "a run", "sentence2": "he runs", "start2": 3, "end2": 7},
    ]
    path = tmp_path / "wic.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    first, second = read_wic(path)
    assert (first.a.word, first.b.word, first.rating) == ("broke", "break", 1.0)
    assert (second.a.word, second.b.word, second.rating) == ("run", "runs", 0.0)
    forms = {"begin": "began", "enable": "enables", "stop": "stopped", "carry": "carries", "lie": "lying", "be": "was"}
    for word, form in forms.items():
        assert form in english_forms(word)
    assert "banker" not in english_forms("band")


def test_contexts_of_scws_lose_their_tags(scws):
    first = next(read_scws(scws))
    assert isinstance(first, WordPair)
    assert "<b>" not in first.a.text
    assert first.a.word in WORDS


@pytest.mark.parametrize(
    ("name", "line", "said"),
    [
        ("scws", "1\tbank", "not a line of SCWS"),
        ("scws", "1\ta\tn\tb\tn\tthe bank\t<b> b </b>\t1.0", "0 words between <b> and </b>"),
        ("scws", "1\ta\tn\tb\tn\t<b> a </b>\t<b> b </b>\tx", "not a line of SCWS"),
        ("wic", "{", "not a record of WiC"),
        ("wic", "[]", "not a record of WiC"),
        ("wic", '{"label": 2, "text": "x"}', "not a record of WiC"),
        ("wic", '{"label": 1, "text": "x"}', "not a record of WiC"),
        ("wic", '{"label": 1, "word": "a", "sentence1": "a", "sentence2": "a", "start1": 0, "end1": 9}', "no span 0:9"),
    ],
)
def test_bad_lines_are_named(larvatus, directory, tmp_path, name, line, said):
    path = tmp_path / "file"
    path.write_text(line + "\n")
    code, _, complaint = larvatus(name, path, "--model", directory)
    assert (code, f"{path}:1:" in complaint, said in complaint) == (4, True, True), complaint


def test_files_that_cannot_be_judged_are_refused(larvatus, directory, tmp_path, scws, wic):
    empty = tmp_path / "empty"
    empty.write_text("")
    broken = tmp_path / "broken.xz"
    broken.write_bytes(scws.read_bytes()[:50])
    for name, path, said in [
        ("scws", empty, "0 pairs"),
        ("wic", empty, "0 pairs"),
        ("scws", tmp_path / "absent", "does not exist"),
        ("scws", broken, "is no whole .xz file"),
    ]:
        code, _, complaint = larvatus(name, path, "--model", directory)
        assert (code, said in complaint) == (4, True), complaint
    code, _, complaint = larvatus("wic", wic, "--model", directory, "--train", "1")
    assert (code, "must be above 0 and below 1" in complaint) == (2, True)
    code, _, complaint = larvatus("scws", scws, "--model", directory, "--layers", "all")
    assert (code, "evaluated by default; omit --layers all" in complaint) == (2, True)
    with pytest.raises(DataError):
        list(read_wic(tmp_path))
