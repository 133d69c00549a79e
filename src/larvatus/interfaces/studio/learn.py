"""Learn: fine-tuning of one model at a time, in its own process; the result is served with the other models.

    learner = Learner(Folders(runs=Path("runs")), publish)
    learner.start(job, name="reviews")
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
from larvatus.interfaces.serve.responses import RequestError, without_paths
from larvatus.interfaces.studio.learn_request import LearnJob
from larvatus.interfaces.studio.settings import Folders

Phase = Literal["idle", "training", "stopping", "stopped", "loading", "ready", "failed"]
BUSY: tuple[Phase, ...] = ("training", "stopping", "loading")
MOST_LINES = 200
"""Lines of a training's output that are kept."""
PATIENCE_S = 10.0
"""Seconds that a training has to stop when the studio ends."""
LOG = "training.log"
CHILD = (sys.executable, "-m", "larvatus.interfaces.studio.learn_process")


class Busy(RequestError, status=409):
    """Another training is running."""


@dataclass
class Pace:
    """Seconds that a step takes, with the evaluations between steps.

    >>> pace = Pace()
    >>> pace.step(10, at=5.0); pace.step(30, at=9.0)
    >>> pace.left(50)
    4.0
    """

    first: tuple[int, float] | None = None
    """The first step that was reported, and when: a resumed training does not begin at 0."""
    last: tuple[int, float] = (0, 0.0)

    def step(self, step: int, *, at: float) -> None:
        self.last = (step, at)
        if self.first is None or step < self.first[0]:
            self.first = self.last

    def left(self, steps: int | None) -> float | None:
        """Seconds of the steps that are left; None before the second report."""
        if steps is None or self.first is None or self.last[0] <= self.first[0]:
            return None
        each = (self.last[1] - self.first[1]) / (self.last[0] - self.first[0])
        return round(each * max(0, steps - self.last[0]), 1)


@dataclass
class StudioTraining:
    """State of a training."""

    name: str
    job: LearnJob
    phase: Phase = "training"
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_LINES))
    numbers: dict[str, Any] = field(default_factory=dict)
    """Stage, step, steps, loss, speed; epoch, metric and scores of the last evaluation; the comparison."""
    pace: Pace = field(default_factory=Pace)
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
            "task": self.job.task,
            "lines": list(self.lines),
            "error": self.error,
            "resumable": self.resumable,
            "model": self.served_as,
            "seconds": round(self.elapsed if busy else self.seconds, 1),
            "left": self.left if self.phase == "training" else None,
            **self.numbers,
        }

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.begun

    @property
    def left(self) -> float | None:
        """Seconds that the training needs at most: it may end early. None if that is not known yet."""
        stage = self.numbers.get("stage")
        if stage == "searching":
            return max(0.0, round(60 * self.job.choices.budget - self.elapsed, 1))
        return self.pace.left(self.numbers.get("steps")) if stage == "training" else None


