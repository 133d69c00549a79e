"""Progress of a run: lines, a bar on a terminal, tables, speed, `metrics.jsonl` always, TensorBoard on request.

    reporter = Reporter(console)                       # `Reporter()` prints nothing
    reporter.say("learning the vocabulary …")
    with reporter.bar(total=1_000, every_s=10) as bar, reporter.metrics(run) as metrics:
        bar.show(1, "step 1/1,000  loss 9.31", left="3 min left")
        metrics.write("train", 1, {"loss": 9.31})

This is the only module below the command line that uses `rich`. Metrics that cannot be written (a full disk, a closed
pipe) are reported once and dropped: training continues.

`Throughput` is the speed over the last steps without pauses, `RemainingTime` counts everything by the clock, and
`Deadline` gives fewer steps where the planned ones would not be done in time. Model FLOP utilisation is as in Chowdhery
et al. 2022.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

import torch
from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table as RichTable
from rich.text import Text

from larvatus.core.errors import UsageError, printable
from larvatus.core.files import append_bytes
from larvatus.core.tables import Table
from larvatus.models.network import Network
from larvatus.models.recipes import Recipe


class Reporter:
    """Prints what happens; nothing where no console is given."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = Console(quiet=True) if console is None else console

    @classmethod
    def on_stream(cls, *, quiet: bool = False, stderr: bool = False) -> Reporter:
        """A reporter to standard output, or to standard error."""
        return cls(Console(stderr=stderr, markup=False, emoji=False, highlight=False, quiet=quiet))

    @property
    def on_terminal(self) -> bool:
        return self._console.is_terminal

    def say(self, line: str) -> None:
        """Print a line."""
        self._console.print(line, soft_wrap=True, markup=False, highlight=False, emoji=False)

    def warn(self, line: str) -> None:
        """A line that should be seen."""
        self._console.print(line, style="yellow", soft_wrap=True, markup=False, highlight=False, emoji=False)

    def show(self, table: Table) -> None:
        self._console.print(rich_table(table))

    @contextmanager
    def counter(self, words: str) -> Iterator[Callable[[str], None]]:
        """A line that changes on a terminal, and goes away; nothing elsewhere."""
        column = TextColumn("  {task.description}")
        with Progress(column, console=self._console, transient=True, disable=not self.on_terminal) as progress:
            task = progress.add_task(words)
            yield lambda changed: progress.update(task, description=changed)

    def bar(
        self, *, words: str = "starting", total: int | None = None, every_s: float, done: int = 0, goes: bool = False
    ) -> ProgressBar:
        """`every_s`: seconds between two lines where there is no terminal; `goes`: the bar goes away at the end."""
        columns = (TextColumn("  {task.description}"), BarColumn(), TextColumn("{task.fields[left]}"))
        progress = Progress(*columns, console=self._console, transient=goes)
        progress.add_task(words, total=total, completed=done, left="")
        return ProgressBar(self, progress, every_s)

    def metrics(self, run: Path, *, tensorboard: bool = False) -> MetricsLog:
        return MetricsLog(run, self.warn, tensorboard=tensorboard)


