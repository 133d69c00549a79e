"""`larvatus patch`, `knockout` and `features`: tables, JSON, pages, and one line for what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from larvatus.models.objectives import MaskedLMConfig
from tests.tiny import save_model

PAIR = ("the river [MASK] was wide", "a bank [MASK] was wide", "--answers", "deep,run")


@pytest.fixture(scope="module")
def model(tiny_model: Any, tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that names no recipe."""
    path, heads = tmp_path_factory.mktemp("causes") / "m", (MaskedLMConfig(),)
    return save_model(path, tiny_model(objectives=heads), tiny_tokenizer, heads)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(["The river bank was wide and deep. Please turn your homework in!"] * 90))
    return path


def test_a_patch_is_a_table_json_and_a_page_without_scripts(larvatus: Any, model: Path, tmp_path: Path) -> None:
    code, out, err = larvatus("patch", *PAIR, "--model", model, "--html", tmp_path / "map.html")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("log-odds of 'run' against 'deep': first sentence ")
    assert "river → bank" in out
    assert next(line for line in lines if line.startswith("all words")).endswith("1.00")
    page = (tmp_path / "map.html").read_text()
    assert "<script" not in page
    assert page.count("<svg") == 3
    code, out, _ = larvatus("patch", *PAIR, "--model", model, "--json")
    assert code == 0
    record = json.loads(out)
    assert record["answers"] == ["deep", "run"]
    assert len(record["effects"]) == 8 * (3 + 2 + 2)
    code, _, err = larvatus("patch", PAIR[0], "a [MASK]", *PAIR[2:], "--model", model)
    assert code == 2
    assert "\n" not in err
    assert "do not align word by word" in err


def test_a_knockout_prints_heads_sets_and_notes(larvatus: Any, model: Path, corpus: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("the river was in\tthe river was of\na bank ran\ta river was\nthe bank in\tthe bank of\n" * 4)
    code, out, err = larvatus(
        "knockout",
        "--pairs",
        pairs,
        "--model",
        model,
        "--measure",
        "log-probability",
        "--greedy",
        2,
        "--random-sets",
        2,
    )
    assert code == 0, err
    assert "heads switched off one by one (mean ablation)" in out
    assert "greedy sets, chosen on one half of the pairs and measured on the other" in out
    assert "note: 4 pairs do not differ in exactly one word and were skipped" in out
    code, out, err = larvatus(
        "knockout", "--corpus", corpus, "--tokens", 600, "--model", model, "--json", "--layers", "2", "--greedy", 0
    )
    assert code == 0, err
    record = json.loads(out)
    assert [row["name"] for row in sorted(record["rows"], key=lambda row: row["name"])] == ["2:1", "2:2"]
    assert record["units"] == "passages"
    for wrong, line in (
        (["--corpus", corpus, "--pairs", pairs], "needs one of --pairs FILE, --corpus TEXT and --data FILE"),
        (["--data", pairs], "finetune"),
        (["--corpus", corpus, "--layers", "3"], "there is no layer 3"),
        (["--pairs", pairs, "--phenomena", "islands"], "no pair has the phenomenon 'islands'"),
    ):
        code, _, err = larvatus("knockout", "--model", model, *wrong)
        assert code > 0
        assert line in err
        assert "\n" not in err


def test_features_are_trained_shown_and_refused(larvatus: Any, model: Path, corpus: Path, tmp_path: Path) -> None:
    train = ["features", "train", "--model", model, "--corpus", corpus, "--layer", 1, "--size", 24, "--k", 3]
    code, out, err = larvatus(*train, "--tokens", 1000, "--batch", 64, "--out", tmp_path / "f")
    assert code == 0, err
    assert "random weights" in out
    assert f"next: larvatus features show {tmp_path / 'f'}" in out
    code, _, err = larvatus(*train, "--out", tmp_path / "f")
    assert code == 5
    assert "is there already" in err
    code, out, err = larvatus("features", "show", tmp_path / "f", "--top", 2, "--html", tmp_path / "f.html")
    assert code == 0, err
    assert "[" in out.splitlines()[-1]
    assert (tmp_path / "f.html").read_text().count("<h2>") == 3  # of the section, and of each feature
    code, out, _ = larvatus("features", "show", tmp_path / "f", "--feature", 3, "--random", "--json")
    assert code == 0
    record = json.loads(out)
    assert (record["of"], [each["number"] for each in record["features"]]) == ("random", [3])
    code, _, err = larvatus("features", "show", tmp_path / "f", "--word", "kiwi")
    assert code == 2
    assert "\n" not in err
    code, _, err = larvatus("features", "show", model)
    assert code == 5
    assert "holds no sparse features" in err
