"""Learn: a small file is recognised by the readers of fine-tuning, trained on in a process, and the model is served."""

from __future__ import annotations

import sys
import time

import msgspec
import pytest

import larvatus as lv
from larvatus.core.errors import DataError, UsageError
from larvatus.interfaces.studio.http import json_reply
from larvatus.interfaces.studio.learn import Busy, Learner, Pace
from larvatus.interfaces.studio.learn_process import compare, train
from larvatus.interfaces.studio.learn_request import LearnJob, LearnOptions
from larvatus.interfaces.studio.run_metrics import read_records
from larvatus.interfaces.studio.settings import Folders
from larvatus.tasks.candidates import search as searching
from larvatus.tasks.candidates.search import CandidateSearch
from tests.patience import WATCHDOG_S

ROWS = [
    ("the river was wide", "wet"),
    ("the bank was deep", "wet"),
    ("turn your homework in", "dry"),
    ("please run", "dry"),
]
CSV = "text,label\n" + "".join(f"{text} {'and ' * n}.,{label}\n" for n in range(6) for text, label in ROWS)
CONLL = "".join("the O\nriver B-PLACE\nbank I-PLACE\nwas O\nwide O\n\nplease O\nrun O\n\n" for _ in range(6))


def wait(studio, *phases, seconds=WATCHDOG_S):
    end = time.monotonic() + seconds
    while (state := studio.get("/learn").json())["phase"] not in phases:
        assert time.monotonic() < end, state
        time.sleep(0.05)
    return state


def test_a_table_is_recognised_with_its_columns_labels_and_counts(studio):
    seen = studio.post("/learn/check", {"name": "C:\\My files\\Rivers (1).csv", "text": CSV}).json()
    assert (seen["task"], seen["guessed"], seen["may_learn"]) == ("classify", True, True)
    assert seen["sizes"] == {"train": 24}
    assert seen["balance"]["train"] == {"dry": 12, "wet": 12}
    assert seen["read"].startswith("rivers-1.csv: 24 examples")
    assert seen["examples"][0] == {"reads": "the river was wide .", "answer": "wet"}


def test_columns_of_words_are_recognised_wherever_they_come_from(studio):
    for name in ("ner.conll", "pasted.txt"):
        seen = studio.post("/learn/check", {"name": name, "text": CONLL}).json()
        assert (seen["task"], seen["kind"]) == ("tag", "BIO")
        assert seen["balance"]["train"] == {"PLACE": 6}
    assert studio.post("/learn/check", {"name": "ner.conll", "text": CONLL, "task": "spans"}).json()["task"] == "spans"


def test_what_would_stop_training_is_said_with_its_line_and_stops_it(studio):
    body = {"name": "bad.csv", "text": "text,label\ngood,a\nbad,a\nfine,a,b\n"}
    seen = studio.post("/learn/check", body).json()
    assert not seen["may_learn"]
    assert [error["name"] for error in seen["errors"]] == ["wrong number of columns", "one class only"]
    assert seen["errors"][0]["examples"] == ["bad.csv:4: 3 columns, but the first row has 2"]
    refused = studio.post("/learn/start", body)
    assert refused.status_code == 422
    assert "bad.csv:4" in refused.json()["error"]["message"]
    assert not (studio.runs / "studio-examples" / "bad").exists()  # nothing of it is kept


def test_rows_without_text_or_label_are_skipped_on_request(studio):
    text = CSV + ",wet\nthe deep river,\n"
    body = {"name": "holes.csv", "text": text}
    seen = studio.post("/learn/check", body).json()
    assert (seen["may_learn"], seen["unusable"]) == (False, 2)
    listed = {kind["name"]: (kind["count"], kind["places"]) for kind in seen["unusable_rows"]}
    assert listed["empty text"] == (1, ["holes.csv:26: text is empty; drop the row, or give it a text"])
    assert [places[0].partition(": ")[0] for _, places in listed.values()] == ["holes.csv:26", "holes.csv:27"]
    assert studio.post("/learn/start", body).status_code == 422
    seen = studio.post("/learn/check", {**body, "errors": "skip"}).json()
    assert (seen["may_learn"], seen["unusable"], seen["sizes"]) == (True, 2, {"train": 24})
    assert {kind["name"] for kind in seen["unusable_rows"]} == set(listed)  # they are listed when they are skipped, too
    assert {each["name"]: each["message"] for each in seen["warnings"]}["empty text"] == "1 row skipped"
    assert studio.post("/learn/check", {**body, "errors": "ignore"}).status_code == 422