class Learner:
    """Starts, follows and stops trainings."""

    def __init__(
        self,
        folders: Folders,
        publish: Callable[[Path], str],
        *,
        device: str = "auto",
        command: Sequence[str] = CHILD,
    ) -> None:
        """`command` starts the training process."""
        self.folders, self.device = folders, device
        self._publish, self._command = publish, command
        self._lock = threading.Lock()
        self.beginning = threading.Lock()
        """Held while a name is chosen, a file stored and a training started: of two at once, the second is refused."""
        self._training: StudioTraining | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    def state(self) -> dict[str, Any]:
        with self._lock:
            return {"phase": "idle", "busy": False} if self._training is None else self._training.to_dict()

    def folder(self) -> Path | None:
        """Output folder of the last training."""
        with self._lock:
            return None if self._training is None else Path(self._training.job.out)

    def free_name(self, name: str) -> str:
        """A name that no model and no file has: `reviews`, `reviews-2`, …"""
        number, free = 1, name
        while (self.folders.models / free).exists() or (self.folders.examples / free).exists():
            number += 1
            free = f"{name}-{number}"
        return free

    def keep_file(self, name: str, file: str, text: str) -> Path:
        """Store the examples where a card can name them."""
        folder = self.folders.examples / name
        with files.saying_what_is_full(folder):
            folder.mkdir(parents=True)
            (folder / file).write_text(text, encoding="utf-8", newline="")
        return folder / file

    def start(self, job: LearnJob, *, name: str) -> dict[str, Any]:
        """Start a training; refused while another one runs."""
        with self._lock:
            self._refuse_while_busy()
            training = StudioTraining(name, job)
            with files.saying_what_is_full(self.folders.models):
                self.folders.models.mkdir(parents=True, exist_ok=True)
            with (self.folders.examples / name / LOG).open("ab") as log:
                process = self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C in the terminal goes to the studio
                )
            self._training = training
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it has already ended: the thread that follows it reports that
                process.stdin.write(msgspec.json.encode(job) + b"\n")
                process.stdin.flush()
            self._thread = threading.Thread(target=self._follow, args=(training, process), daemon=True)
            self._thread.start()
            return training.to_dict()

    def resume(self) -> dict[str, Any]:
        """Resume a stopped training."""
        with self._lock:
            training = self._training
            if training is None or not training.resumable or training.phase != "stopped":
                raise UsageError("there is no stopped training to resume; start one")
        return self.start(msgspec.structs.replace(training.job, resume=True), name=training.name)

    def stop(self) -> dict[str, Any]:
        """Stop the training after its step; it saves a checkpoint."""
        with self._lock:
            if self._training is None or self._training.phase != "training":
                raise UsageError("no training is running")
            self._training.phase = "stopping"
            self._send_stop()
            return self._training.to_dict()

    def refuse_while_busy(self) -> None:
        with self._lock:
            self._refuse_while_busy()

    def close(self) -> None:
        """Stop the running training when the studio ends."""
        with self._lock:
            process, training = self._process, self._training
            if training is not None and training.phase == "training":
                training.phase = "stopping"
            self._send_stop()
        if process is not None:
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)

    def _refuse_while_busy(self) -> None:
        if self._training is not None and self._training.phase in BUSY:
            raise Busy(f"{self._training.name} is being trained; stop it, or wait for it")

    def _send_stop(self) -> None:
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.closed:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def _follow(self, training: StudioTraining, process: subprocess.Popen[bytes]) -> None:
        """Read the output of a process until it ends, then serve its model."""
        assert process.stdout is not None
        event = self._listen(training, process.stdout)
        code = process.wait()
        with self._lock:
            self._send_stop()  # closes its end of the pipe
            done = code == 0 and "done" in event
            training.phase = "loading" if done else self._ended(training, event, code)
            training.seconds = time.monotonic() - training.begun
        if not done:
            return
        try:
            served_as = self._publish(Path(training.job.out))
        except Exception as fault:  # also out of memory: the page shows it, and the server keeps running
            with self._lock:
                training.phase = "failed"
                training.error = f"the model is saved, but cannot be served: {without_paths(str(fault))}"
            return
        with self._lock:
            training.phase, training.served_as = "ready", served_as

    def _listen(self, training: StudioTraining, stream: IO[bytes]) -> dict[str, Any]:
        """Record each event; returns the last."""
        event: dict[str, Any] = {}
        with stream:
            for line in stream:
                event = json.loads(line)
                with self._lock:
                    if "said" in event:
                        training.lines.append(event["said"])
                    else:
                        training.numbers.update(
                            {k: v for k, v in event.items() if k not in ("done", "error", "stopped")}
                        )
                        if "step" in event:
                            training.pace.step(event["step"], at=time.monotonic())
        return event

    @staticmethod
    def _ended(training: StudioTraining, event: dict[str, Any], code: int) -> Phase:
        if event.get("stopped") or (training.phase == "stopping" and code):
            training.resumable = bool(event.get("stopped")) and not training.job.choices.searches
            return "stopped"
        reason = str(
            event.get("error")
            or f"the training ended with code {code}; {LOG} in the folder of its examples has details"
        )
        training.error = without_paths(reason)
        return "failed"
