"""Spans by the command line: nested data → a directory → brackets → scores; and one line for what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import larvatus as lv
from larvatus.interfaces.cli.commands.predict import shown
from larvatus.interfaces.cli.main import run
from larvatus.models.heads import SpansConfig
from larvatus.tasks.results import Coverage, Entity, Spanned
from tests import made_up as made
from tests.made_up import QUICK, Call
from tests.tasks.test_run import assert_bit_equal, signal_at

LEARN = ("--epochs", 7, "--batch", 8, "--rate", 0.01, "--device", "cpu")


@pytest.fixture(scope="session")
def spotter(tiny_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learnt the nested spans of a CoNLL file with two levels of tags."""
    folder = tmp_path_factory.mktemp("spans")
    train = made.nested(folder / "train.conll", 80)
    dev = made.nested(folder / "dev.conll", 30, seed=1)
    words = ["finetune", "spans", "--model", tiny_directory, "--train", train, "--dev", dev, "--out", folder / "out"]
    with pytest.raises(SystemExit) as ended:
        run([str(one) for one in (*words, "--word", 2, "--tag", "3,4", *LEARN)])
    assert not ended.value.code
    return folder / "out"


def test_nested_spans_are_learnt_shown_and_scored(larvatus: Call, spotter: Path, tmp_path: Path) -> None:
    code, out, err = larvatus("predict", spotter, "please river bank was wide", "your homework in")
    assert code == 0
    assert out.splitlines() == ["please [[river WATER] bank LOC] was wide", "your homework in"]
    assert "2 texts" in err
    test = made.nested(tmp_path / "test.conll", 30, seed=2)
    command = ("evaluate", spotter, "--data", test, "--word", 2, "--tag", "3,4", "--samples", 50)
    code, out, err = larvatus(*command)
    assert (code, err) == (0, "")
    for part in ("span-f1", "inner-f1", "depth", "WATER", "with wrong boundaries", "nested decoding"):
        assert part in out
    assert "tokens read (100%)" in out
    found = json.loads(larvatus(*command, "--json")[1])
    assert found["metrics"]["span-f1"]["value"] > 0.9
    assert found["metrics"]["span-f1"]["low"] <= found["metrics"]["span-f1"]["value"]
    assert [row["depth"] for row in found["depths"]] == [1, 2]
    assert {row["label"] for row in found["types"]} == {"LOC", "WATER"}
    both = json.loads(larvatus(*command, "--json", "--against", spotter)[1])["comparison"]
    assert both["metrics"]["inner-f1"]["difference"] == 0
    assert both["mcnemar"] is None
    code, out, _ = larvatus(*command, "--against", spotter)
    assert "p by approximate randomisation" in out


def test_a_model_of_spans_loads_and_answers_in_python(spotter: Path) -> None:
    found = lv.load(spotter).predict("please river bank was wide")
    assert isinstance(found, lv.Spanned)
    outer, inner = found.entities
    assert (outer.label, outer.text, inner.label) == ("LOC", "river bank", "WATER")
    assert found.inside(outer) == (inner,)
    card = (spotter / "README.md").read_text()
    assert "finds spans of words, nested ones too" in card
    assert "only Larvatus loads it" in card


@pytest.mark.parametrize("ending", ["conllu", "jsonl"])
def test_other_notations_train_and_score_too(finetune: Call, larvatus: Call, tmp_path: Path, ending: str) -> None:
    train, dev = made.nested(tmp_path / f"train.{ending}"), made.nested(tmp_path / f"dev.{ending}", 16, seed=1)
    command = ("--train", train, "--dev", dev, "--out", tmp_path / "out", *QUICK)
    own = ("--set", "longest=2", "--set", "representation=attention", "--seeds", 2)
    code, out, err = finetune("spans", *command, *own)
    assert (code, err) == (0, "")
    assert "threshold " in out
    assert "mean and deviation of seeds: before it" in out
    assert "the means of seeds before that" in (tmp_path / "out" / "README.md").read_text()
    head = json.loads((tmp_path / "out" / "config.json").read_text())
    assert "attention" in json.dumps(head)
    found = json.loads(larvatus("evaluate", tmp_path / "out", "--data", dev, "--json", "--samples", 20)[1])
    saved = json.loads((tmp_path / "out" / "larvatus.json").read_text())["lineage"]["scores"]
    for name in ("span-f1", "precision", "recall", "macro-f1", "outer-f1", "inner-f1"):
        assert found["metrics"][name]["value"] == pytest.approx(saved[name])


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    finetune: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("spans", "--train", made.nested(tmp_path / "train.jsonl"), *QUICK)
    assert finetune(*command, "--out", tmp_path / "whole")[0] == 0
    with monkeypatch.context() as patched:
        signal_at(patched, 2)
        assert finetune(*command, "--out", tmp_path / "parts")[0] == 75
    code, _, err = finetune(*command, "--out", tmp_path / "parts", "--resume", "--set", "longest=1")
    assert (code, "options.longest null (now 1)" in err) == (5, True)
    assert finetune(*command, "--out", tmp_path / "parts", "--resume")[0] == 0
    assert_bit_equal(tmp_path / "whole", tmp_path / "parts")