def test_several_ways_are_compared_where_they_can_be(studio):
    """By default of few single texts with one class each; of many on request; of nothing else."""

    def ways(text, name="a.csv", **more):
        seen = studio.post("/learn/check", {"name": name, "text": text, **more}).json()
        return seen["searchable"], seen["trained"]

    many = "text,label\n" + "".join(f"text {n},{'ab'[n % 2]}\n" for n in range(1_001))
    pairs = "sentence1,sentence2,label\n" + "".join(f"text {n},other {n},{'ab'[n % 2]}\n" for n in range(20))
    assert ways(CSV) == (True, "auto")
    assert ways(many) == (True, "all")
    assert ways(pairs) == ways(CONLL, "ner.conll") == (False, "all")


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"trained": "auto", "epochs": 3}, "leave epochs out"),
        ({"trained": "auto", "rate": 0.1}, "leave rate out"),
        ({"minutes": 2.0}, "choose trained = auto"),
        ({"trained": "auto", "minutes": 0}, "minutes"),
    ],
)
def test_options_of_a_comparison_are_its_own(studio, choices, words):
    answer = studio.post("/learn/start", {"text": CSV, "name": "a.csv", "choices": choices})
    assert answer.status_code == 422
    assert words in answer.json()["error"]["message"]


def test_what_cannot_be_compared_is_refused_before_it_is_trained(studio):
    answer = studio.post("/learn/start", {"text": CONLL, "name": "ner.conll", "choices": {"trained": "auto"}})
    assert answer.status_code == 422
    assert "choose what is trained" in answer.json()["error"]["message"]
    assert not (studio.runs / "studio-examples" / "ner").exists()


def test_a_comparison_that_fails_leaves_the_model(order, monkeypatch):
    def fail(*_):
        raise MemoryError("too many words")

    monkeypatch.setattr("larvatus.interfaces.studio.learn_process.bag_of_words", fail)
    assert events_of(order)[-1] == {"said": "not compared with a bag of words: MemoryError: too many words"}


def test_training_skips_what_was_to_be_skipped(order, tmp_path):
    (tmp_path / "rivers.csv").write_text(CSV + ",wet\nthe deep river,\n")
    with pytest.raises(DataError, match="2 rows cannot be used"):
        train(order, lambda **values: None)
    train(msgspec.structs.replace(order, errors="skip"), lambda **values: None)
    assert (tmp_path / "out" / "README.md").is_file()


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"text": ""}, 422, "the file is empty"),
        ({"text": "a,b\n", "name": "model.parquet"}, 422, "model.parquet"),
        ({"text": "a,b\n", "name": "/etc/passwd"}, 422, "'passwd' cannot be used here"),
        ({"text": CSV, "name": "a.csv", "task": "write"}, 422, "cannot be trained here"),
        ({"text": 3}, 422, "str"),
        ({"text": CSV, "unknown": 1}, 422, "unknown"),
        ({"text": "x" * 2_000_001}, 422, "2,000,001 bytes are too many"),
    ],
)
def test_what_cannot_be_read_is_one_line(studio, body, status, words):
    answer = studio.post("/learn/check", body)
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]


def test_a_body_that_is_no_json_or_too_large_is_refused(studio):
    url = "/studio/api/learn/check"
    assert studio.client.post(url, content=b'{"text": NaN}', headers=studio.token).status_code == 400
    assert studio.client.post(url, content=b"\xff", headers=studio.token).status_code == 400
    assert studio.client.post(url, content=b"[" * 100_000, headers=studio.token).status_code in (400, 422)
    assert studio.client.post(url, content=b"x" * 4_100_000, headers=studio.token).status_code == 413
    for choices in ({"epochs": 0}, {"rate": -1}, {"trained": "half"}, {"device": "cuda"}):
        assert studio.post("/learn/start", {"text": CSV, "name": "a.csv", "choices": choices}).status_code == 422


