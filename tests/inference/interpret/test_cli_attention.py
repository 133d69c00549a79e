"""`larvatus attention`: tables, pages, pictures, importance and pruning, and one line for what cannot be."""

from __future__ import annotations

import json

import numpy as np
import pytest

from larvatus.inference.model import load
from larvatus.interfaces.cli.commands.attention import packed
from larvatus.models.objectives import MaskedLMConfig, NextSentenceConfig
from tests.tiny import save_model

TEXT = "The river bank, was wide."


@pytest.fixture(scope="module")
def saved(tmp_path_factory, tiny_model, tiny_tokenizer):
    """A tiny model with these heads, in a directory that names no recipe."""

    def save(*heads):
        path, made = tmp_path_factory.mktemp("attention") / "model", tiny_model(objectives=heads)
        save_model(path, made, tiny_tokenizer, heads)
        return path

    return save


@pytest.fixture(scope="module")
def model(saved):
    return saved(MaskedLMConfig())


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(["The river bank was wide and deep. Please turn your homework in!"] * 12))
    return path


def test_a_text_gives_a_table_a_page_and_pictures(larvatus, model, tmp_path):
    code, out, err = larvatus(
        "attention", TEXT, "--model", model, "--out", tmp_path / "a.html", "--png", tmp_path / "all.png"
    )
    assert code == 0, err
    assert out.startswith("9 tokens\n")
    assert [line.split()[0] for line in out.splitlines()[2:6]] == ["1-1", "1-2", "2-1", "2-2"]
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "a.html").read_text()
    assert [f'id="w-{layer}-{head}"' in page for layer in (1, 2) for head in (1, 2)] == [True] * 4
    code, out, _ = larvatus(
        *("attention", "show", TEXT, "--model", model, "--layer", 2, "--head", 1, "--png", tmp_path / "one.png"),
        "--json",
    )
    assert code == 0
    found = json.loads(out)
    assert found["tokens"] == ["[CLS]", "The", "river", "bank", ",", "was", "wide", ".", "[SEP]"]
    assert len(found["heads"]) == 4
    expected = load(model, device="cpu").attention(TEXT).head(2, 1)
    np.testing.assert_allclose(found["weights"]["rows"], expected, atol=1e-6)


def test_a_corpus_gives_the_table_and_says_how_much_was_read(larvatus, model, corpus):
    code, out, err = larvatus("attention", "--corpus", corpus, "--model", model, "--limit", 5, "--length", 10)
    assert code == 0, err
    assert out.startswith("5 passages, 50 tokens read\n")
    code, out, _ = larvatus("attention", "--corpus", corpus, "--model", model, "--json")
    found = json.loads(out)
    assert found["passages"] == 12
    assert {"layer", "head", "type", "entropy", "self", "punctuation"} <= found["heads"][0].keys()


def test_importance_and_pruning(larvatus, model, corpus, tmp_path):
    words = ["attention", "importance", "--corpus", corpus, "--model", model]
    code, out, err = larvatus(*words, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert len(found["rows"]) == 4
    assert found["hidden"] > 0
    code, out, err = larvatus(*words, "--prune", "1:2,2:1", "--out", tmp_path / "pruned")
    assert code == 0, err
    assert "without 1-2, 2-1 together: masked loss" in out
    code, out, err = larvatus("attention", "importance", "--corpus", corpus, "--model", tmp_path / "pruned", "--json")
    after = json.loads(out)
    changes = {(row["layer"], row["head"]): row["change"] for row in after["rows"]}
    assert changes[1, 2] == changes[2, 1] == 0  # what is gone is not missed
    assert abs(changes[1, 1]) > 1e-4


def test_the_loss_is_that_of_evaluate(larvatus, model, corpus):
    _, out, _ = larvatus("attention", "importance", "--corpus", corpus, "--model", model, "--json")
    _, evaluated, _ = larvatus("evaluate", model, "--corpus", corpus, "--tokens", 32_768, "--json")
    assert json.loads(out)["loss"] == pytest.approx(json.loads(evaluated)[-1]["loss"], rel=1e-5)


def test_what_cannot_be_is_one_line(larvatus, model, corpus, tmp_path, tiny_model, save_tiny, monkeypatch):
    def refused(*words, code=2, name=model):
        ended, _, err = larvatus("attention", *words, "--model", name)
        assert ended == code, err
        assert len(err.splitlines()) == 1
        return err

    assert "give one of the two" in refused("--json")
    assert "give one of the two" in refused(TEXT, "--corpus", corpus)
    assert "show one text, not a corpus" in refused("--corpus", corpus, "--out", tmp_path / "x.html")
    assert "--layer and --head go together" in refused(TEXT, "--layer", 1)
    assert "there is no layer 9, head 1" in refused(TEXT, "--layer", 9, "--head", 1)
    assert "tokens and the model's window has 30" in refused("river " * 31)
    assert "is no directory to write x.html in" in refused(TEXT, "--out", tmp_path / "absent" / "x.html")
    assert "--prune and --out go together" in refused("importance", "--corpus", corpus, "--prune", "1:1")
    assert "'9' names no head" in refused("importance", "--corpus", corpus, "--prune", "9", "--out", tmp_path / "p")
    assert "there is no layer 9" in refused("importance", "--corpus", corpus, "--prune", "9:1", "--out", tmp_path / "p")
    bare = save_tiny(tmp_path / "bare", tiny_model(objectives=(NextSentenceConfig(),)), (NextSentenceConfig(),))
    assert "has no masked-lm or causal-lm head" in refused("importance", "--corpus", corpus, code=5, name=bare)
    (tmp_path / "empty.txt").write_text("\n")
    assert "no passage" in refused("--corpus", tmp_path / "empty.txt", code=4)
    monkeypatch.setattr("larvatus.core.outputs.find_spec", lambda name: None)
    assert 'pip install "larvatus[plots]"' in refused(TEXT, "--png", tmp_path / "x.png")


def test_packed_weights_lose_little():
    weights = np.concatenate([np.linspace(0, 1, 2_001), 10.0 ** -np.arange(1.0, 6.0)]).astype(np.float32)
    back = (packed(weights) / 255.0) ** 2
    assert (np.abs(back - weights) <= 0.002 + weights / 250).all()


@pytest.mark.parametrize(
    "text", ["The river bank was wide and deep. Please turn your homework in!", "The river was wide."]
)
def test_one_document_is_text_enough_for_a_model_of_sentence_pairs(larvatus, tmp_path, saved, text):
    """There is no other document for a random second segment; the masked loss needs none."""
    model = saved(MaskedLMConfig(), NextSentenceConfig())
    (tmp_path / "one.txt").write_text(text)
    code, out, err = larvatus("attention", "importance", "--corpus", tmp_path / "one.txt", "--model", model, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["tokens"] == len(load(model).tokenizer.encode(text).ids) + 2
    assert found["hidden"] > 0
    code, evaluated, err = larvatus("evaluate", model, "--corpus", tmp_path / "one.txt", "--json")
    assert code == 0, err
    assert json.loads(evaluated)[-1]["loss"] == pytest.approx(found["loss"], rel=1e-5)
