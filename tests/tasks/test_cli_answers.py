"""Answers by the command line: SQuAD's JSON → a directory → answers → the official scores; one line for faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import larvatus as lv
from larvatus.data.labelled.squad import read_questions
from larvatus.interfaces.cli.main import run
from larvatus.tasks.answers.passages import encode_passages
from larvatus.tasks.scoring import ScoringOptions, score_sequences
from tests import made_up as made
from tests.made_up import QUICK, Call
from tests.squad_scores import squad2_scores, squad_scores
from tests.tasks.test_run import check_resumed

LEARN = ("--epochs", 7, "--batch", 16, "--rate", 0.01, "--device", "cpu")
QUESTION, PASSAGE = "in the river ?", "the wide river deep of a was of the"


def read_predictions(path: str) -> dict[str, str]:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def gold_answers(data: Any) -> dict[str, tuple[str, ...]]:
    return {question.id: question.golds for question in data}


def fine_tuned(model: Path, folder: Path, without: float) -> Path:
    train = made.asked(folder / "train.json", 160, without=without)
    dev = made.asked(folder / "dev.json", 40, seed=1, without=without)
    words = ["finetune", "answer", "--model", model, "--train", train, "--dev", dev, "--out", folder / "out", *LEARN]
    with pytest.raises(SystemExit) as ended:
        run([str(one) for one in (*words, "--set", "longest=2")])
    assert not ended.value.code
    return folder / "out"


@pytest.fixture(scope="session")
def answerer(tiny_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fine_tuned(tiny_directory, tmp_path_factory.mktemp("answers"), 0.0)


@pytest.fixture(scope="session")
def doubter(tiny_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of questions some of which have no answer."""
    return fine_tuned(tiny_directory, tmp_path_factory.mktemp("doubts"), 0.3)


def test_a_model_that_answers_is_saved_for_us_and_for_transformers(larvatus: Call, answerer: Path) -> None:
    code, out, err = larvatus("predict", answerer, QUESTION, "--pair", PASSAGE)
    assert (code, "1 text" in err) == (0, True)
    assert out.startswith("river deep ")
    assert out.rstrip().endswith(QUESTION)
    model = lv.load(answerer)
    found = model.predict((QUESTION, PASSAGE))
    assert isinstance(found, lv.Answer)
    assert (found.text, PASSAGE[found.start : found.end], found.null_score) == ("river deep", "river deep", None)
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(answerer)
    asked = encode_passages(model.tokenizer, [(QUESTION, PASSAGE)], limit=32)
    tokens = asked.sequences.inputs(np.array([0])).tokens
    inputs = {"input_ids": tokens.ids, "token_type_ids": tokens.segments}
    with torch.inference_mode():
        both = theirs(**{name: torch.from_numpy(own).long()[None] for name, own in inputs.items()})
    ours = score_sequences(model.network, asked.sequences, ScoringOptions())
    np.testing.assert_allclose(np.stack([both.start_logits[0], both.end_logits[0]], 1), ours, atol=1e-5)
    assert "AutoModelForQuestionAnswering" in (answerer / "README.md").read_text()


def test_files_of_questions_are_answered(larvatus: Call, answerer: Path, tmp_path: Path) -> None:
    dev = answerer.parent / "dev.json"
    code, out, err = larvatus("predict", answerer, "--file", dev, "--json")
    assert (code, "questions about 40 passages" in err) == (0, True)
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["id"] for row in rows] == [f"q{n}" for n in range(40)]
    assert "line" not in rows[0]
    assert larvatus("predict", answerer, "--file", dev, "--out", tmp_path / "p.jsonl")[0] == 0
    assert (tmp_path / "p.jsonl").read_text() == out
    assert larvatus("predict", answerer, "--file", dev, "--out", tmp_path / "p.json")[0] == 0
    assert read_predictions(str(tmp_path / "p.json")) == {row["id"]: row["text"] for row in rows}
    made.write_rows(tmp_path / "rows.jsonl", [{"question": QUESTION, "context": PASSAGE, "id": 7}] * 2)
    code, out, _ = larvatus("predict", answerer, "--file", tmp_path / "rows.jsonl", "--json")
    assert [json.loads(line)["text"] for line in out.splitlines()] == ["river deep"] * 2
    rows = ("--file", tmp_path / "rows.jsonl")
    code, _, err = larvatus("predict", answerer, *rows, *rows, "--out", tmp_path / "twice.json")
    assert (code, "1 id is given to more than one question" in err) == (0, True)
    assert "the id 7 is taken by another file; its answer is under 7#3" in err
    assert read_predictions(str(tmp_path / "twice.json")) == dict.fromkeys(("7", "7#2", "7#3", "7#2#2"), "river deep")
    (tmp_path / "rows.tsv").write_text(f"question\tcontext\n{QUESTION}\t{PASSAGE}\n")
    code, out, _ = larvatus("predict", answerer, "--file", tmp_path / "rows.tsv", "--top", 3)
    assert (code, out.startswith("river deep "), len(out.split("  "))) == (0, True, 4)
    code, _, err = larvatus("predict", answerer, "--file", tmp_path / "rows.tsv", "--out", tmp_path / "no.json")
    assert (code, "has no id" in err) == (2, True)
    assert not (tmp_path / "no.json").exists()


