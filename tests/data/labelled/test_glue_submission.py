"""Files for GLUE's test server: names, columns and labels as its instructions and sample submissions have them."""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import larvatus as lv
from larvatus.core.errors import UsageError
from larvatus.data.labelled.glue import FILES, TEST_SETS, check_labels, glue_test_set
from larvatus.models.heads import ClassificationConfig

TESTS = {  # headers of GLUE's own unlabelled files
    "cola": ("index\tsentence", "{n}\tthe river was wide"),
    "sst2": ("index\tsentence", "{n}\tthe river was wide"),
    "mrpc": ("index\t#1 ID\t#2 ID\t#1 String\t#2 String", '{n}\t1089874\t1089925\tthe "river\tthe bank'),
    "stsb": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2",
        "{n}\tmain\tMSRvid\t2012\t0024\tnone\tnone\tthe river\tthe bank",
    ),
    "qqp": ("id\tquestion1\tquestion2", "{n}\tthe river ?\tthe bank ?"),
    "mnli-m": (
        "index\tpromptID\tpairID\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1\tsentence2",
        "{n}\t31493\t31493\t( the river )\t( a bank )\tthe river was wide\tthe bank was deep",
    ),
    "qnli": ("index\tquestion\tsentence", "{n}\tthe river ?\tthe bank was wide"),
    "rte": ("index\tsentence1\tsentence2", "{n}\tthe river was wide\tthe bank"),
    "wnli": ("index\tsentence1\tsentence2", "{n}\tthe river was wide\tthe bank"),
    "ax": ("index\tsentence1\tsentence2", "{n}\tthe river was wide\tthe bank"),
}
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(larvatus: Call) -> Call:
    return functools.partial(larvatus, "predict")


@pytest.fixture(scope="module")
def models(tiny_model: Any, save_tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], Path]:
    """A model for each set of labels; none of them for STS-B."""
    folder, made = tmp_path_factory.mktemp("glue"), {}
    for labels in {test.task.labels for test in TEST_SETS.values()}:
        head = ClassificationConfig(labels=labels or ("score",), kind="multi-class" if labels else "regression")
        made[labels] = save_tiny(folder / f"m{len(made)}", tiny_model(objectives=(head,)), (head,))
    return made


def write_test(folder: Path, name: str, rows: int = 5) -> Path:
    header, row = TESTS[name]
    path = folder / f"{name}.tsv"
    path.write_text("\n".join([header, *(row.format(n=n) for n in range(rows))]) + "\n", encoding="utf-8")
    return path


def test_the_server_is_given_its_eleven_files() -> None:
    assert set(FILES) == {
        *("CoLA.tsv", "SST-2.tsv", "MRPC.tsv", "STS-B.tsv", "QQP.tsv", "MNLI-m.tsv", "MNLI-mm.tsv"),
        *("QNLI.tsv", "RTE.tsv", "WNLI.tsv", "AX.tsv"),
    }


@pytest.mark.parametrize("name", TESTS)
def test_a_test_set_becomes_a_file_for_the_server(
    call: Call, models: dict[tuple[str, ...], Path], tmp_path: Path, name: str
) -> None:
    test, out = glue_test_set(name), tmp_path / "submission"
    model = models[test.task.labels]
    file = write_test(tmp_path, name)
    code, said, err = call(model, "--glue-submission", name, "--file", file, "--out", out)
    assert code == 0, err
    assert f"GLUE's test set of {test.title} {test.rows:,}" in err  # five rows are not all
    with (out / test.file).open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert [list(row) for row in rows] == [["index", "prediction"]] * 5
    assert [row["index"] for row in rows] == ["0", "1", "2", "3", "4"]
    if test.task.labels:
        assert {row["prediction"] for row in rows} <= set(test.task.labels)
        lines = [line.split("\t") for line in file.read_text().splitlines()[1:]]
        texts = [tuple(line[-2:]) if test.task.pairs else line[-1] for line in lines]
        assert [row["prediction"] for row in rows] == [found.label for found in lv.load(model).predict(texts)]
    else:
        assert all(0 <= float(row["prediction"]) <= 5 for row in rows)
    assert "still missing for the server" in said
    assert test.file not in said.partition("still missing")[2]
    assert call(model, "--glue-submission", name, "--file", file, "--out", out)[0] == 5  # it is there


def test_every_row_has_a_prediction_even_without_text(
    call: Call, models: dict[tuple[str, ...], Path], tmp_path: Path
) -> None:
    file = tmp_path / "test.tsv"
    file.write_text("id\tquestion1\tquestion2\n0\tthe river ?\t\n1\tthe bank ?\tthe river ?\n", encoding="utf-8")
    code, _, err = call(models["0", "1"], "--glue-submission", "QQP", "--file", file, "--out", tmp_path / "s")
    assert code == 0, err
    assert "1 rows have an empty text" in err
    assert (tmp_path / "s" / "QQP.tsv").read_text().count("\n") == 3


def test_labels_that_do_not_match_are_refused(call: Call, models: dict[tuple[str, ...], Path], tmp_path: Path) -> None:
    file = write_test(tmp_path, "rte")
    code, _, err = call(models["0", "1"], "--glue-submission", "rte", "--file", file, "--out", tmp_path / "s")
    assert code == 2
    assert "has the labels 0, 1, and RTE wants entailment, not_entailment" in err
    assert not (tmp_path / "s" / "RTE.tsv").exists()
    code, _, err = call(models[()], "--glue-submission", "rte", "--file", file, "--out", tmp_path / "s")
    assert (code, "RTE wants one of entailment, not_entailment" in err) == (2, True)
    with pytest.raises(UsageError, match="STS-B wants a number from 0 to 5"):
        check_labels(glue_test_set("stsb"), ("0", "1"), numbers=False, model="m")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--glue-submission", "mnli", "--file", "FILE", "--out", "OUT"), "name one: mnli-m"),
        (("--glue-submission", "cloa", "--file", "FILE", "--out", "OUT"), "did you mean cola?"),
        (("--glue-submission", "cola", "--out", "OUT", "a text"), "one test set and a folder"),
        (("--glue-submission", "cola", "--file", "FILE"), "one test set and a folder"),
        (("--glue-submission", "cola", "--file", "FILE", "--out", "FILE"), "is a file"),
        (("--glue-submission", "cola", "--file", "FILE", "--out", "OUT", "--json"), "leave --resume, --json"),
        (("--glue-submission", "cola", "--file", "FILE", "--out", "OUT", "--errors", "e.jsonl"), "every row"),
    ],
)
def test_what_cannot_be_submitted_is_refused(
    call: Call,
    models: dict[tuple[str, ...], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"FILE": str(write_test(tmp_path, "cola")), "OUT": str(tmp_path / "s")}
    code, _, err = call(models["0", "1"], *(places.get(word, word) for word in given))
    assert (code, said in err) == (2, True), err


def test_odd_indices_are_refused(call: Call, models: dict[tuple[str, ...], Path], tmp_path: Path) -> None:
    file = tmp_path / "test.tsv"
    for rows, said in (("0\ta bank\n0\tthe river\n", "occurs twice"), ("x\ta bank\n", "no whole number")):
        file.write_text(f"index\tsentence\n{rows}", encoding="utf-8")
        code, _, err = call(models["0", "1"], "--glue-submission", "cola", "--file", file, "--out", tmp_path / "s")
        assert (code, said in err) == (4, True), err
    assert not (tmp_path / "s" / "CoLA.tsv").exists()
