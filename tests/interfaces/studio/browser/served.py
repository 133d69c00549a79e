"""`larvatus studio` in a process of its own, which can be ended and started again on the same port.

with Served(models, runs=folder) as served:
    served.address                                  # "http://127.0.0.1:41234"
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.patience import WATCHDOG_S


def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])


class Served:
    def __init__(self, models: Sequence[Path], *, runs: Path) -> None:
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.folder = runs.parent
        """Where it is started."""
        self.log = self.folder / "studio.log"
        named = [str(model.relative_to(self.folder)) for model in models]
        self.command = [sys.executable, "-m", "larvatus", "studio", *named, "--port", str(self.port), "--no-browser"]
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Served:
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder
            )
        until = time.monotonic() + WATCHDOG_S
        while not self._answers() or not self.page:
            ended = self.process.poll()
            said = self.log.read_text(errors="replace")
            assert ended is None, f"the studio ended with {ended}: {said}"
            assert time.monotonic() < until, f"the studio does not answer: {said}"
            time.sleep(0.1)

    @property
    def page(self) -> str:
        """The address that it printed last."""
        printed = re.findall(rf"{self.address}/\S*", self.log.read_text(errors="replace"))
        return str(printed[-1]) if printed else ""

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/v1/models", timeout=WATCHDOG_S) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(WATCHDOG_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(WATCHDOG_S)
                raise
            finally:
                self.process = None
