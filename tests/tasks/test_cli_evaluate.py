"""`larvatus evaluate` of fine-tuned models: what it prints, and one line for what cannot be."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from larvatus.models.heads import ClassificationConfig
from tests.tasks.conftest import draw, sentences, texts

Call = Callable[..., tuple[int, str, str]]
CLASSES = ("no", "yes")


@pytest.fixture
def larvatus(larvatus: Call) -> Call:
    return functools.partial(larvatus, "evaluate")


@pytest.fixture(scope="session")
def classifier(tuned: Any) -> Path:
    return Path(tuned(ClassificationConfig(labels=CLASSES, pool="mean", dense="none")).path)


@pytest.fixture(scope="session")
def other(tuned: Any) -> Path:
    return Path(tuned(ClassificationConfig(labels=CLASSES, pool="mean", dense="none"), seed=3).path)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labelled")
    rows = [f"{one.text}\t{one.pair}\t{one.label}" for one in texts(draw(CLASSES, 40), pairs=True)]
    (folder / "pairs.tsv").write_text("\n".join(["premise\thypothesis\tlabel", *rows, ""]))
    words = [
        "".join(f"{word}\t{tag}\n" for word, tag in zip(one.words, one.tags or (), strict=True))
        for one in sentences(30)
    ]
    (folder / "words.conll").write_text("\n".join(words))
    for task, labels in (("RTE", ("entailment", "not_entailment")), ("STS-B", (0.5, 2.25, 5.0))):
        (folder / "glue" / task).mkdir(parents=True)
        rows = [
            f"{n}\t{one.text}\t{one.pair}\t{one.label}" for n, one in enumerate(texts(draw(labels, 30), pairs=True))
        ]
        head = f"index\tsentence1\tsentence2\t{'score' if task == 'STS-B' else 'label'}"
        (folder / "glue" / task / "dev.tsv").write_text("\n".join([head, *rows, ""]))
    return folder


def test_a_classifier_as_tables_and_json_with_a_picture(
    larvatus: Call, classifier: Path, files: Path, tmp_path: Path
) -> None:
    words = [classifier, "--data", files / "pairs.tsv", "--samples", 50]
    code, out, err = larvatus(*words, "--plot", tmp_path / "confusion.png")
    assert (code, err) == (0, "")
    for part in ("read as: text = premise, pair = hypothesis", "accuracy", "95% interval", "gold ↓ answer →", "ECE"):
        assert part in out
    assert "tokens read (100%)" in out
    assert (tmp_path / "confusion.png").read_bytes().startswith(b"\x89PNG")
    code, out, err = larvatus(*words, "--json")
    found = json.loads(out)
    table = found["confusion"]
    assert found["metrics"]["accuracy"]["value"] == pytest.approx((table[0][0] + table[1][1]) / 40)
    assert [row["label"] for row in found["classes"]] == ["no", "yes"]
    assert found["read"]["examples"] == 40
    assert sum(row["count"] for row in found["calibration"]["reliability"]) == 40


def test_two_models_are_compared(larvatus: Call, classifier: Path, other: Path, files: Path) -> None:
    words = [classifier, "--data", files / "pairs.tsv", "--samples", 50]
    same = json.loads(larvatus(*words, "--against", classifier, "--json")[1])["comparison"]
    assert {score["p"] for score in same["metrics"].values()} == {1.0}
    assert same["mcnemar"]["p"] == 1.0
    found = json.loads(larvatus(*words, "--against", other, "--json")[1])
    own, theirs = found["metrics"]["accuracy"]["value"], json.loads(larvatus(other, *words[1:], "--json")[1])
    score = found["comparison"]["metrics"]["accuracy"]
    assert (score["second"], score["first"]) == (own, theirs["metrics"]["accuracy"]["value"])
    code, out, _ = larvatus(*words, "--against", other)
    assert code == 0
    assert "McNemar: p" in out


def test_a_tagger_says_which_errors_it_makes_and_what_it_has_not_read(
    larvatus: Call, tagger: Path, files: Path
) -> None:
    words = [tagger, "--data", files / "words.conll", "--samples", 50]
    code, out, _ = larvatus(*words)
    assert code == 0
    for part in ("entity-f1", "missed", "spurious", "taken for", "PER"):
        assert part in out
    cut = larvatus(*words, "--length", 8, "--truncate")[1]
    assert "(the others count as wrong)" in cut
    assert "examples are longer than a window" in cut
    read = json.loads(larvatus(*words, "--length", 8, "--truncate", "--json")[1])["read"]
    assert read["words_read"] < read["words"]


def test_glue_tasks_stand_beside_published_scores(larvatus: Call, tuned: Any, files: Path, tmp_path: Path) -> None:
    settings = {"pool": "mean", "dense": "none"}
    entails = tuned(ClassificationConfig(labels=("entailment", "not_entailment"), **settings)).path
    numbers = tuned(ClassificationConfig(labels=("value",), kind="regression", **settings)).path
    for name, path in (("rte", entails), ("stsb", numbers)):
        (tmp_path / name).symlink_to(path)
    given = ["--glue", files / "glue", "--samples", 20]
    code, out, err = larvatus(entails, numbers, "--task", "RTE", "--task", "sts-b", *given)
    assert (code, err) == (0, "")
    for part in ("BERT-base", "66.4", "85.8", "spearman", "here (dev)"):
        assert part in out
    found = json.loads(larvatus(entails, numbers, "--task", "rte", "--task", "stsb", *given, "--json")[1])
    assert [(one["task"], one["decides"]) for one in found["tasks"]] == [("rte", "accuracy"), ("stsb", "spearman")]
    assert found["published"]["BERT-large"]["rte"] == 70.1
    by_name = json.loads(larvatus(tmp_path / "rte", tmp_path / "stsb", *given, "--json")[1])
    assert [one["metrics"] for one in by_name["tasks"]] == [one["metrics"] for one in found["tasks"]]
    code, _, err = larvatus(numbers, "--task", "stsb", *given, "--plot", tmp_path / "x.png")
    assert code == 2
    assert "no confusion matrix" in err
    code, _, err = larvatus(entails, *given)
    assert code == 2
    assert "is not named after a task of GLUE" in err
    named = tmp_path / "cola"
    named.mkdir()
    code, _, err = larvatus(named, *given)
    assert (code, "config.json" in err) == (5, True)


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--data", "pairs.tsv", "--text", "premis"], 4, "has no column 'premis' for the text; did you mean premise?"),
        (["--data", "pairs.tsv", "--label", "hypothesis"], 4, "which the model does not know"),
        (["--data", "pairs.tsv", "--word", "1"], 2, "--word name columns of words; texts have --text"),
        (["--data", "absent.tsv"], 4, "absent.tsv"),
        (["--data", "pairs.tsv", "--task", "rte"], 2, "give one of the two: --data FILE, or --task"),
        (["--task", "rte"], 2, "a task is evaluated on --glue DIR"),
        (["--task", "rt", "--glue", "glue"], 2, "'rt' is no task of GLUE; did you mean rte?"),
        (["--task", "rte", "--glue", "glue", "--text", "1"], 2, "the columns of GLUE's files are known"),
        (["--task", "rte", "--task", "rte", "--glue", "glue"], 2, "1 directories but 2 tasks"),
        (["--task", "rte", "--glue", "glue"], 4, "'entailment', which the model does not know; there are: no, yes"),
        (["--data", "pairs.tsv", "--plot", "x.pdf"], 2, "--plot x.pdf must end in .png"),
        (["--data", "pairs.tsv", "--plot", "absent/x.png"], 2, "is no directory to write x.png in"),
        (["--data", "pairs.tsv", "--corpus", "x.txt"], 2, "give one of the two: --corpus for masked words"),
        (["--data", "pairs.tsv", "--length", "999"], 2, "--length 999 is more than the model's 32 positions"),
        (["--truncate"], 2, "was fine-tuned; give labelled examples: --data FILE"),
        (["--corpus", "pairs.tsv", "--truncate"], 2, "are for labelled examples; name some: --data FILE"),
        (["--against", "x"], 2, "a task is evaluated on labelled data: --data FILE"),
        ([], 2, "was fine-tuned; give labelled examples: --data FILE"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(
    larvatus: Call, classifier: Path, files: Path, monkeypatch: Any, more: list[str], code: int, said: str
) -> None:
    monkeypatch.chdir(files)
    found, out, err = larvatus(classifier, *more)
    assert said in err
    assert (found, out) == (code, "")
    assert "\n" not in err


def test_other_models_are_refused_in_one_line(
    larvatus: Call, classifier: Path, tagger: Path, files: Path, tiny_model: Any, save_tiny: Any, tmp_path: Path
) -> None:
    bare = save_tiny(tmp_path / "bare", tiny_model())
    code, _, err = larvatus(bare, "--data", files / "pairs.tsv")
    assert (code, err) == (5, f"larvatus: {bare} has no head to predict with; give it one with larvatus finetune")
    code, _, err = larvatus(bare)
    assert code == 2
    assert "no text was named; give --corpus PATH" in err
    code, _, err = larvatus(classifier, tagger, "--data", files / "pairs.tsv")
    assert code == 2
    assert "need one directory" in err
    code, _, err = larvatus(classifier, "--data", files / "pairs.tsv", "--against", tagger)
    assert code == 2
    assert "does not classify texts; give it what it was fine-tuned for" in err
    code, _, err = larvatus(tagger, "--data", files / "words.conll", "--text", "x", "--label", "y")
    assert code == 2
    assert "--text and --label are for texts; words have --word and --tag" in err


def test_a_picture_without_matplotlib_is_refused_before_the_work(
    larvatus: Call, classifier: Path, files: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("larvatus.core.outputs.find_spec", lambda name: None)
    code, _, err = larvatus(classifier, "--data", files / "pairs.tsv", "--plot", tmp_path / "x.png")
    assert code == 2
    assert 'pip install "larvatus[plots]"' in err