def evaluated(larvatus: Call, model: Path, folder: Path, *, shows: tuple[str, ...]) -> tuple[Path, tuple[object, ...]]:
    """The validation questions and the command, after it has written `p.json` and shown these parts."""
    dev = model.parent / "dev.json"
    command = ("evaluate", model, "--data", dev, "--samples", 50)
    code, out, err = larvatus(*command, "--predictions", folder / "p.json")
    assert (code, err) == (0, "")
    for part in shows:
        assert part in out
    return dev, command


def test_scores_are_those_of_the_first_script(larvatus: Call, answerer: Path, tmp_path: Path) -> None:
    parts = ("exact-match", "95% interval", "rules of SQuAD 1.1", "tokens read (100%)", "predictions: ")
    dev, command = evaluated(larvatus, answerer, tmp_path, shows=parts)
    found = json.loads(larvatus(*command, "--json")[1])
    theirs = squad_scores(gold_answers(read_questions(str(dev))), read_predictions(str(tmp_path / "p.json")))
    assert found["metrics"]["f1"]["value"] == pytest.approx(theirs.f1)
    assert found["metrics"]["exact-match"]["value"] == pytest.approx(theirs.exact)
    assert theirs.f1 > 0.6
    saved = json.loads((answerer / "larvatus.json").read_text())["lineage"]["scores"]
    assert saved["f1"] == pytest.approx(theirs.f1)
    both = json.loads(larvatus(*command, "--json", "--against", answerer)[1])["comparison"]
    assert both["metrics"]["f1"]["difference"] == 0
    assert both["mcnemar"]["both"] == round(40 * theirs.exact)


def test_scores_are_those_of_the_second_script(larvatus: Call, doubter: Path, answerer: Path, tmp_path: Path) -> None:
    parts = ("has-answer-f1", "no-answer", "rules of SQuAD 2.0", "threshold of no answer", "the best on these")
    dev, command = evaluated(larvatus, doubter, tmp_path, shows=parts)
    golds, texts = gold_answers(read_questions(str(dev))), read_predictions(str(tmp_path / "p.json"))
    theirs = squad2_scores(golds, texts)
    assert theirs.has_answer is not None
    assert theirs.no_answer is not None
    found = json.loads(larvatus(*command, "--json")[1])
    values = {name: one["value"] for name, one in found["metrics"].items()}
    assert values == pytest.approx(
        {
            "f1": theirs.f1,
            "exact-match": theirs.exact,
            "has-answer-f1": theirs.has_answer.f1,
            "has-answer-exact": theirs.has_answer.exact,
            "no-answer": theirs.no_answer.exact,
        }
    )
    assert found["without_answer"] == sum(not own for own in golds.values())
    assert found["not_answered"] == sum(not text for text in texts.values())
    assert found["best"]["f1"]["score"] == pytest.approx(values["f1"])  # the threshold was fitted to these questions
    assert found["best"]["f1"]["threshold"] == pytest.approx(found["threshold"])
    both = json.loads(larvatus(*command, "--json", "--against", answerer)[1])["comparison"]
    assert larvatus("evaluate", answerer, "--data", dev, "--predictions", tmp_path / "q.json", "--samples", 20)[0] == 0
    other = squad2_scores(golds, read_predictions(str(tmp_path / "q.json"))).no_answer
    assert other is not None  # it always answers, but an article alone counts as nothing
    assert both["metrics"]["no-answer"]["first"] == pytest.approx(other.exact)
    assert both["metrics"]["no-answer"]["second"] == pytest.approx(values["no-answer"])


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    finetune: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("answer", "--train", made.asked(tmp_path / "train.json", without=0.3), *QUICK)
    check_resumed(finetune, *command, at=2, folder=tmp_path, monkeypatch=monkeypatch)


def test_fine_tuning_from_python(tiny_directory: Path, tmp_path: Path) -> None:
    train = made.asked(tmp_path / "train.json")
    model = lv.finetune("answer", tiny_directory, train=train, epochs=1, batch=8, rate=0.01, longest=4, device="cpu")
    found = model.predict([(QUESTION, PASSAGE), (QUESTION, "a bank")])
    assert [one.text in passage for one, passage in zip(found, (PASSAGE, "a bank"), strict=True)] == [True, True]


def squad(*answers: dict[str, Any], **more: Any) -> dict[str, Any]:
    own = {"id": "5a", "question": QUESTION, "answers": list(answers), **more}
    return {"data": [{"title": "t", "paragraphs": [{"context": PASSAGE, "qas": [own]}]}]}


