"""Row 84 of the list of faults: no error names a path of this machine or a temporary folder; odd names are no 500."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pytest

from larvatus.core.errors import ArtefactError
from larvatus.interfaces.serve.responses import error_body, without_paths
from larvatus.interfaces.studio.learn import Learner
from larvatus.interfaces.studio.learn_request import LearnJob
from larvatus.interfaces.studio.run_metrics import NoSuchRun, read_records, run_named
from larvatus.interfaces.studio.settings import Folders
from tests.patience import WATCHDOG_S

FILES = {
    "empty.csv": "\n\n",
    "header.csv": "text,label\n",
    "one.csv": "only one column\nof text\n",
    "quote.csv": 'text,label\n"open,a\n',
    "columns.tsv": "text\tlabel\na\tb\tc\td\n",
    "nul.csv": "text,label\n\0\0,a\n",
    "wrong.json": "{",
    "number.json": "3",
    "list.json": "[1, 2, 3]",
    "deep.json": "[" * 5_000,
    "lines.jsonl": '{"text": 3}\n{"label": "a"}\n',
    "digits.jsonl": '{"text": "a", "label": ' + "9" * 5_000 + "}\n",
    "broken.jsonl": '{"text": "a", "label": "b"\n',
    "squad.json": '{"data": [{"paragraphs": 3}]}',
    "tags.conll": "the\nriver\n",
    "tags2.conll": "the O\nriver B-X I-Y Z\n\n",
    "tree.conllu": "1\tthe\n2\triver\n",
    "plain.txt": "the river was wide",
    "sentence.txt": "The river was wide. It ran.\nIt ran on.\n",
}
TASKS = (None, "classify", "tag", "spans", "answer", "choose")


def leaks(text: str) -> list[str]:
    here = (tempfile.gettempdir(), str(Path.cwd()), str(Path.home()), sys.prefix, "larvatus-learn-", "site-packages")
    return [place for place in here if len(place) > 1 and place in text]


@pytest.mark.parametrize("name", FILES)
def test_84_checks_of_files_name_no_folder(studio, name):
    for task in TASKS:
        for route in ("/learn/check", "/learn/start") if task is None else ("/learn/check",):
            answer = studio.post(route, {"name": name, "text": FILES[name], "task": task})
            assert answer.status_code in (200, 422), (task, answer.text)
            assert not leaks(answer.text), (task, answer.text)
            assert "error" in answer.json() or not answer.json()["may_learn"], (name, task)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "/tmp", "x" * 300, "x" * 60_000, "a/" * 4 + "b", "\ud800", "\0", "..", ".", "%2e%2e"]
)
def test_84_names_of_runs_that_cannot_be_are_404_and_not_quoted(studio, name):
    with pytest.raises(NoSuchRun) as refused:
        run_named(studio.runs, name)
    assert name == "." or name not in str(refused.value)
    if name != "\ud800" and len(name) < 1_000:  # what an address can hold
        answer = studio.get("/runs/records", name=name)
        assert answer.status_code == 404
        assert not leaks(answer.text)


def test_84_numbers_of_hundreds_of_digits_in_metrics_are_left_out(studio):
    folder = studio.runs / "digits"
    folder.mkdir(parents=True)
    large = "9" * 400
    lines = [f'{{"step": 1, "loss": {large}, "rate": -{large}}}', f'{{"step": {large}}}', '{"step": 2, "loss": 1e300}']
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    answer = studio.get("/runs/records", name="digits")
    assert answer.status_code == 200
    assert answer.json()["records"] == [{"step": 1, "loss": None, "rate": None}, {"step": 2, "loss": 1e300}]
    assert answer.json()["broken"] == 1
    assert studio.get("/runs").json()["runs"][0]["step"] == 2
    assert json.loads(json.dumps(read_records(folder).records))


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        ("/tmp/a/b.csv: no such file", "b.csv: no such file"),
        ("cannot read '/usr/lib/x y'", "cannot read 'x y'"),
        ("see /v1/embed, http://127.0.0.1/tmp/a and a/tmp/b", "see /v1/embed, http://127.0.0.1/tmp/a and a/tmp/b"),
        ("two\nlines of /etc/hosts/", "two lines of hosts"),
    ],
)
def test_84_messages_name_files_without_their_folders(message, plain):
    assert without_paths(message) == plain
    assert error_body(ArtefactError(message))["error"]["message"] == plain
    assert len(without_paths("x" * 10_000)) == 2_000


def test_84_a_training_that_fails_names_no_folder(tmp_path):
    said = f'{{"error": "{tmp_path}/model.safetensors is cut off", "stopped": false}}'
    script = f"import sys; sys.stdin.readline(); print({said!r}); sys.exit(5)"
    learner = Learner(Folders(runs=tmp_path / "runs"), str, command=[sys.executable, "-S", "-c", script])
    learner.keep_file("rivers", "rivers.csv", "text,label\n")
    learner.start(LearnJob(task="classify", model="m", train="t", out=str(tmp_path / "out")), name="rivers")
    assert learner._thread is not None
    learner._thread.join(WATCHDOG_S)
    assert learner.state()["error"] == "model.safetensors is cut off"
    learner.close()
