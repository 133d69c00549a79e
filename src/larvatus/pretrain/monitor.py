"""What a run shows: a bar on a terminal, plain lines elsewhere, `metrics.jsonl` always, TensorBoard on request.

A monitor that fails (a full disk, a closed pipe) is said once and left behind: training goes on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from larvatus.engine.report import StepReport
from larvatus.errors import printable
from larvatus.files import append_bytes
from larvatus.pretrain.evaluation import HeldOut

LINE_EVERY_S = 10.0
BRIEF_EVERY_S = 300.0


class Metrics:
    """Appends one JSON object a line to `metrics.jsonl` (and, when asked, TensorBoard's event files)."""

    def __init__(self, run: Path, console: Console, *, tensorboard: bool = False) -> None:
        self._path, self._console = run / "metrics.jsonl", console
        self._down: set[str] = set()
        self._board: Any = _tensorboard(run) if tensorboard else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        if self._board is not None:
            self._attempt("TensorBoard's files", self._board.close)

    def write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        record = {"kind": kind, "step": step, "time": round(time.time(), 3), **values}
        self._attempt("metrics", lambda: self._append(record))
        if self._board is not None:
            self._attempt("TensorBoard's files", lambda: self._draw(kind, step, values))

    def _attempt(self, what: str, do: Callable[[], None]) -> None:
        """What fails is said once and left behind; the other goes on."""
        if what in self._down:
            return
        try:
            do()
        except Exception as fault:
            self._down.add(what)
            line = f"{what} are no longer written ({printable(str(fault))}); training goes on"
            self._console.print(line, style="yellow", soft_wrap=True, markup=False, highlight=False)

    def _draw(self, kind: str, step: int, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, int | float):
                self._board.add_scalar(f"{kind}/{name}", value, step)

    def _append(self, record: dict[str, Any]) -> None:
        append_bytes(self._path, json.dumps(record).encode() + b"\n")


def _tensorboard(run: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as fault:
        from larvatus.errors import UsageError

        raise UsageError("--tensorboard wants the extra: pip install 'larvatus[tensorboard]'") from fault
    return SummaryWriter(str(run / "tensorboard"))


class Monitor:
    """The loop's mouth: called after each step, each evaluation and each save."""

    def __init__(
        self,
        metrics: Metrics,
        console: Console,
        *,
        steps: int,
        start: int,
        flops: float,
        peak: float | None,
        brief: str | None = None,
    ) -> None:
        """`brief` is the name of one run of several: it shows a bar that goes away, or a line every five minutes."""
        self.metrics, self.console, self.steps, self._brief = metrics, console, steps, brief
        self._flops, self._peak = flops, peak
        self._speed = Speed()
        self._last_line = time.monotonic()
        self._bar = Progress(
            TextColumn("  {task.description}"),
            BarColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=brief is not None,
        )
        self._task = self._bar.add_task("starting", total=steps, completed=start, left="")

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *fault: object) -> None:
        if self.console.is_terminal:  # elsewhere it never began, and its end would be an empty line
            self._bar.stop()

    def step(self, report: StepReport) -> None:
        step = report.step + 1
        speed = self._speed.tokens_per_second(report.tokens)
        mfu = speed * self._flops / self._peak if self._peak else None
        losses = {f"loss/{name}": value for name, value in report.losses.items()}
        values = {
            "loss": report.loss,
            **losses,
            "rate": report.rate,
            "gradient": report.gradient,
            "tokens/s": round(speed),
        }
        self.metrics.write("train", step, values | ({"mfu": round(mfu, 4)} if mfu else {}))
        parts = ", ".join(f"{name.partition('-')[0]} {value:.2f}" for name, value in report.losses.items())
        words = "" if self._brief is None else f"{self._brief}: "
        words += f"step {step:,}/{self.steps:,}  loss {report.loss:.2f} ({parts})  {_thousands(speed)} tokens/s"
        words += f"  MFU {mfu:.2f}" if mfu else ""
        left = self._speed.left(self.steps - step)
        if self.console.is_terminal:
            self._bar.update(self._task, completed=step, description=words, left=left)
        elif self._line_is_due(step):
            self._last_line = time.monotonic()
            self.console.print(f"  {words}  {left}", highlight=False, soft_wrap=True)

    def _line_is_due(self, step: int) -> bool:
        waited = time.monotonic() - self._last_line
        return waited >= BRIEF_EVERY_S if self._brief is not None else waited >= LINE_EVERY_S or step == self.steps

    def held_out(self, step: int, result: HeldOut, *, seen: int, seconds: float) -> None:
        """A point of the curve: after `seen` training tokens and `seconds` of training."""
        self._speed.pause()
        values = {"seen": seen, "seconds": round(seconds, 3), **_flat(result.to_dict())}
        self.metrics.write("valid", step, values)
        if self._brief is None:
            self.console.print(f"  held out at step {step:,}: {result}", highlight=False, soft_wrap=True)

    def saved(self, step: int, path: Path) -> None:
        self._speed.pause()
        self.metrics.write("saved", step, {"path": path.name})


class Speed:
    """Tokens a second over the last steps, and the time left; pauses (evaluation, saving) do not count."""

    def __init__(self, memory: float = 0.9) -> None:
        self._memory = memory
        self._then: float | None = time.monotonic()
        self._seconds: float | None = None
        self._tokens: float = 0.0

    def pause(self) -> None:
        self._then = time.monotonic()

    def tokens_per_second(self, tokens: int) -> float:
        now = time.monotonic()
        took = now - (self._then or now)
        self._then = now
        if self._seconds is None:
            self._seconds, self._tokens = took, float(tokens)
        else:
            self._seconds = self._memory * self._seconds + (1 - self._memory) * took
            self._tokens = self._memory * self._tokens + (1 - self._memory) * tokens
        return self._tokens / max(self._seconds, 1e-9)

    def left(self, steps: int) -> str:
        seconds = steps * (self._seconds or 0.0)
        return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"


def _thousands(number: float) -> str:
    return f"{number / 1000:,.0f}k" if number >= 10_000 else f"{number:,.0f}"


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}/") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
