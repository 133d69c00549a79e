"""Commands as a user gives them, in this process or in their own."""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import made_up as labelled
from tests import warm
from tests.faults import begun
from tests.faults.forked import Forked
from tests.patience import WATCHDOG_S
from tests.shared import SMALL

ROOT = Path(__file__).parents[2]
TEXT = "The river ran past the bank of the town.\n\nThe bank lent money.\n"
SETTINGS = [word for setting in SMALL for word in ("--set", setting)]


@pytest.fixture
def larvatus(run_command):
    """Run a command in this process: its exit code and the one line it complained with."""

    def call(*arguments):
        code, _, said = run_command(*arguments)
        assert "\n" not in said, said
        assert code != 70, said  # unforeseen; most such faults pass through `run` as themselves
        return code, said

    return call


@dataclass(frozen=True)
class Started:
    """What became of a command in a process of its own."""

    code: int
    out: str
    err: str
    folder: Path


@pytest.fixture(scope="session")
def started(tmp_path_factory):
    """Run commands in processes of their own (see `started.py`): started({"words": [...], "stdout": "closed"}, …).

    A case may also say stdin, stderr ("gone": a pipe without reader; "closed"; or a path), environment, encoding,
    limits, folder and full_end: the interpreter ends as Python's does, which takes half a second.
    """

    def call(*cases):
        for case in cases:
            case.setdefault("folder", str(tmp_path_factory.mktemp("started")))
            case["words"] = [str(word) for word in case["words"]]
        results = tmp_path_factory.mktemp("results") / "codes.json"
        done = warm.run(
            [sys.executable, "-m", "tests.faults.started", str(results)],
            cwd=ROOT,
            input=json.dumps(cases),
            capture_output=True,
            text=True,
            timeout=WATCHDOG_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = []
        for case, code in zip(cases, json.loads(results.read_text()), strict=True):
            folder = Path(case["folder"])
            said = [folder / f"{name}.txt" for name in ("stdout", "stderr")]
            out, err = (path.read_bytes().decode("latin-1") if path.exists() else "" for path in said)
            found.append(Started(code, out, err, folder))
        return found

    return call


@pytest.fixture
def pretrain(larvatus, tmp_path):
    def call(corpus, *more, steps=2):
        return larvatus(
            *("pretrain", "bert", *SETTINGS, "--corpus", corpus, "--out", tmp_path / "run", "--steps", steps), *more
        )

    return call


@pytest.fixture(scope="session")
def forked():
    """Run a command in a process of its own, which is killed where it hangs (`forked.py`)."""
    with Forked() as run_command:
        yield run_command


@pytest.fixture
def call(capsys, run_command):
    """The same with more to look at: exit code, output, complaint."""

    def made(*arguments):
        capsys.readouterr()
        return run_command(*arguments)

    return made


@pytest.fixture
def begin(call, tmp_path, monkeypatch, save_tiny, tiny_model):
    """Begin a run of a kind and interrupt it: begin("embed")."""
    begun.SAVE["tiny"] = (save_tiny, tiny_model)
    return lambda kind, **options: begun.RUNS[kind](tmp_path, call, monkeypatch, **options)


@pytest.fixture(scope="module")
def good(tiny_model, save_tiny, tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("good") / "m", tiny_model())


@pytest.fixture
def model(good, tmp_path, monkeypatch):
    """A model of one's own to spoil, with text and labelled examples beside it; the working directory is there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text(TEXT * 40)
    labelled.classes(tmp_path / "train.jsonl")
    return Path(shutil.copytree(good, tmp_path / "m"))


@pytest.fixture
def unvouched(model):
    """The same without a manifest, as from elsewhere."""
    (model / "larvatus.json").unlink()
    return model