@pytest.fixture
def order(studio, tmp_path):
    (tmp_path / "rivers.csv").write_text(CSV)
    return LearnJob(
        task="classify",
        model=str(studio.shelf.models["tiny"]),
        train=str(tmp_path / "rivers.csv"),
        out=str(tmp_path / "out"),
        choices=LearnOptions(epochs=2, rate=0.01, batch=4),
        device="cpu",
    )


def test_training_tells_its_steps_scores_and_words_and_writes_a_curve(order, tmp_path):
    events: list[dict] = []
    train(order, lambda **values: events.append(values))
    assert any("24 examples" in line or "held out" in line for line in (each.get("said", "") for each in events))
    steps = [each["step"] for each in events if "step" in each]
    assert steps
    last = next(each for each in reversed(events) if "figures" in each)
    assert last["metric"] in last["figures"]
    records = read_records(tmp_path / "out").records
    assert [record["step"] for record in records if record["kind"] == "train"] == steps
    assert all("validation_loss" in record for record in records if record["kind"] == "valid")
    assert lv.load(tmp_path / "out", device="cpu")("the river was deep").label in ("wet", "dry")


def events_of(job):
    """All events of a job."""
    events: list[dict] = []
    compare(job, train(job, lambda **values: events.append(values)), lambda **values: events.append(values))
    return events


def test_a_classifier_is_compared_with_a_bag_of_words_on_what_was_held_out(order):
    events = events_of(order)
    assert [each["stage"] for each in events if "stage" in each][0::100] == ["reading"]
    assert events[-2] == {"stage": "comparing"}
    compared = events[-1]["comparison"]
    assert (compared["texts"], compared["metric"]) == (2, "accuracy")  # a tenth of 24
    assert compared["outcome"] in ("model", "baseline", "unclear")
    assert "bag of words" in compared["verdict"]


def test_a_comparison_of_several_ways_tells_its_candidates(order, monkeypatch):
    monkeypatch.setattr(searching, "STEP_COST", {"all": 1e15, "last2": 1e15})  # on any machine too much
    monkeypatch.setattr(CandidateSearch, "left", 1e9)
    events = events_of(msgspec.structs.replace(order, choices=LearnOptions(trained="auto")))
    assert events[0] == {"stage": "searching"}
    listed = next(each for each in events if "candidates" in each)
    assert {"linear head", "TF-IDF, logistic regression"} <= {each["name"] for each in listed["candidates"]}
    assert listed["chosen"] in {each["name"] for each in listed["candidates"]}
    assert [line.partition(":")[0] for line in listed["not_tried"]] == ["fine-tuned", "fine-tuned"]
    assert events[-1]["comparison"]["texts"] == 24


def test_taggers_and_large_files_are_not_compared(order, tmp_path, monkeypatch):
    (tmp_path / "ner.conll").write_text(CONLL)
    tags = msgspec.structs.replace(order, task="tag", train=str(tmp_path / "ner.conll"), out=str(tmp_path / "tags"))
    assert not any("comparison" in each for each in events_of(tags))
    monkeypatch.setattr("larvatus.interfaces.studio.learn_process.MOST", 23)
    events = events_of(order)
    assert events[-1] == {"said": "a bag of words is compared on up to 23 examples, and here are 24"}


def test_a_resumed_training_is_timed_from_where_it_resumed():
    pace = Pace()
    assert pace.left(100) is None
    pace.step(60, at=5.0)
    assert pace.left(100) is None
    pace.step(80, at=9.0)
    assert (pace.left(100), pace.left(80), pace.left(None)) == (4.0, 0.0, None)


def follow(learner, *phases, seconds=WATCHDOG_S):
    end = time.monotonic() + seconds
    while (state := learner.state())["phase"] not in phases:
        assert time.monotonic() < end, state
        time.sleep(0.01)
    return state


CHILDREN = {
    "done": 'print(\'{"said": "head: 2 classes"}\\n{"step": 3, "loss": NaN}\\n{"done": true}\')',
    "stopped": 'sys.stdin.read(); print(\'{"error": "saved", "stopped": true}\'); sys.exit(75)',
    "failed": 'print(\'{"error": "a smaller --rate", "stopped": false}\'); sys.exit(6)',
    "killed": "os.kill(os.getpid(), 9)",
}


