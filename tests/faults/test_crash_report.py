"""What nobody foresaw (row 80), and what the machine refuses (row 78): one line, a code, and no traceback unasked."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import warm
from tests.patience import WATCHDOG_S
from tests.shared import SMALL

SETTINGS = [word for setting in SMALL for word in ("--set", setting)]

BROKEN = """
import sys, types
stub = types.ModuleType("larvatus.interfaces.cli.main")
class PanicException(BaseException): pass
def deep(n): return deep(n + 1)
def run():
    text = "my private words"
    exec(sys.argv.pop(1))
stub.run = run
sys.modules["larvatus.interfaces.cli.main"] = stub     # without the seconds of imports
from larvatus.__main__ import main
main()
"""


def broken(code, folder, *words, debug=False):
    """The program from its entry to its end, whose command does what `code` says."""
    words = [*(["--debug"] if debug else []), "fill", "my private words", "--model", "runs/mine", *words]
    command = [sys.executable, "-c", BROKEN, code, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=WATCHDOG_S, check=False)


@pytest.mark.parametrize(
    "code",
    [
        "{}[text]",
        "deep(0)",
        "raise PanicException('called `Option::unwrap()` on a `None` value')",
        "open('absent', encoding='utf-8')",
        "raise Exception",
    ],
    ids=["a bug", "recursion", "a panic", "a file", "no message"],
)
def test_80_anything_unforeseen_is_one_line_and_a_report(code, tmp_path):
    done = broken(code, tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (70, "", 1), done.stderr
    assert done.stderr.startswith("larvatus: this should not have happened (")
    (report,) = tmp_path.glob("larvatus-report-*.txt")
    assert str(report) in done.stderr
    said = report.read_text()
    assert "larvatus 0." in said
    assert "torch 2." in said
    assert "command: larvatus fill <16 characters> --model <9 characters>" in said
    assert "exec(sys.argv.pop(1))" in said or 'File "<string>"' in said  # the frames
    assert "my private words" not in said


def test_80_debug_shows_the_traceback_instead(tmp_path):
    done = broken("{}[text]", tmp_path, debug=True)
    assert done.returncode == 70
    assert "Traceback (most recent call last)" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("larvatus: this should not have happened (KeyError")
    assert not list(tmp_path.glob("larvatus-report-*"))


def test_80_where_nothing_can_be_written_the_report_goes_elsewhere(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    done = broken("import os; os.rmdir(os.getcwd()); {}[text]", folder)
    path = Path(done.stderr.partition("report ")[2].partition(";")[0])
    assert done.returncode == 70
    assert path.read_text().startswith("larvatus")
    path.unlink()


@pytest.mark.parametrize(
    ("code", "exit_code", "said"),
    [
        ("raise MemoryError", 1, "memory ran out; lower --microbatch"),
        ('raise RuntimeError("DefaultCPUAllocator: can\'t allocate memory: …")', 1, "memory ran out (Default"),
        ("raise RuntimeError('CUDA out of memory. Tried to allocate 20 GiB')", 1, "memory ran out (CUDA out of memory"),
        ("raise OSError(12, 'Cannot allocate memory')", 1, "memory ran out"),
        ('raise RuntimeError("can\'t start new thread")', 1, "no more threads"),
        ("raise OSError(28, 'No space left on device', 'x.bin')", 5, "no space left to write x.bin"),
        ("raise RuntimeError('I/O error: No space left on device (os error 28)')", 5, "no space left to write a file"),
        ("raise OSError(27, 'File too large', 'x.bin')", 5, "x.bin grew larger than a file may be here"),
        ("raise OSError(24, 'Too many open files', 'x.bin')", 5, "raise ulimit -n"),
        ("raise OSError(30, 'Read-only file system', 'x.bin')", 5, "x.bin cannot be read or written (Read-only"),
        ("raise BrokenPipeError(32, 'Broken pipe')", 5, "a file cannot be read or written (Broken pipe)"),
        ("raise KeyboardInterrupt", 130, "stopped"),
    ],
    ids=["memory", "torch", "cuda", "fork", "threads", "disk", "rust", "size", "files", "read-only", "pipe", "ctrl-c"],
)
def test_78_faults_of_the_machine_are_known(code, exit_code, said, tmp_path):
    done = broken(code, tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (exit_code, 1), done.stderr
    assert done.stderr.startswith("larvatus: ")
    assert said in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.proof
def test_78_real_limits_end_in_one_line_that_names_the_file(started, tiny_model, save_tiny, tmp_path):
    model = save_tiny(tmp_path / "model", tiny_model())
    text = tmp_path / "text.txt"
    text.write_text("The river ran past the bank. It was wide.\n\n" * 100)
    small = {"RLIMIT_FSIZE": 1_000}
    done = started(
        {"words": ["convert", model, "other"], "limits": small},
        {"words": ["embed", text, "--model", model, "--out", "v.npy"], "limits": small},
        {"words": ["tokenizer", "train", text, "--size", "40", "--out", "words"], "limits": small},
        {"words": ["fill", "the [MASK]", "--model", model], "limits": {"RLIMIT_NOFILE": 3}},
    )
    for one, name in zip(done, ["other/", "v.npy", "words/tokenizer.json", "ulimit -n"], strict=True):
        assert (one.code, one.err.count("\n")) == (5, 1), one.err
        assert name in one.err
    assert all("larger than a file may be here" in one.err for one in done[:3])


INTERRUPTED = """
import signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "torch.functional":
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is started with it ignored
sys.meta_path.insert(0, Interrupting())
sys.argv = ["larvatus", "recipes"]
from larvatus.__main__ import main
main()
"""


def test_80_ctrl_c_while_modules_are_imported_is_one_line():
    """In the middle of torch: a signal from outside would come too late on a busy machine."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=WATCHDOG_S)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "larvatus: stopped\n")


