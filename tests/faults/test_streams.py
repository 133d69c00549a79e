"""Standard streams that fail (row 68): work that saves continues and is saved; only printing ends."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from larvatus.interfaces.cli.main import ALWAYS_SAVING, app, saves
from larvatus.tasks.registry import TASKS
from tests import warm
from tests.patience import WATCHDOG_S, waiting
from tests.shared import SMALL

SETTINGS = [word for setting in SMALL for word in ("--set", setting)]
TEXT = "The river ran past the bank of the town. Number {} was seen there. Nobody knew why the boat lay there.\n\n"

OUTPUTS = {
    "demo": "out",
    "tutorial": "out",
    "pretrain": "out",
    "embed": "out",
    "convert": "out",
    "card": "add",
    "export onnx": "out",
    "compare": "out",
    "ablate": "out",
    "bench": "plot",
    "evaluate": "plot predictions out",
    "score": "out",
    "fill": "out",
    "generate": "out",
    "similar words": "out",
    "search ask": "out",
    "search build": "out",
    "distil static": "out",
    "senses tag": "out",
    "map": "out png table",
    **dict.fromkeys((f"finetune {task}" for task in TASKS), "out"),
    "predict": "out",
    "prompt": "out",
    "probe": "out",
    "explain": "out",
    "lens show": "out",
    "lens train": "out",
    "similar layers": "",  # saves in the model's directory
    "studio export": "out",
    "tokenizer train": "out",
    "corpus build": "out",
    "corpus check": "out",
    "adapter add": "",
    "adapter extract": "out",
    "adapter merge": "out",
    "isotropy fit": "",  # saves in the model's directory where nothing is named
    "isotropy show": "plot",
    "similar index": "out",
    "attention show": "out png",
    "attention importance": "out",
    "patch": "html",
    "features train": "out",
    "features show": "html",
    "senses build": "out",
    "audit bias": "out",
    "audit leaks": "out",
    "audit split": "out",
    "audit toxicity": "out",
}
PRINTING = [
    *(
        "",
        "doctor",
        "plan",
        "recipes",
        "recipes show",
        "tokenizer",
        "tokenizer show",
        "corpus",
        "corpus show",
        "adapter",
        "export",
    ),
    *(
        "corpus contamination",
        "corpus verify",
        "isotropy",
        "search",
        "search evaluate",
        "distil",
        "similar",
        "similar evaluate",
        "attention",
        "knockout",
        "features",
        "lens",
        "senses",
    ),
    *("senses evaluate", "senses show", "data", "data check", "finetune", "audit", "serve", "studio", "studio open"),
]


def commands():
    found = {}

    def walk(command, path):
        found[path] = [parameter.name for parameter in command.params]
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{path} {name}".strip())

    walk(typer.main.get_command(app), "")
    return found


def test_68_every_command_is_known_to_save_or_to_print():
    """A new command must be put in one of the two lists, and continues without a reader if it saves."""
    found = commands()
    assert sorted(found) == sorted([*OUTPUTS, *PRINTING])
    for path, parameters in found.items():
        for name in parameters:
            assert saves(path, {name: "x"}) == (name in OUTPUTS.get(path, "").split() or path in ALWAYS_SAVING), path
        assert saves(path, dict.fromkeys(parameters)) == (path in ALWAYS_SAVING), path


FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.is_char_device(), reason="no /dev/full here")

LIGHT = """
import sys
from larvatus.interfaces.cli.crash_report import reporting_crashes
from larvatus.interfaces.cli.streams import ReaderGone, go_on_without_stdout, take_over
take_over()
with reporting_crashes():
    if sys.argv[1] == "saves":
        go_on_without_stdout()
    try:
        with open(sys.argv[2], "w") as file:
            for number in range(20_000):
                print("a line that goes into no file")
            sys.stdout.flush()
            print("and one of error", file=sys.stderr)
            file.write("saved")
    except ReaderGone:
        pass
"""
GONE = "larvatus: standard output is gone ({}); the command continues without it\nand one of error\n"
LOST = "larvatus: {}\n"


@pytest.mark.parametrize(
    ("how", "saving", "code", "said"),
    [
        ("| head -1", True, 0, GONE.format("Broken pipe")),
        (">/dev/full", True, 0, GONE.format("No space left on device")),
        (">&-", True, 0, GONE.format("it is closed")),
        ("<&- >&- 2>&-", True, 0, ""),
        (">/dev/full 2>/dev/full", True, 0, ""),
        ("| head -1", False, 0, ""),
        (">/dev/full", False, 70, "standard output cannot be written (No space left on device)"),
        (">&-", False, 70, "standard output cannot be written (it is closed)"),
        (">&- 2>&-", False, 70, ""),
        ("2>&- >/dev/null", False, 0, ""),
        ("2>/dev/full >/dev/null", False, 0, ""),
    ],
    ids=[
        *("pipe, saves", "full, saves", "closed, saves", "all closed, saves", "both full, saves"),
        *("pipe, prints", "full, prints", "closed, prints", "both closed, prints", "no error, prints"),
        "full error, prints",
    ],
)
def test_68_streams_in_any_state(how, saving, code, said, tmp_path):
    """The streams alone, without the seconds of imports (so what ends in one line is here unforeseen: 70)."""
    if "full" in how and not FULL.is_char_device():
        pytest.skip("no /dev/full here")
    shell = f'"$0" -c "$1" "$2" "$3" {how}; exit ${{PIPESTATUS[0]}}'
    words = ["bash", "-c", shell, sys.executable, LIGHT, "saves" if saving else "prints", "result"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=WATCHDOG_S, cwd=tmp_path, check=False)
    assert done.returncode == code, done.stderr
    assert (done.stderr == said) if saving or not said else (said in done.stderr and done.stderr.count("\n") == 1)
    saved = (tmp_path / "result").read_text()
    assert saved == ("saved" if saving or (code == 0 and "head" not in how) else "")


def test_68_a_stream_that_does_not_wait_is_waited_for(tmp_path):
    """A program that shares our output may have set it so; then a full pipe is no fault."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    words = [sys.executable, "-c", LIGHT, "prints", str(tmp_path / "result")]
    with subprocess.Popen(words, stdout=writing, stderr=subprocess.PIPE, cwd=tmp_path) as process:
        os.close(writing)
        while waiting(reading) < 60_000 and process.poll() is None:  # until it is full
            time.sleep(0.01)
        time.sleep(0.1)
        with os.fdopen(reading, "rb") as pipe:
            assert pipe.read().count(b"\n") == 20_000
    assert process.returncode == 0


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "text.txt").write_text("".join(TEXT.format(number) for number in range(200)))
    rows = [f"the river {number},{'wet' if number % 2 else 'dry'}\n" for number in range(40)]
    (folder / "train.csv").write_text("text,label\n" + "".join(rows))
    return folder


