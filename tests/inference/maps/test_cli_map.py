"""`larvatus map`: what it writes and prints, and one line for what cannot be."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from larvatus.inference.maps import clusters as projecting
from larvatus.inference.maps.clusters import principal_components
from larvatus.inference.model import load

LINES = [
    {"text": "The bank of the river was wide.", "lang": "en", "sense": "river"},
    {"text": "Please turn in the river bank homework.", "lang": "en", "sense": "river"},
    {"text": "The bank was deep and wide; a bank of the river.", "lang": "de", "sense": 2},
    {"text": "Your homework.", "lang": "de"},
    {"text": "A bank!", "lang": "de"},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory, tiny_model, save_tiny):
    return save_tiny(tmp_path_factory.mktemp("map") / "model", tiny_model())


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "text.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in LINES))
    return path


def test_a_page_a_picture_a_table_and_json(larvatus, model, corpus, tmp_path):
    code, out, err = larvatus(
        *("map", "bank", "river", "--corpus", corpus, "--model", model, "--language-field", "lang", "--color", "sense"),
        *("--out", tmp_path / "bank.html", "--png", tmp_path / "bank.png", "--csv", tmp_path / "bank.csv"),
        *("--layers", "last2", "--pool", "first", "--method", "pca"),
    )
    assert code == 0, err
    assert out.startswith("bank, river: 8 instances in 5 documents · principal components · ")
    assert f"wrote {tmp_path}/bank.html, {tmp_path}/bank.png, {tmp_path}/bank.csv" in out
    page = (tmp_path / "bank.html").read_text()
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert data["fields"] == ["sense", "language", "word"]
    assert data["colour"] == "sense"
    assert [p["fields"]["sense"] for p in data["points"]] == ["river"] * 4 + ["2"] * 3 + ["none"]
    assert (tmp_path / "bank.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "bank.csv").read_text().splitlines()) == 9


def test_json_says_all_and_few_points_are_said_aloud(larvatus, model, corpus, monkeypatch):
    monkeypatch.setattr(projecting, "has_umap", lambda: True)
    code, out, err = larvatus("map", "bank", "--corpus", corpus, "--model", model, "--json")
    assert code == 0
    assert err == "principal components instead of UMAP: UMAP needs at least 10 instances, and there are 5"
    found = json.loads(out)
    assert (found["instances"], found["method"]) == (5, "pca")
    assert found["points"][0]["text"] == LINES[0]["text"]


def test_a_standardiser_of_the_model_is_used_by_name(larvatus, tiny_model, save_tiny, corpus, tmp_path):
    own = save_tiny(tmp_path / "own", tiny_model())
    asked = ["map", "bank", "--corpus", corpus, "--model", own, "--method", "pca", "--json"]
    assert larvatus("isotropy", "fit", "--model", own, "--corpus", corpus, "--name", "mine", "--unit", "word")[0] == 0
    plain, scaled = (json.loads(larvatus(*asked, *more)[1])["points"] for more in ([], ["--standardise", "mine"]))
    assert [point["x"] for point in plain] != [point["x"] for point in scaled]
    texts, spans = [point["text"] for point in scaled], [[(point["start"], point["end"])] for point in scaled]
    vectors = load(own, device="cpu").embed(texts, unit="span", spans=spans, standardise="mine")
    expected = principal_components(np.concatenate(vectors), 2)
    assert_allclose([[point["x"], point["y"]] for point in scaled], expected, atol=1e-4)
    code, _, err = larvatus(*asked, "--standardise", "other")
    assert (code, len(err.splitlines())) == (5, 1)


def test_languages_are_named_with_their_text(larvatus, model, tmp_path):
    for code in ("en", "de"):
        (tmp_path / f"{code}.txt").write_text("The bank was wide.\n\nA bank was deep.")
    texts = [f"--language={code}={tmp_path}/{code}.txt" for code in ("en", "de")]
    code, out, err = larvatus("map", "bank", *texts, "--model", model, "--method", "pca", "--json")
    assert code == 0, err
    assert [point["language"] for point in json.loads(out)["points"]] == ["en", "en", "de", "de"]


def test_what_cannot_be_is_one_line(larvatus, model, corpus, tmp_path, monkeypatch):
    def refused(*words, code):
        ended, _, err = larvatus("map", *words, "--model", model)
        assert ended == code
        assert len(err.splitlines()) == 1
        return err

    page = ["--out", tmp_path / "x.html"]
    assert "'bnak' is not among the words of the corpus; near it are bank" in refused(
        "bnak", "--corpus", corpus, *page, code=4
    )
    assert "there is no output; give --out" in refused("bank", "--corpus", corpus, code=2)
    assert "no text was named" in refused("bank", *page, code=2)
    assert "at least 3 instances, and there are 2" in refused("homework", "--corpus", corpus, *page, code=4)
    assert (
        "UMAP needs at least 10 instances" in refused("bank", "--corpus", corpus, *page, "--method", "umap", code=4)
        or not projecting.has_umap()
    )
    assert "is no directory to write x.html in" in refused(
        "bank", "--corpus", corpus, "--out", tmp_path / "absent" / "x.html", code=2
    )
    assert "cannot be coloured by nothing" in refused(
        *("bank", "--corpus", corpus, *page, "--method", "pca", "--color", "sense", "--color-field", "nothing"), code=2
    )
    (tmp_path / "empty.txt").write_text("\n")
    assert "holds no text" in refused("bank", "--corpus", tmp_path / "empty.txt", *page, code=4)
    assert not (tmp_path / "x.html").exists()
    monkeypatch.setattr("larvatus.core.outputs.find_spec", lambda name: None)
    assert 'pip install "larvatus[plots]"' in refused("bank", "--corpus", corpus, "--png", tmp_path / "x.png", code=2)
