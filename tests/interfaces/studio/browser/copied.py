"""Code that the page's copy buttons gave, carried out as a reader would.

answer = run_curl(studio.copied("Copy as curl"))
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.patience import WATCHDOG_S


def run_curl(command: str) -> Any:
    """The JSON that a copied line gets from the server."""
    assert command.startswith("curl ")
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=WATCHDOG_S, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def run_python(code: str, folder: Path) -> str:
    """What copied lines print, in the folder from which the studio was started."""
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        exec(compile(code, "copied.py", "exec"), {"__name__": "__main__"})
    return printed.getvalue()
