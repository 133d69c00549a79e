"""Commands in processes of their own, without the seconds that each would take to import torch.

A server imports it once and forks for each command: what hangs is killed, what allocates is measured.

    with Forked() as larvatus:
        done = larvatus("fill", "The [MASK].", "--model", "m")      # done.code, done.said, done.megabytes
        done = larvatus("load", "m")                                # larvatus.load
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests import warm
from tests.patience import WATCHDOG_S

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Done:
    code: int
    said: str
    """On standard error."""
    megabytes: float
    """The most memory that it had, over what the server has."""

    def refused(self, code: int, *words: str) -> str:
        """One line with these words."""
        assert self.code == code, self.said
        assert self.said.startswith("larvatus: "), self.said
        assert self.said.strip().count("\n") == 0, self.said
        for word in words:
            assert word in self.said, (word, self.said)
        return self.said


class Forked:
    def __enter__(self) -> Self:
        self._server = warm.Popen(
            [sys.executable, "-m", "tests.faults.forked"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        return self

    def __exit__(self, *fault: object) -> None:
        self._server.kill()
        self._server.communicate()

    def __call__(self, *arguments: object) -> Done:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps([os.getcwd(), [str(argument) for argument in arguments]]) + "\n")
        self._server.stdin.flush()
        found: dict[str, Any] = json.loads(self._server.stdout.readline())
        return Done(**found)


def _carry_out(folder: str, arguments: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _run(folder, arguments, err.fileno())
        until = time.monotonic() + WATCHDOG_S
        while (ended := os.wait4(child, os.WNOHANG))[0] == 0 and time.monotonic() < until:
            time.sleep(0.002)
        hung = ended[0] == 0
        if hung:
            os.kill(child, signal.SIGKILL)
            ended = os.wait4(child, 0)
        err.seek(0)
        said = err.read().decode(errors="replace")
    more = ended[2].ru_maxrss / 1024 - _own_megabytes()
    code = 124 if hung else os.waitstatus_to_exitcode(ended[1])
    return {"code": code, "said": "it hung" if hung else said, "megabytes": more}


def _run(folder: str, arguments: list[str], err: int) -> None:
    from larvatus import load
    from larvatus.core.errors import LarvatusError
    from larvatus.interfaces.cli.main import complain, run

    code = 70
    try:
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(err, 2)
        if arguments[0] == "load":  # in Python, without the tenth of a second that a command takes to be read
            load(arguments[1])
            code = 0
        else:
            run(arguments)
    except LarvatusError as fault:
        code = complain(str(fault), fault.exit_code)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


def _warm_up() -> None:
    """Import all that is imported when a command first runs, so that no child has to."""
    from contextlib import redirect_stderr, redirect_stdout, suppress
    from importlib import import_module
    from io import StringIO

    from larvatus.interfaces.cli.command_list import COMMANDS
    from larvatus.interfaces.cli.main import run

    for command in COMMANDS.values():
        import_module(command.module)
    warm.import_later_modules()
    for arguments in (["recipes", "show", "bert"], ["fill", "a [MASK]", "--model", "/nowhere/at all"]):
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()), suppress(SystemExit):
            run(arguments)


def _own_megabytes() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)  # a forked child has none of its parent's threads
    _warm_up()
    for line in sys.stdin:
        print(json.dumps(_carry_out(*json.loads(line))), flush=True)
