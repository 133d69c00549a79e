"""pytest in a copy of the house, without the seconds that each start would take to import torch and its like.

A server imports them once, and nothing of the house; it forks for each run, which reads the copy alone.

    with Preloaded() as pytest:
        code, said = pytest(folder, "tests/core/test_rng.py")        # exit code, standard output and error
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Self

LIMIT_S = 900.0
WATCHDOG_S = 60.0
"""Where a defence is out a hang is expected: it need not be waited for as long as `tests/patience.py` would."""
MODULES = ("torch", "torch._dynamo", "pyarrow.parquet", "tokenizers", "transformers", "typer", "rich", "hypothesis")
MODULES += ("safetensors.torch", "sentencex", "regex", "msgspec", "zstandard", "fsspec", "sklearn.metrics")
OPTIONS = ("-x", "-p", "no:cacheprovider", "-m", "")


class Preloaded:
    def __enter__(self) -> Self:
        self._server = subprocess.Popen(
            [sys.executable, str(Path(__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
        return self

    def __exit__(self, *fault: object) -> None:
        self._server.kill()
        self._server.communicate()

    def __call__(self, folder: Path, *arguments: str) -> tuple[int, str]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps([str(folder), arguments]) + "\n")
        self._server.stdin.flush()
        code, said = json.loads(self._server.stdout.readline())
        return int(code), str(said)


def _carry_out(folder: str, arguments: list[str]) -> tuple[int, str]:
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            _run(folder, arguments, said.fileno())
        until = time.monotonic() + LIMIT_S
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < until:
            time.sleep(0.02)
        hung = ended[0] == 0
        if hung:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
        said.seek(0)
        return 124 if hung else os.waitstatus_to_exitcode(ended[1]), said.read().decode(errors="replace")


def _run(folder: str, arguments: list[str], said: int) -> None:
    """In the child: as `python -m pytest` in that folder."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.chdir(folder)
    os.environ["PYTHONPATH"] = f"{folder}/src"
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ["LARVATUS_WATCHDOG_S"] = str(WATCHDOG_S)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # plugins want to be imported after pytest
    sys.path[:0] = [folder, f"{folder}/src"]
    code = 70
    try:
        import pytest

        code = int(pytest.main([*OPTIONS, *arguments]))
        import larvatus

        assert larvatus.__file__.startswith(folder), larvatus.__file__
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 70
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.path.pop(0)  # this folder
    for name in MODULES:
        import_module(name)
    sys.modules["torch"].set_num_threads(1)
    assert "larvatus" not in sys.modules
    gc.freeze()  # a child does not look through, and so copy, all that was imported
    for line in sys.stdin:
        print(json.dumps(_carry_out(*json.loads(line))), flush=True)
