"""Probe: a small file is read as `larvatus probe` reads it, probed in a process, and its report is kept and shown."""

from __future__ import annotations

import json
import time

import pytest

import larvatus as lv
from larvatus.core.errors import DataError, UsageError
from larvatus.evaluation.probing.results import ProbeReport
from larvatus.interfaces.studio.learn import Learner
from larvatus.interfaces.studio.probe_process import probe
from larvatus.interfaces.studio.probing import REPORT, ProbeChoices, ProbeJob, begin_probe, make_prober
from larvatus.interfaces.studio.settings import Folders
from tests.patience import WATCHDOG_S

CONLL = "".join(
    f"the\tDET\nriver\tNOUN\nwas\tVERB\n{word}\tADJ\n\na\tDET\nbank\tNOUN\nturn\tVERB\nin\tADP\n{'and' * n}\tCONJ\n\n"
    for n, word in enumerate(["wide", "deep", "wideing", "unrun", "in", "of", "your"], start=1)
)
JOB = {"task": "tag", "limit": 12}


@pytest.fixture(scope="module")
def report(tmp_path_factory, studio):
    """A report that the process has written, its job, and the events that it sent."""
    folder = tmp_path_factory.mktemp("probed")
    (folder / "words.conll").write_text(CONLL)
    model = str(studio.shelf.models["tiny"])
    job = ProbeJob(model=model, train=str(folder / "words.conll"), out=str(folder), device="cpu", **JOB)
    events: list[dict] = []
    probe(job, lambda **values: events.append(values))
    return (folder / REPORT).read_text(), job, events


def test_the_process_writes_the_report_of_python_and_tells_how_far_it_is(report):
    text, job, events = report
    settings = {"task": "tag", "limit": 12, "probe": "linear", "description_length": False}
    wanted = lv.probe(job.model, job.train, **settings).to_dict()
    assert json.loads(text) == {**wanted, "data": "words.conll"}  # without the folder
    assert (events[-1]["step"] if "step" in events[-1] else events[-2]["step"]) == 2 * 12
    assert any("random weights" in event.get("said", "") for event in events)
    assert {"control", "random", "selectivity"} <= set(wanted["layers"][0])


def test_a_stored_report_is_the_report_again(report):
    text = report[0]
    read = ProbeReport.from_json(text)
    assert read.to_dict() == json.loads(text)
    assert str(read).startswith("tag: ")


def test_saved_reports_are_listed_and_shown_with_numbers_and_picture(studio, report):
    folder = studio.runs / "studio-probes" / "words"
    folder.mkdir(parents=True)
    (folder / REPORT).write_text(report[0])
    assert studio.get("/probe").json()["saved"] == ["words"]
    for answer in (
        studio.get("/probe/report", name="words"),
        studio.post("/probe/show", {"name": "mine.json", "text": report[0]}),
    ):
        shown = answer.json()
        assert shown["report"] == json.loads(report[0])
        tag, _, (style, picture) = shown["picture"]
        assert (tag, style[0]) == ("div", "style")
        drawn = json.dumps(picture)
        assert all(word in drawn for word in ("polyline", "control task", "random weights", "majority"))


@pytest.mark.parametrize("name", ["", "..", "../studio/x", "words/..", "nothing", "a" * 200, "wor\0ds"])
def test_a_name_of_no_report_leads_nowhere(studio, name):
    assert studio.get("/probe/report", name=name).status_code == 404