@pytest.fixture
def taught(order, tmp_path):
    """A learner whose process says what it is events to say: no torch is started."""
    learners = []

    def make(what, publish=lambda directory: f"{directory.name} served"):
        script = f"import os, sys; sys.stdin.readline(); {CHILDREN[what]}"
        learner = Learner(Folders(runs=tmp_path / "runs"), publish, command=[sys.executable, "-S", "-c", script])
        learner.keep_file("rivers", "rivers.csv", CSV)
        learner.start(order, name="rivers")
        learners.append(learner)
        return learner

    yield make
    for learner in learners:
        learner.close()


def test_what_was_learnt_is_served_when_the_process_has_ended_well(taught):
    state = follow(taught("done"), "ready", "failed")
    assert (state["phase"], state["model"], state["lines"], state["step"]) == (
        "ready", "out served", ["head: 2 classes"], 3,
    )  # fmt: skip
    assert b"null" in json_reply(state).body  # a loss that is no number
    assert not state["busy"]


def test_a_model_that_cannot_be_loaded_is_said_to_be_saved(taught):
    def refuse(directory):
        raise UsageError("no memory")

    state = follow(taught("done", refuse), "ready", "failed")
    assert (state["phase"], state["error"]) == ("failed", "the model is saved, but cannot be served: no memory")


def test_one_at_a_time_and_stopping_saves(taught, order):
    learner = taught("stopped")
    with pytest.raises(Busy, match="rivers is being trained"):
        learner.start(order, name="other")
    assert learner.stop()["phase"] == "stopping"
    state = follow(learner, "stopped", "failed")
    assert (state["phase"], state["resumable"]) == ("stopped", True)
    with pytest.raises(UsageError, match="no training is running"):
        learner.stop()
    assert learner.resume()["phase"] == "training"


@pytest.mark.parametrize(("what", "words"), [("failed", "a smaller --rate"), ("killed", "ended with code -9")])
def test_a_process_that_fails_says_why(taught, what, words):
    state = follow(taught(what), "ready", "failed", "stopped")
    assert state["phase"] == "failed"
    assert words in state["error"]


def test_the_studio_takes_its_training_with_it(taught):
    learner = taught("stopped")
    process = learner._process
    learner.close()
    assert process.poll() == 75


@pytest.mark.proof
def test_a_file_is_learnt_followed_and_served_and_a_second_can_be_stopped(studio):
    """With processes of their own; seconds of each are the start of Python."""
    body = {"name": "Rivers.csv", "text": CSV, "model": "tiny", "choices": {"epochs": 2, "rate": 0.01}}
    begun = studio.post("/learn/start", body)
    assert begun.status_code == 202
    busy = studio.post("/learn/start", body)
    assert (busy.status_code, busy.json()["error"]["type"]) == (409, "Busy")
    done = wait(studio, "ready", "failed")
    assert (done["phase"], done["model"], done["task"], done["error"]) == ("ready", "rivers", "classify", "")
    assert done["step"] == 2
    assert done["metric"] in done["figures"]
    records = studio.get("/learn/records").json()["records"]
    assert {record["kind"] for record in records} == {"train", "valid"}
    assert all("validation_loss" in record for record in records if record["kind"] == "valid")
    learnt = studio.shelf.models["rivers"]
    assert lv.load(learnt, device="cpu")("the river was deep").label in ("wet", "dry")
    assert (studio.runs / "studio-examples" / "rivers" / "rivers.csv").read_text() == CSV
    assert "studio/rivers" in [run["name"] for run in studio.get("/runs").json()["runs"]]

    again = studio.post("/learn/start", {**body, "choices": {"epochs": 15, "batch": 1}}).json()
    assert again["name"] == "rivers-2"  # the first is not touched
    while not studio.get("/learn").json().get("step"):
        time.sleep(0.05)
    assert studio.post("/learn/stop").json()["phase"] == "stopping"
    stopped = wait(studio, "stopped", "failed")
    assert (stopped["phase"], stopped["resumable"], stopped["error"]) == ("stopped", True, "")
    assert "rivers-2" not in studio.shelf.models
    assert studio.post("/learn/stop").status_code == 422
    assert studio.post("/learn/resume").json()["phase"] == "training"
    resumed = wait(studio, "ready", "failed")
    assert (resumed["phase"], resumed["model"], resumed["error"]) == ("ready", "rivers-2", "")
    assert resumed["step"] > stopped["step"]