class ProgressBar:
    """How far it is: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, reporter: Reporter, progress: Progress, every_s: float) -> None:
        self._watcher, self._progress, self._every_s = reporter, progress, every_s
        self._task = progress.task_ids[0]
        self._said = time.monotonic()

    def __enter__(self) -> Self:
        if self._watcher.on_terminal:
            self._progress.start()
        return self

    def __exit__(self, *fault: object) -> None:
        if self._watcher.on_terminal:  # elsewhere it never began, and its end would be an empty line
            self._progress.stop()

    @property
    def is_line_due(self) -> bool:
        return time.monotonic() - self._said >= self._every_s

    def show(self, done: int, words: str, *, left: str = "", total: int | None = None, last: bool = False) -> None:
        """`last`: a line in any case, where there is no bar."""
        if self._watcher.on_terminal:
            self._progress.update(self._task, completed=done, total=total, description=words, left=left)
        elif last or self.is_line_due:
            self.say(f"  {words}  {left}".rstrip())

    def say(self, line: str) -> None:
        """An extra line, after which the next may wait."""
        self._said = time.monotonic()
        self._watcher.say(line)


class MetricsLog:
    """Appends one JSON object a line to `metrics.jsonl` (and, on request, TensorBoard's event files)."""

    def __init__(self, run: Path, warn: Callable[[str], None], *, tensorboard: bool = False) -> None:
        self._path, self._warn = run / "metrics.jsonl", warn
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
        """A failure is reported once, and that output ends; the other continues."""
        if what in self._down:
            return
        try:
            do()
        except Exception as fault:
            self._down.add(what)
            self._warn(f"{what} are no longer written ({printable(str(fault))}); training continues")

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
        raise UsageError("--tensorboard needs the extra: pip install 'larvatus[tensorboard]'") from fault
    return SummaryWriter(str(run / "tensorboard"))


def rich_table(table: Table, *, wrap: bool = False) -> Group:
    """A table and its notes for a `rich` console; `wrap` lets long cells break on narrow terminals."""
    title, named = Text(table.title) if table.title else None, any(column.name for column in table.heads)
    shown = RichTable(box=None, pad_edge=False, title=title, title_justify="left", show_header=named)
    for column in table.heads:
        justify: Literal["left", "right"] = "right" if column.right else "left"
        shown.add_column(
            Text(column.name), justify=justify, no_wrap=column.whole or not wrap, vertical="top" if wrap else "bottom"
        )
    for row in table.cells:
        shown.add_row(*(Text(cell.text, style=cell.style) for cell in row))
    notes = [Text(note) if isinstance(note, str) else Text(note.text, style=note.style) for note in table.notes]
    return Group(shown, *notes)


# Speed.


class Throughput:
    """Tokens a second over the last steps, and the time left; pauses (evaluation, saving) do not count."""

    SMOOTHING = 0.9
    """Weight of the old value in the moving averages."""

    def __init__(self) -> None:
        self._then = time.monotonic()
        self._seconds: float | None = None
        self._tokens: float = 0.0

    def pause(self) -> None:
        self._then = time.monotonic()

    def per_second(self, tokens: int) -> float:
        """After a step of `tokens` tokens."""
        now = time.monotonic()
        took, self._then = now - self._then, now
        if self._seconds is None:
            self._seconds, self._tokens = took, float(tokens)
        else:
            self._seconds = self.SMOOTHING * self._seconds + (1 - self.SMOOTHING) * took
            self._tokens = self.SMOOTHING * self._tokens + (1 - self.SMOOTHING) * tokens
        return self._tokens / max(self._seconds, 1e-9)

    def left(self, steps: int) -> str:
        return time_left(steps * (self._seconds or 0.0))


class RemainingTime:
    """How long the training under way still takes, by the clock: evaluations and checkpoints are counted in."""

    def __init__(self) -> None:
        self._began: tuple[int, float] | None = None
        self._now = (0, 0)

    def left(self, step: int, steps: int) -> str:
        """``17 min left`` at most; nothing before there is something to go by."""
        before, self._now = self._now, (step, steps)
        if self._began is None or step <= before[0] or steps != before[1]:  # the first, or another seed
            self._began = step, time.monotonic()
            return ""
        return time_left((steps - step) * (time.monotonic() - self._began[1]) / (step - self._began[0]))


class Deadline:
    """When a run must end: where it is slower than was planned, because others use the machine, it makes fewer steps.

    What such a run learns depends on the clock; runs that are to be repeated have none.
    """

    FIRST = 5
    """Steps before anything is estimated."""

    def __init__(self, at: float) -> None:
        """`at` as `time.monotonic` gives it."""
        self._at = at
        self._began: tuple[int, float] | None = None

    def steps(self, step: int, steps: int) -> int:
        """How many steps there will be, after `step` of `steps`."""
        now = time.monotonic()
        if self._began is None:
            self._began = step, now
        done = step - self._began[0]
        if done < self.FIRST and now < self._at:
            return steps
        fit = (self._at - now) * done / max(1e-9, now - self._began[1])
        return min(steps, step + max(0, int(fit)))


def time_left(seconds: float) -> str:
    """
    >>> time_left(89), time_left(1_020)
    ('89 s left', '17 min left')
    """
    return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"


# Dense bf16 peaks from the vendors' data sheets; a device that is not listed shows no MFU.
_PEAKS = {
    "B200": 2250e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "A100": 312e12,
    "A40": 150e12,
    "A10": 125e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
}
"""The first whose name is part of the device's name counts."""


def flops_per_token(model: Network, recipe: Recipe, length: int) -> float:
    """Forward and backward of one token: 6 per weight of the blocks, attention to tokens seen, share of the head."""
    generator = model.generator.encoder.flops(length) if model.generator is not None else 0
    head = 6 * recipe.words_per_token * model.encoder.word_vectors.numel()
    return model.encoder.flops(length) + generator + head


def peak_flops(device: str, precision: str = "bf16") -> float | None:
    """What the data sheet of a GPU promises in bf16; None elsewhere, and in other precisions."""
    if not device.startswith("cuda") or precision != "bf16":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for key, peak in _PEAKS.items() if key in name), None)