def test_what_is_no_report_is_refused_in_a_line(studio, report):
    whole = json.loads(report[0])
    first = whole["layers"][0]
    wrong = [
        [],
        {},
        {**whole, "layers": []},
        {**whole, "metric": "uuas"},
        {**whole, "layers": [{**first, "accuracy": 7.0}]},
        {**whole, "layers": [{**first, "accuracy": None}]},
        {**whole, "layers": [{**first, "probe": "forest"}]},
        {**whole, "layers": [{**first, "layer": -1}]},
        {**whole, "layers": [{"layer": 1, "probe": "mlp"}]},
        {**whole, "baselines": {"majority": {"value": 1e9, "low": 0, "high": 0}}},
    ]
    for each in wrong:
        answer = studio.post("/probe/show", {"name": "mine.json", "text": json.dumps(each)})
        assert answer.status_code == 422, each
        assert "no output of larvatus probe --json" in answer.json()["error"]["message"]
    for text in ("{", "[" * 5_000, "\ud800"):
        with pytest.raises(DataError, match="no output of larvatus probe --json"):
            ProbeReport.from_json(text)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"name": "a.conll", "text": "the\tDET\n\n" * 20}, "all texts are equal"),
        ({"name": "a.conll", "text": "".join(f"{n}\tNUM\n\n" for n in range(20))}, "a probe needs two labels"),
        ({"name": "a.conll", "text": CONLL[:60]}, "too few to probe"),
        ({"name": "a.conll", "text": CONLL, "tag": "Tense"}, "Tense"),
        ({"name": "a.conll", "text": CONLL, "task": "trees"}, "there is no probe 'trees'"),
        ({"name": "a.conll", "text": " "}, "empty"),
        ({"name": "a.exe", "text": CONLL}, "a.exe"),
        ({"name": "a.conll", "text": CONLL, "limit": 2_001}, "limit"),
        ({"name": "a.conll", "text": CONLL, "probe": "forest"}, "forest"),
    ],
)
def test_a_file_that_cannot_be_probed_is_one_line_and_is_not_kept(studio, body, words):
    answer = studio.post("/probe/start", body)
    assert answer.status_code == 422
    message = answer.json()["error"]["message"]
    assert words in message
    assert str(studio.runs) not in message
    assert not (studio.runs / "studio-probes" / "a").exists()


def test_probing_needs_the_token(studio):
    assert studio.client.post("/studio/api/probe/start", json={"text": CONLL}).status_code == 403


def test_one_probe_at_a_time_each_in_a_folder_of_its_own(studio, tmp_path):
    folders = Folders(runs=tmp_path)
    script = "import sys; sys.stdin.readline(); sys.stdin.read(); sys.exit(1)"
    prober = Learner(folders.probes, lambda directory: "", command=["python3", "-S", "-c", script])
    given = ProbeChoices(name="My words.conll", text=CONLL, limit=12)
    try:
        started = begin_probe(prober, studio.shelf.models["tiny"], given)
        assert (started["name"], started["task"], started["busy"]) == ("my-words", "tag", True)
        with pytest.raises(Exception, match="my-words is being trained"):
            begin_probe(prober, studio.shelf.models["tiny"], given)
        assert [path.name for path in (tmp_path / "studio-probes").iterdir()] == ["my-words"]
        prober.stop()
        end = time.monotonic() + WATCHDOG_S
        while (state := prober.state())["busy"]:
            assert time.monotonic() < end, state
            time.sleep(0.01)
        assert state["phase"] == "stopped"
        assert begin_probe(prober, studio.shelf.models["tiny"], given)["name"] == "my-words-2"
    finally:
        prober.close()
    with pytest.raises(UsageError, match="no training is running"):
        prober.stop()


@pytest.mark.proof
def test_a_probe_runs_in_a_process_from_file_to_report(studio):
    started = studio.post("/probe/start", {"name": "rivers.conll", "text": CONLL, "limit": 12})
    assert started.status_code == 202
    end = time.monotonic() + WATCHDOG_S
    while (state := studio.get("/probe").json())["busy"]:
        assert time.monotonic() < end, state
        time.sleep(0.1)
    assert (state["phase"], state["model"], state["step"]) == ("ready", "rivers", state["steps"]), state
    assert studio.get("/probe/report", name="rivers").json()["report"]["data"] == "rivers.conll"


def test_the_prober_starts_the_probing_process(tmp_path):
    prober = make_prober(Folders(runs=tmp_path), "cpu")
    assert prober.folders.models == prober.folders.examples == tmp_path / "studio-probes"
    assert prober._command[-1] == "larvatus.interfaces.studio.probe_process"