def test_fine_tuning_from_python_with_one_type(tiny_directory: Path, tmp_path: Path, larvatus: Call) -> None:
    train = made.nested(tmp_path / "train.jsonl")
    settings: dict[str, Any] = {"epochs": 1, "batch": 8, "rate": 0.01, "device": "cpu"}
    model = lv.finetune("spans", tiny_directory, train=train, out=tmp_path / "out", binary=True, **settings)
    (config,) = model.bundle.objectives
    assert isinstance(config, SpansConfig)
    assert config.labels == ("SPAN",)
    code, out, err = larvatus("evaluate", tmp_path / "out", "--data", train, "--samples", 20)
    assert (code, err) == (0, "")
    assert "all types are read as one" in out


JSONL = [{"text": "the river bank", "spans": [{"start": 4, "end": 9, "label": "LOC"}]}] * 20


def spans(*triples: tuple[int, int, str]) -> dict[str, Any]:
    return {"text": "the river bank", "spans": [{"start": a, "end": b, "label": label} for a, b, label in triples]}


@pytest.mark.parametrize(
    ("rows", "more", "code", "says"),
    [
        ([*JSONL, spans((4, 99, "LOC"))], (), 4, "train.jsonl:21"),
        ([*JSONL, spans((-3, 2, "LOC"))], (), 4, "train.jsonl:21"),
        ([*JSONL, spans((9, 4, "LOC"))], (), 4, "train.jsonl:21"),
        ([*JSONL, spans((3, 4, "LOC"))], (), 4, "covers no word"),
        ([*JSONL, spans((4, 7, "LOC"))], (), 4, "cuts a word"),
        ([spans()] * 20, (), 4, "no span is labelled"),
        (JSONL, ("--set", "longset=3"), 2, "no setting 'longset'; did you mean longest?"),
        (JSONL, ("--set", "longest"), 2, "--set longest is not name=value"),
        (JSONL, ("--set", "longest=many"), 2, "finetune spans: Expected `int | null`"),
        (JSONL, ("--set", "longest=0"), 2, "longest"),
        (JSONL, ("--set", "decoding=fre"), 2, "finetune spans: decoding is flat, nested or free, not fre"),
        (JSONL, ("--set", "least_precision=2"), 2, "least_precision = 2.0 must be above 0 and at most 1"),
        (JSONL, ("--metric", "span-f2"), 2, "did you mean span-f1?"),
        (JSONL, ("--crf",), 2, "crf belongs to finetune tag, not spans"),
        (JSONL, ("--text", "text"), 2, "--text are for texts"),
        (JSONL, ("--tag", "ner"), 2, "--tag ner is no column"),
    ],
)
def test_bad_input_is_one_line(
    finetune: Call, tmp_path: Path, rows: list[Any], more: tuple[object, ...], code: int, says: str
) -> None:
    train = made.write_rows(tmp_path / "train.jsonl", rows)
    found, _, err = finetune("spans", "--train", train, "--out", tmp_path / "out", *QUICK, *more)
    assert (found, says in err) == (code, True), err
    assert not (tmp_path / "out" / "config.json").exists()


def test_types_absent_from_training_are_named(finetune: Call, larvatus: Call, spotter: Path, tmp_path: Path) -> None:
    train = made.write_rows(tmp_path / "train.jsonl", JSONL)
    dev = made.write_rows(tmp_path / "dev.jsonl", [spans((10, 14, "WATR"))])
    code, _, err = finetune("spans", "--train", train, "--dev", dev, "--out", tmp_path / "out", *QUICK)
    assert (code, "dev.jsonl:1: 'bank' is of the type 'WATR'" in err) == (4, True)
    code, _, err = larvatus("evaluate", spotter, "--data", dev)
    assert (code, "'WATR', which the model does not know; did you mean WATER?" in err) == (4, True)


def test_crossing_spans_are_said_and_free_decoding_may_keep_them(finetune: Call, tmp_path: Path) -> None:
    crossing = [spans((0, 9, "LOC"), (4, 14, "LOC"))] * 20
    train = made.write_rows(tmp_path / "train.jsonl", crossing)
    code, out, err = finetune("spans", "--train", train, "--out", tmp_path / "nested", *QUICK)
    assert (code, err) == (0, "")
    said = " ".join(out.split())
    assert "'the river' and 'river bank' cross, and nested decoding keeps one of two" in said
    assert "--set decoding=free keeps both" in said
    command = ("--train", train, "--out", tmp_path / "free", *LEARN, "--set", "decoding=free")
    code, out, _ = finetune("spans", *command)
    assert (code, " cross, and" in out) == (0, False)
    found = lv.load(tmp_path / "free").predict("the river bank")
    assert isinstance(found, Spanned)
    assert [one.text for one in found.entities] == ["the river", "river bank"]
    assert shown(found).plain == "[₁the [₂river LOC]₁ bank LOC]₂"