@pytest.mark.parametrize(
    ("document", "more", "code", "says"),
    [
        (squad({"text": "river", "answer_start": 3}), (), 4, "train.json: question 5a: its answer 'river' is not at"),
        (squad({"text": "river", "answer_start": 3}), (), 4, "it is at 9"),
        (squad({"text": "brook", "answer_start": 3}), (), 4, "nowhere in the passage"),
        (squad({"text": "river", "answer_start": 999}), (), 4, "question 5a"),
        (squad({"text": "river", "answer_start": 9}, is_impossible=True), (), 4, "it is_impossible, and yet"),
        (squad({"text": ""}), (), 4, "not one of 1 questions comes with its answer"),
        (squad(is_impossible=True), ("--no-dev",), 4, "not one question has an answer"),
        ({"data": 3}, (), 4, "is not SQuAD's JSON: there is no list 'data'"),
        (None, ("--set", "longset=3"), 2, "no setting 'longset'; did you mean longest?"),
        (None, ("--set", "longest=0"), 2, "longest"),
        (None, ("--set", "decoding.merg=window"), 2, "unknown field `merg` - at `$.decoding`"),
        (None, ("--metric", "f2"), 2, "did you mean f1?"),
        (None, ("--text", "context"), 2, "questions are read from SQuAD's JSON"),
        (None, ("--length", 9), 2, "too short for a question"),
        (None, ("--crf",), 2, "crf belongs to finetune tag, not answer"),
    ],
)
def test_bad_input_is_one_line(
    finetune: Call, tmp_path: Path, document: Any, more: tuple[object, ...], code: int, says: str
) -> None:
    train = tmp_path / "train.json"
    if document is None:
        made.asked(train)
    else:
        train.write_text(json.dumps(document))
    found, _, err = finetune("answer", "--train", train, "--out", tmp_path / "out", *QUICK, *more)
    assert (found, says in err) == (code, True), err
    assert not (tmp_path / "out" / "config.json").exists()


def test_a_passage_of_a_hundred_thousand_characters(
    larvatus: Call, finetune: Call, answerer: Path, tmp_path: Path
) -> None:
    passage = "the wide of a was deep . " * 4_000 + PASSAGE
    assert len(passage) > 100_000
    code, out, _ = larvatus("predict", answerer, QUESTION, "--pair", passage, "--json")
    found = json.loads(out)
    assert (code, found["tokens_read"], found["tokens"]) == (0, 28_009, 28_009)
    assert found["text"] == passage[found["start"] : found["end"]]
    code, out, err = larvatus("predict", answerer, QUESTION, "--pair", passage, "--truncate", "--json")
    assert (code, json.loads(out)["windows"], "leave out --truncate" in err) == (0, 1, True)
    row = {"id": "1", "question": QUESTION, "context": passage, "answers": [{"text": "river", "answer_start": 100_009}]}
    data = made.write_rows(tmp_path / "long.jsonl", [row] * 2)
    found = json.loads(larvatus("evaluate", answerer, "--data", data, "--json", "--samples", 20)[1])
    assert found["read"]["tokens_read"] == found["read"]["tokens"] == 56_018
    command = ("--train", data, "--no-dev", "--out", tmp_path / "out", *QUICK, "--epochs", 1, "--set", "empty.most=2")
    code, out, err = finetune("answer", *command)
    assert (code, err) == (0, "")
    assert '"A question?" --pair "A passage that answers it."' in out


def test_what_does_not_go_together_is_one_line(larvatus: Call, answerer: Path, doubter: Path, tmp_path: Path) -> None:
    dev = answerer.parent / "dev.json"
    twice = json.loads(dev.read_text())
    twice["data"].append(twice["data"][0])
    (tmp_path / "twice.json").write_text(json.dumps(twice))
    evaluate, predict = ("evaluate", answerer, "--data"), ("predict", answerer)
    for words, code, says in (
        ((*evaluate, dev, "--plot", tmp_path / "a.png"), 2, "no confusion matrix"),
        ((*evaluate, dev, "--label", "answers"), 2, "questions are read from SQuAD's JSON"),
        ((*evaluate, dev, "--predictions", tmp_path / "no" / "p.json"), 2, "is no directory to write p.json in"),
        (("evaluate", answerer, "--predictions", tmp_path / "p.json"), 2, "--data FILE"),
        ((*predict, QUESTION), 4, "text 1 is one text; the model answers a question from a passage: give both"),
        ((*predict, QUESTION, "--pair", " "), 4, "is empty"),
        ((*predict, "river ? " * 30, "--pair", PASSAGE), 4, "the question has 60 tokens"),
        ((*predict, QUESTION, "--pair", PASSAGE, "--probabilities"), 2, "--probabilities is for classifiers"),
    ):
        found, _, err = larvatus(*words)
        assert (found, says in err) == (code, True), err
        assert err.count("\n") == 0
    code, out, _ = larvatus(*evaluate, tmp_path / "twice.json", "--samples", 20, "--predictions", tmp_path / "p.json")
    assert (code, "40 ids are given to more than one question" in " ".join(out.split())) == (0, True)
    predictions = read_predictions(str(tmp_path / "p.json"))
    assert len(predictions) == 80
    assert all(predictions[f"q{n}"] == predictions[f"q{n}#2"] for n in range(40))