def pretrain(texts, steps):
    corpus = ["--corpus", texts / "text.txt", "--set", "tokenizer.size=80", "--out", "run", "--steps", steps]
    return ["pretrain", "bert", *SETTINGS, *corpus]


def test_68_training_whose_reader_goes_is_saved(texts, tmp_path):
    """`larvatus pretrain … | head -1`, as a shell starts both."""
    words = [sys.executable, "-m", "larvatus", *map(str, pretrain(texts, 3))]
    full = {**os.environ, warm.FULL_END: "1"}
    with (
        subprocess.Popen(["head", "-1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as head,
        warm.Popen(words, stdout=head.stdin, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=full) as process,
    ):
        assert head.stdin is not None
        head.stdin.close()
        _, said = process.communicate(timeout=WATCHDOG_S)
        assert head.stdout is not None
        shown = head.stdout.read()
    assert (process.returncode, said) == (0, GONE.format("Broken pipe").splitlines()[0] + "\n")
    assert shown.count("\n") == 1
    assert (tmp_path / "run" / "model.safetensors").exists()


@needs_full
def test_68_commands_that_save_do_so_without_any_stream(started, texts, tiny_model, save_tiny, tmp_path):
    """Descriptors that are closed are not those of the files that are written."""
    model = save_tiny(tmp_path / "model", tiny_model())
    tuned = tmp_path / "tuned"
    nowhere = {"stdin": "closed", "stdout": "closed", "stderr": "closed"}
    tune = ["finetune", "classify", "--model", model, "--train", texts / "train.csv", "--epochs", 1, "--out", tuned]
    predict = ["predict", tuned, "--file", texts / "train.csv", "--text", "text", "--out", "found.jsonl"]
    done = started(
        {"words": pretrain(texts, 3), **nowhere},
        {"words": tune, **nowhere},
        {"words": predict, **nowhere, "full_end": True},
        {"words": predict, "stdout": "/dev/full", "stderr": "/dev/full", "full_end": True},
        {"words": predict, "stdout": "gone", "stderr": "gone", "full_end": True},
        {"words": ["embed", texts / "text.txt", "--model", model, "--out", "v.npy"], "stdout": "/dev/full"},
        {"words": ["isotropy", "fit", "--model", model, "--corpus", texts / "text.txt"], "stdout": "gone"},
        {"words": ["convert", model, "other"], "stdout": "/dev/full", "full_end": True},
    )
    assert [one.code for one in done] == [0] * len(done), [one.err for one in done]
    assert json.loads((done[0].folder / "run" / "config.json").read_text())["hidden_size"] == 32
    assert (done[0].folder / "run" / "model.safetensors").exists()
    assert (tuned / "model.safetensors").exists()
    for one in done[2:5]:
        rows = [json.loads(line) for line in (one.folder / "found.jsonl").read_text().splitlines()]
        assert len(rows) == 40
    assert (done[5].folder / "v.npy").exists()
    assert list((model / "standardise").iterdir())
    assert (done[7].folder / "other" / "model.safetensors").exists()
    for one in done[5:]:
        assert one.err.count("standard output is gone") == 1


@needs_full
def test_68_what_only_prints_ends_when_nobody_reads(started, tiny_model, save_tiny, tmp_path):
    model = save_tiny(tmp_path / "model", tiny_model())
    fill = ["fill", "the [MASK] bank", "--model", model]
    done = started(
        {"words": ["recipes"], "stdout": "gone", "full_end": True},
        *({"words": words, "stdout": "gone"} for words in (["--version"], fill)),
        {"words": ["recipes"], "stdout": "/dev/full", "full_end": True},
        {"words": ["--help"], "stdout": "/dev/full"},
        {"words": [*fill, "--json"], "stdout": "closed", "full_end": True},
        {"words": ["fill", "-", "--model", model], "stdin": "closed"},
        {"words": ["recipes", "show", "brt"], "stdout": "closed", "stderr": "closed", "full_end": True},
        {"words": ["recipes", "show", "brt"], "stdout": "/dev/full"},
    )
    assert [(one.code, one.err) for one in done[:3]] == [(0, "")] * 3
    for one in done[3:6]:
        assert (one.code, one.err.count("\n")) == (5, 1), one.err
        assert "standard output cannot be written" in one.err
    assert done[6].err.count("\n") <= 1
    assert (done[7].code, done[7].err) == (3, "")
    assert (done[8].code, done[8].err) == (3, "larvatus: there is no recipe 'brt'; did you mean bert?\n")