def test_spans_longer_than_the_text_or_the_longest(finetune: Call, larvatus: Call, tmp_path: Path) -> None:
    train = made.write_rows(tmp_path / "train.jsonl", [*JSONL, spans((0, 14, "LOC"))])
    command = ("--train", train, "--dev", train, *QUICK)
    assert finetune("spans", *command, "--out", tmp_path / "long", "--set", "longest=50")[0] == 0
    code, out, _ = larvatus("predict", tmp_path / "long", "river", "--json")
    assert (code, json.loads(out)["text"]) == (0, "river")
    code, out, _ = finetune("spans", *command, "--out", tmp_path / "short", "--set", "longest=1")
    assert (code, "1 of 21 spans are longer than 1 words" in " ".join(out.split())) == (0, True)
    code, out, _ = larvatus("evaluate", tmp_path / "short", "--data", train, "--samples", 20)
    assert (code, "1 of 21 spans are longer than 1 words" in out) == (0, True)


def test_long_and_truncated_texts(larvatus: Call, spotter: Path, tmp_path: Path) -> None:
    code, out, _ = larvatus("predict", spotter, "please river bank was wide . " * 3500, "--json")
    found = json.loads(out)
    assert (code, found["tokens"], found["tokens_read"]) == (0, 21_000, 21_000)
    assert found["windows"] > 700
    words = " ".join(["please river bank was wide ."] * 20)
    spans = [
        {"start": 7, "end": 17, "label": "LOC"},
        {"start": len(words) - 21, "end": len(words) - 11, "label": "LOC"},
    ]
    data = made.write_rows(tmp_path / "long.jsonl", [{"text": words, "spans": spans}])
    found = json.loads(larvatus("evaluate", spotter, "--data", data, "--truncate", "--json", "--samples", 20)[1])
    assert found["read"]["words"] == 120
    assert found["read"]["words_read"] == 30
    assert found["metrics"]["recall"]["value"] == 0.5
    found = json.loads(larvatus("evaluate", spotter, "--data", data, "--json", "--samples", 20)[1])
    assert (found["read"]["words_read"], found["read"]["longer_than_a_window"]) == (120, 1)
    assert found["metrics"]["recall"]["value"] >= 0.5


def test_what_does_not_go_together_is_one_line(
    larvatus: Call, spotter: Path, tiny_directory: Path, tmp_path: Path
) -> None:
    data = made.nested(tmp_path / "dev.jsonl")
    for more, says in (
        (("--plot", tmp_path / "a.png"), "no confusion matrix"),
        (("--predictions", tmp_path / "p.json"), "does not answer questions"),
        (("--glue", tmp_path), "give one of the two"),
    ):
        code, _, err = larvatus("evaluate", spotter, "--data", data, *more)
        assert (code, says in err) == (2, True), err
    code, _, err = larvatus("predict", spotter, "a", "--pair", "b")
    assert (code, "finds spans of words" in err) == (2, True)


def entity(start: int, end: int, label: str) -> Entity:
    return Entity(text="", label=label, start=start, end=end, score=1.0)


@pytest.mark.parametrize(
    ("entities", "line"),
    [
        ([(0, 15, "ORG"), (0, 23, "ORG")], "[[United Airlines ORG] Holding ORG]"),
        ([(0, 23, "A"), (7, 15, "B"), (7, 23, "C")], "[United [[Airlines B] Holding C] A]"),
        ([(0, 6, "A"), (7, 15, "B")], "[United A] [Airlines B] Holding"),
        ([(0, 7, "A"), (7, 15, "B")], "[United  A][Airlines B] Holding"),
        ([(0, 15, "A"), (7, 23, "B")], "[₁United [₂Airlines A]₁ Holding B]₂"),
        ([(0, 15, "A"), (7, 23, "B"), (7, 15, "C")], "[₁United [₂[Airlines C] A]₁ Holding B]₂"),
        ([], "United Airlines Holding"),
    ],
)  # fmt: skip
def test_brackets_nest_stand_side_by_side_and_bear_numbers_where_they_cross(
    entities: list[tuple[int, int, str]], line: str
) -> None:
    read = Coverage(tokens=3, read=3, windows=1)
    found = Spanned(text="United Airlines\tHolding", entities=tuple(entity(*one) for one in entities), coverage=read)
    assert shown(found).plain == line
