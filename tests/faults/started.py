"""Run commands as the shell starts them, each in a process of its own, without the seconds that imports take each.

    python -m tests.faults.started RESULTS < CASES          both JSON; see `Started` in tests/faults/conftest.py

Everything is imported once; each command then runs in a fork, from the program's entry to the end of its interpreter,
with descriptors, limits and environment as its case says.
"""

from __future__ import annotations

import gc
import io
import json
import os
import resource
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from larvatus.__main__ import main
from larvatus.interfaces.cli.command_list import COMMANDS
from tests import warm
from tests.patience import WATCHDOG_S

for command in COMMANDS.values():
    import_module(command.module)  # what takes seconds
warm.import_later_modules()


def begin(case: dict[str, Any]) -> None:
    """In the child: what the shell and the start of Python would have done."""
    os.chdir(case["folder"])
    os.environ.update(case.get("environment", {}))
    if case.get("full_end"):
        os.environ[warm.FULL_END] = "1"
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        given = case.get(name, f"{name}.txt")
        if given == "closed":
            os.close(number)
            setattr(sys, name, None)
            continue
        if given == "gone":
            reading, handle = os.pipe()
            os.close(reading)
        elif number == 0:
            handle = os.open(os.devnull, os.O_RDONLY)
        else:
            handle = os.open(given, os.O_WRONLY | (0 if given.startswith("/dev/") else os.O_CREAT | os.O_TRUNC), 0o644)
        os.dup2(handle, number)
        os.close(handle)
        if number:
            encoding = case.get("encoding", "utf-8")
            stream = io.TextIOWrapper(open(number, "wb", closefd=False), encoding=encoding, errors="strict")  # noqa: SIM115
            setattr(sys, name, stream)
    for name, most in case.get("limits", {}).items():
        resource.setrlimit(getattr(resource, name), (most, most))
    sys.argv = ["larvatus", *case["words"]]


def run_all(cases: list[dict[str, Any]], results: Path) -> None:
    gc.freeze()  # a child does not look through, and so copy, all that was imported
    codes = []
    for case in cases:
        child = os.fork()
        if child == 0:
            import signal

            signal.alarm(int(WATCHDOG_S))
            begin(case)
            main()  # exits; what is then flushed counts too
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    results.write_text(json.dumps(codes))


if __name__ == "__main__":
    run_all(json.load(sys.stdin), Path(sys.argv[1]))
