"""Learn: one training at a time, in a process of its own; what it made is put beside the models that are served.

    learner = Learner(Folders(runs=Path("runs")), publish)
    learner.start(order, name="reviews")
    learner.state()                                   # {"phase": "training", "step": 48, "steps": 120, …}
    learner.stop()

`publish(directory)` loads a model into the running server; nothing else of the studio loads anything.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import msgspec

from larvatus.core import files
from larvatus.core.errors import UsageError
from larvatus.interfaces.serve.paths import without_paths
from larvatus.interfaces.serve.refusals import Refusal
from larvatus.interfaces.studio.folders import Folders
from larvatus.interfaces.studio.learn_order import LearnOrder

Phase = Literal["idle", "training", "stopping", "stopped", "loading", "ready", "failed"]
BUSY: tuple[Phase, ...] = ("training", "stopping", "loading")
MOST_LINES = 200
"""Of what a training says that are kept."""
PATIENCE_S = 10.0
"""How long a process that was told to stop may take over it when the studio ends."""
LOG = "training.log"
CHILD = (sys.executable, "-m", "larvatus.interfaces.studio.learn_child")


class Busy(Refusal):
    """Another training is under way."""

    status = 409


@dataclass
class Lesson:
    """A training: what changes while it runs."""

    name: str
    order: LearnOrder
    phase: Phase = "training"
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_LINES))
    numbers: dict[str, Any] = field(default_factory=dict)
    """Step, steps, loss, speed; epoch, metric and figures of the last evaluation."""
    error: str = ""
    resumable: bool = False
    served_as: str | None = None
    begun: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        busy = self.phase in BUSY
        return {
            "phase": self.phase,
            "busy": busy,
            "name": self.name,
            "task": self.order.task,
            "lines": list(self.lines),
            "error": self.error,
            "resumable": self.resumable,
            "model": self.served_as,
            "seconds": round(time.monotonic() - self.begun if busy else self.seconds, 1),
            **self.numbers,
        }


class Learner:
    """Who starts, follows and stops trainings."""

    def __init__(
        self,
        folders: Folders,
        publish: Callable[[Path], str],
        *,
        device: str = "auto",
        command: Sequence[str] = CHILD,
    ) -> None:
        """`command` starts the process that trains."""
        self.folders, self.device = folders, device
        self._publish, self._command = publish, command
        self._lock = threading.Lock()
        self.beginning = threading.Lock()
        """Held by who chooses a name, keeps a file and starts: of two at once the second finds the first under way."""
        self._lesson: Lesson | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    def state(self) -> dict[str, Any]:
        with self._lock:
            return {"phase": "idle", "busy": False} if self._lesson is None else self._lesson.to_dict()

    def folder(self) -> Path | None:
        """Where the last training writes."""
        with self._lock:
            return None if self._lesson is None else Path(self._lesson.order.out)

    def place_for(self, name: str) -> str:
        """A name that neither a model nor a file here has: `reviews`, `reviews-2`, …"""
        number, free = 1, name
        while (self.folders.models / free).exists() or (self.folders.examples / free).exists():
            number += 1
            free = f"{name}-{number}"
        return free

    def keep_file(self, name: str, file: str, text: str) -> Path:
        """Put the examples where a card can name them."""
        folder = self.folders.examples / name
        with files.saying_what_is_full(folder):
            folder.mkdir(parents=True)
            (folder / file).write_text(text, encoding="utf-8", newline="")
        return folder / file

    def start(self, order: LearnOrder, *, name: str) -> dict[str, Any]:
        """Begin; refused while another training is under way."""
        with self._lock:
            self._refuse_while_busy()
            lesson = Lesson(name, order)
            with files.saying_what_is_full(self.folders.models):
                self.folders.models.mkdir(parents=True, exist_ok=True)
            with (self.folders.examples / name / LOG).open("ab") as log:
                process = self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C in the terminal is the studio's to hear
                )
            self._lesson = lesson
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it is gone already: who follows it says so
                process.stdin.write(msgspec.json.encode(order) + b"\n")
                process.stdin.flush()
            self._thread = threading.Thread(target=self._follow, args=(lesson, process), daemon=True)
            self._thread.start()
            return lesson.to_dict()

    def resume(self) -> dict[str, Any]:
        """Go on with a training that was stopped."""
        with self._lock:
            lesson = self._lesson
            if lesson is None or not lesson.resumable or lesson.phase != "stopped":
                raise UsageError("there is no stopped training to go on with; start one")
        return self.start(msgspec.structs.replace(lesson.order, resume=True), name=lesson.name)

    def stop(self) -> dict[str, Any]:
        """Ask the training to stop after its step; it saves how far it is."""
        with self._lock:
            if self._lesson is None or self._lesson.phase != "training":
                raise UsageError("no training is under way")
            self._lesson.phase = "stopping"
            self._tell_to_stop()
            return self._lesson.to_dict()

    def refuse_while_busy(self) -> None:
        with self._lock:
            self._refuse_while_busy()

    def close(self) -> None:
        """End a training that is under way: the studio ends."""
        with self._lock:
            process, lesson = self._process, self._lesson
            if lesson is not None and lesson.phase == "training":
                lesson.phase = "stopping"
            self._tell_to_stop()
        if process is not None:
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)

    def _refuse_while_busy(self) -> None:
        if self._lesson is not None and self._lesson.phase in BUSY:
            raise Busy(f"{self._lesson.name} is being learnt; one at a time: stop it, or wait for it")

    def _tell_to_stop(self) -> None:
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.closed:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def _follow(self, lesson: Lesson, process: subprocess.Popen[bytes]) -> None:
        """Until the process ends, and what came of it is loaded."""
        assert process.stdout is not None
        told = self._listen(lesson, process.stdout)
        code = process.wait()
        with self._lock:
            self._tell_to_stop()  # its end of the pipe, too
            done = code == 0 and "done" in told
            lesson.phase = "loading" if done else self._ended(lesson, told, code)
            lesson.seconds = time.monotonic() - lesson.begun
        if not done:
            return
        try:
            served_as = self._publish(Path(lesson.order.out))
        except Exception as fault:  # memory that ran out, too: the page is told, and the server goes on
            with self._lock:
                lesson.phase = "failed"
                lesson.error = f"it is saved, but cannot be served: {without_paths(str(fault))}"
            return
        with self._lock:
            lesson.phase, lesson.served_as = "ready", served_as

    def _listen(self, lesson: Lesson, stream: IO[bytes]) -> dict[str, Any]:
        """Take note of each line; what the last said is given back."""
        told: dict[str, Any] = {}
        with stream:
            for line in stream:
                told = json.loads(line)
                with self._lock:
                    if "said" in told:
                        lesson.lines.append(told["said"])
                    else:
                        lesson.numbers.update({k: v for k, v in told.items() if k not in ("done", "error", "stopped")})
        return told

    @staticmethod
    def _ended(lesson: Lesson, told: dict[str, Any], code: int) -> Phase:
        if told.get("stopped") or (lesson.phase == "stopping" and code):
            lesson.resumable = bool(told.get("stopped"))
            return "stopped"
        told_why = str(told.get("error") or f"the training ended with code {code}; {LOG} of its examples says more")
        lesson.error = without_paths(told_why)
        return "failed"