def test_38_metrics_that_can_no_longer_be_written_do_not_stop_training(prepared, tmp_path):
    """Really: in the middle of a run, metrics.jsonl becomes as large as a file may be; the models stay smaller."""
    out = tmp_path / "run"
    words = ["pretrain", "bert", *SETTINGS, "--corpus", str(prepared.train), "--out", str(out), "--steps", "60"]
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({2**25}, {2**25})); "
    command = [sys.executable, "-c", limited + "from larvatus.__main__ import main; main()", *words]
    with warm.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        metrics = out / "metrics.jsonl"
        while not metrics.exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.005)
        with metrics.open("r+b") as file:
            file.truncate(2**25)  # a hole: it takes no space
        said, err = process.communicate(timeout=WATCHDOG_S)
    assert (process.returncode, err) == (0, "")
    assert said.count("metrics are no longer written (") == 1
    assert (out / "model.safetensors").exists()
    assert metrics.stat().st_size == 2**25  # nothing more went there


def test_38_tensorboard_that_fails_stops_neither_training_nor_metrics(run_small, tmp_path, monkeypatch):
    """The package is an extra that tests do not install: a writer whose disk is full stands in for its own."""
    from rich.console import Console

    from larvatus.training.engine import reporter as watch

    class Full:
        def add_scalar(self, *_):
            raise OSError(28, "No space left on device")

        close = add_scalar

    monkeypatch.setattr(watch, "_tensorboard", lambda run: Full())
    console = Console(record=True, quiet=False, width=200, file=(tmp_path / "said").open("w"))
    run_small("run", steps=3, console=console, tensorboard=True)
    assert console.export_text().count("TensorBoard's files are no longer written") == 1
    assert (tmp_path / "run" / "metrics.jsonl").read_text().count('"train"') == 3
    assert (tmp_path / "run" / "model.safetensors").exists()
    console.file.close()
