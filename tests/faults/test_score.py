"""Faults of scoring: one line each, with its exit code."""

from __future__ import annotations

import pytest

from larvatus.models.objectives import NextSentenceConfig


@pytest.fixture(scope="module")
def directory(tiny_model, save_tiny, tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("m"), tiny_model(seed=3))


def test_a_model_without_the_head_is_refused_by_its_path(larvatus, tmp_path, tiny_model, save_tiny):
    heads = (NextSentenceConfig(),)
    save_tiny(tmp_path, tiny_model(objectives=heads), heads)
    code, said = larvatus("score", "the river", "--model", tmp_path)
    assert code == 5
    assert f"{tmp_path} has no masked-lm head to score texts with; use a model pretrained with masked-lm" in said


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "nothing to score; give texts"),
        ([""], 4, "text 1 of 1 is empty: there is nothing to score"),
        (["the river", "\u0301"], 4, "text 2 of 2 has no tokens"),
        (["--file", "absent.txt"], 4, "absent.txt cannot be opened"),
        (["--pairs", "absent.jsonl"], 4, "absent.jsonl cannot be opened"),
        (["the", "--pairs", "absent.jsonl"], 2, "--pairs is scored by itself"),
        (["the", "--out", "x"], 2, "--out, --resume and --normalise are for --pairs"),
        (["--pairs", "x", "--resume"], 2, "--resume needs --out"),
        (["--pairs", "-", "--out", "x", "--resume"], 2, "standard input cannot be read again"),
        (["the", "--method", "words"], 2, "word-l2r"),
    ],
)
def test_bad_input_is_one_line_with_its_code(larvatus, directory, arguments, code, said):
    assert larvatus("score", *arguments, "--model", directory)[0] == code
    assert said in larvatus("score", *arguments, "--model", directory)[1]


def test_a_line_of_a_file_is_named(larvatus, directory, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes("the river\n\n\u0301\n".encode())
    assert larvatus("score", "--file", path, "--json", "--model", directory) == (
        4,
        f"larvatus: {path}:3 has no tokens: the vocabulary deletes all its characters; leave it out",
    )
    path.write_bytes(b"\n\n")
    assert "has no text to score" in larvatus("score", "--file", path, "--model", directory)[1]


def test_an_output_that_cannot_be_written_is_named(larvatus, directory, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("the river\tthe bank\n", encoding="utf-8")
    code, said = larvatus("score", "--pairs", path, "--out", path / "no" / "x.jsonl", "--model", directory)
    assert code == 2
    assert "is no directory to write x.jsonl in" in said
