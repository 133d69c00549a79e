"""`larvatus … | head`: a reader who has gone is no fault, whoever writes to the pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from larvatus.interfaces.cli.main import run
from tests import warm
from tests.interfaces.cli.test_predict import Gone


@pytest.mark.parametrize("words", [["recipes"], ["recipes", "show", "bert", "--json"], ["--version"]])
def test_a_reader_who_has_gone_is_no_fault(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stdout = Gone(tmp_path / "out")
    monkeypatch.setattr(sys, "stdout", stdout)
    with pytest.raises(SystemExit) as ended:
        run(words)
    monkeypatch.undo()
    stdout.real.close()
    assert (ended.value.code, capsys.readouterr().err) == (0, "")


def test_a_closed_pipe_leaves_nothing_to_say() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", "larvatus", "recipes"]
    to_the_end = {**os.environ, warm.FULL_END: "1"}  # where Python flushes its streams
    done = warm.run(words, stdout=writing, stderr=subprocess.PIPE, check=False, env=to_the_end)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_other_exits_keep_their_codes() -> None:
    with pytest.raises(SystemExit) as ended:
        run(["recipes", "show", "brt"])
    assert ended.value.code == 3
