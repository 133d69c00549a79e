"""Faults of fine-tuning: bad data and settings get one line and their exit code, and nothing is overwritten."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import larvatus as lv
from larvatus.core.files import locked
from larvatus.interfaces.cli.main import run
from tests import made_up as made
from tests.made_up import QUICK, Call

CLASSES = [{"text": "the river", "label": "wet"}, {"text": "your homework", "label": "dry"}] * 20


@pytest.mark.parametrize(
    ("rows", "more", "code", "says"),
    [
        (CLASSES, ("--label", "lable"), 4, "train.jsonl has no column 'lable'"),
        (CLASSES, ("--text", "body"), 4, "train.jsonl has no column 'body'"),
        ([{"text": "the river"}] * 4, (), 4, "label"),
        ([{"label": "wet"}] * 4, (), 4, "text"),
        (CLASSES[:1] * 9, (), 4, "all examples are labelled 'wet'; classification needs two classes"),
        ([*CLASSES, {"text": " ", "label": "wet"}], (), 4, "train.jsonl:41"),
        ([*CLASSES, {"text": "a", "label": None}], (), 4, "train.jsonl:41"),
        (CLASSES[:3], (), 4, "too few to hold some out; give --dev, or --no-dev"),
        (CLASSES, ("--rate", 0), 2, "--rate = 0.0 must be above 0"),
        (CLASSES, ("--rate", "nan"), 2, "--rate = nan must be above 0"),
        (CLASSES, ("--epochs", 0), 2, "epochs = 0 must lie between 1"),
        (CLASSES, ("--batch", 0), 2, "batch = 0 must lie between 1"),
        (CLASSES, ("--seeds", 0), 2, "--seeds"),
        (CLASSES, ("--warmup", 1.5), 2, "--warmup = 1.5 must be at least 0 and below 1"),
        (CLASSES, ("--trained", "haed"), 2, "'haed' is not something to train; did you mean head?"),
        (CLASSES, ("--trained", "last9"), 2, "the model has 2 layers"),
        (CLASSES, ("--class-weight", "wet=heavy"), 2, "--class-weight wet=heavy is neither NAME=NUMBER"),
        (CLASSES, ("--class-weight", "wet=-1"), 2, "--class-weight wet=-1 is neither NAME=NUMBER, at least 0,"),
        (CLASSES, ("--class-weight", "=2"), 2, "--class-weight =2 is neither"),
        (CLASSES, ("--class-weight", "damp=2"), 2, "there is no class 'damp' to give a weight; there are dry, wet"),
        (CLASSES, ("--class-weight", "balanced", "--class-weight", "wet=2"), 2, "leave the others out"),
        (CLASSES, ("--metric", "acuracy"), 2, "did you mean accuracy?"),
        (CLASSES, ("--length", 64), 2, "--length 64 is more than the model's 32 positions"),
        (CLASSES, ("--crf",), 2, "crf belongs to finetune tag, not classify"),
        (CLASSES, ("--repair",), 2, "repair belongs to finetune tag, not classify"),
        (CLASSES, ("--word", "text"), 2, "--word name columns of words"),
        (CLASSES, ("--pool", "first"), 2, "pool is cls, mean or max"),
        (CLASSES, ("--labels", "regression"), 4, "train.jsonl:1"),
        (CLASSES, ("--curve", "lots"), 2, "--curve lots is no list of percentages"),
        (CLASSES, ("--curve", "10,200"), 2, "percentages are above 0 and at most 100"),
        (CLASSES, ("--no-dev", "--curve", "10"), 2, "--no-dev"),
        (CLASSES, ("--no-dev", "--seeds", 2), 2, "several seeds, patience and a metric need validation examples"),
        (CLASSES, ("--task", "rte", "--glue", "."), 2, "in place of --train"),
        (CLASSES, ("--glue", "."), 2, "name labelled examples with --train FILE, or a task of GLUE"),
        (CLASSES, ("--precision", "fp8"), 2, "--precision is fp32 or bf16"),
        (CLASSES, ("--decay", "nan"), 2, "--decay = nan must lie between 0"),
        (CLASSES, ("--focal", "nan"), 2, "--focal = nan must lie between 0"),
        (CLASSES, ("--microbatch", 1), 2, "--microbatch = 1 must lie between 8"),
    ],
)  # fmt: skip
def test_what_cannot_be_classified_is_refused_in_one_line(
    finetune: Call, tmp_path: Path, rows: list[Any], more: tuple[object, ...], code: int, says: str
) -> None:
    train = made.write_rows(tmp_path / "train.jsonl", rows)
    found, _, err = finetune("classify", "--train", train, "--out", tmp_path / "out", *QUICK, *more)
    assert found == code, err
    assert says in err
    assert not (tmp_path / "out" / "config.json").exists()


def test_strict_refuses_labels_of_dev_that_train_lacks_with_their_place(finetune: Call, tmp_path: Path) -> None:
    train = made.classes(tmp_path / "train.jsonl")
    dev = made.write_rows(tmp_path / "dev.jsonl", [*CLASSES[:2], {"text": "a bank", "label": "damp"}])
    more = ("--out", tmp_path / "out", "--strict", *QUICK)
    code, _, err = finetune("classify", "--train", train, "--dev", dev, *more)
    assert code == 4
    assert "dev.jsonl:3" in err
    assert "'damp'" in err
    conll = made.tags(tmp_path / "train.conll")
    (tmp_path / "dev.conll").write_text("the\tO\nriver\tB-PER\n\n")
    code, _, err = finetune("tag", "--train", conll, "--dev", tmp_path / "dev.conll", *more)
    assert code == 4
    assert "dev.conll:" in err
    assert "B-PER" in err


@pytest.mark.parametrize(
    ("text", "more", "code", "says"),
    [
        ("the\tO\nriver\tB-LOC\nbank\n\n", (), 4, "train.conll:3"),
        ("the\tO\nriver\tI-LOC\n\na\tO\nbank\tB-LOC\n\n" * 9, (), 4, "train.conll:"),
        ("the\tO\nriver\tO\n\n" * 20, (), 4, "all words are tagged O; tagging needs two tags or more"),
        ("the\tO\nriver\tB-LOC\n\n" * 20, ("--pool", "cls"), 2, "not cls"),
        (
            "the\tO\nriver\tB-LOC\n\n" * 20,
            ("--class-weight", "balanced"),
            2,
            "balanced belongs to finetune classify, not tag",
        ),
        (
            "the\tO\nriver\tB-LOC\n\n" * 20,
            ("--labels", "regression"),
            2,
            "--labels belongs to finetune classify",
        ),
        ("the\tO\nriver\tB-LOC\n\n" * 20, ("--text", "1"), 2, "--text are for texts"),
        ("the\tO\nriver\tB-LOC\n\n" * 20, ("--tag", "9"), 4, "train.conll"),
        ("", (), 4, "is empty"),
    ],
)
def test_what_cannot_be_tagged_is_refused_in_one_line(
    finetune: Call, tmp_path: Path, text: str, more: tuple[object, ...], code: int, says: str
) -> None:
    (tmp_path / "train.conll").write_text(text)
    found, _, err = finetune("tag", "--train", tmp_path / "train.conll", "--out", tmp_path / "out", *QUICK, *more)
    assert found == code, err
    assert says in err


def test_words_and_tags_of_unequal_number_are_refused_with_file_and_line(finetune: Call, tmp_path: Path) -> None:
    rows = [{"tokens": ["the", "river"], "tags": ["O", "B-LOC"]}, {"tokens": ["a", "bank"], "tags": ["O"]}]
    train = made.write_rows(tmp_path / "train.jsonl", rows)
    code, _, err = finetune("tag", "--train", train, "--out", tmp_path / "out", *QUICK)
    assert code == 4
    assert "train.jsonl:2: 2 words but 1 tag" in err


def test_illegal_tags_can_be_repaired(finetune: Call, tmp_path: Path) -> None:
    (tmp_path / "train.conll").write_text("the\tO\nriver\tI-LOC\n\na\tO\nbank\tB-LOC\nof\tI-PER\n\n" * 10)
    command = ("tag", "--train", tmp_path / "train.conll", "--out", tmp_path / "out", *QUICK)
    code, _, err = finetune(*command)
    assert code == 4
    assert "--repair" in err
    assert finetune(*command, "--repair")[0] == 0


def test_words_with_tags_are_not_read_as_texts(finetune: Call, tmp_path: Path) -> None:
    train = made.tags(tmp_path / "train.conll")
    code, _, err = finetune("classify", "--train", train, "--out", tmp_path / "out", *QUICK)
    assert code == 4
    assert "train.conll holds words with tags, not texts" in err


def test_a_missing_file_or_model_is_refused(finetune: Call, tmp_path: Path) -> None:
    code, _, err = finetune("classify", "--train", tmp_path / "none.tsv", "--out", tmp_path / "out")
    assert code == 4
    assert "none.tsv" in err
    train = made.classes(tmp_path / "train.jsonl")
    code, _, err = finetune("classify", "--train", train, "--out", tmp_path / "out", model=tmp_path / "nothing")
    assert code == 5
    assert "nothing" in err


def test_a_text_of_many_windows_trains_and_predicts_to_its_end(finetune: Call, tmp_path: Path) -> None:
    long = "the river bank was wide and deep " * 6_061
    assert len(long) > 200_000
    rows = [*CLASSES[:14], {"text": long, "label": "wet"}]
    train, out = made.write_rows(tmp_path / "train.jsonl", rows), tmp_path / "out"
    dev = made.write_rows(tmp_path / "dev.jsonl", CLASSES[:4])
    code, said, err = finetune(
        *("classify", "--train", train, "--dev", dev, "--out", out, *QUICK), "--epochs", 1, "--evaluations", 1
    )
    assert (code, err) == (0, "")
    assert "1 text is longer than a window and read in 1,845 windows" in said  # 23 tokens of it a window, and no more
    answer: Any = lv.load(out).predict(long)
    assert answer.coverage.read == answer.coverage.tokens == 7 * 6_061
    assert answer.coverage.windows == 1_845


def test_a_head_that_does_not_fit_the_data_is_refused(
    finetune: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, out = made.classes(tmp_path / "train.jsonl"), tmp_path / "out"
    assert finetune("classify", "--train", train, "--out", out, *QUICK)[0] == 0
    for data in (made.pairs(tmp_path / "other.jsonl"), made.tags(tmp_path / "other.conll")):
        with pytest.raises(SystemExit) as ended:
            run(["evaluate", str(out), "--data", str(data)])
        err = capsys.readouterr().err
        assert ended.value.code in (2, 4, 5), err
        assert err.count("\n") == 1, err


def test_what_stands_there_is_not_overwritten(finetune: Call, tmp_path: Path, tiny_directory: Path) -> None:
    train, out = made.classes(tmp_path / "train.jsonl"), tmp_path / "out"
    shutil.copytree(tiny_directory, out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for more in ((), ("--resume",)):
        code, _, err = finetune("classify", "--train", train, "--out", out, *QUICK, *more)
        assert code == 5
        assert "already holds a model" in err
    assert {name: (out / name).read_bytes() for name in before} == before


def test_another_run_in_the_same_place_is_refused(finetune: Call, tmp_path: Path) -> None:
    train, out = made.classes(tmp_path / "train.jsonl"), tmp_path / "out"
    with locked(out):
        code, _, err = finetune("classify", "--train", train, "--out", out, *QUICK)
    assert code == 5
    assert f"another run (pid {os.getpid()}) is writing here" in err
