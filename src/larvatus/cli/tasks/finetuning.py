"""What a fine-tuning shows: a bar on a terminal, plain lines elsewhere, scores after each evaluation."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from larvatus.errors import printable
from larvatus.pretrain.monitor import Metrics
from larvatus.tasks.fit.choosing import Epoch, Scores, compare
from larvatus.tasks.fit.finetune import Tuned, Watch
from larvatus.tasks.fit.run import CurvePoint
from larvatus.tasks.registry import task_of

LINE_EVERY_S = 30.0
"""Between two lines, where there is no bar and no evaluation says how far it is."""


class Show:
    """The run's mouth."""

    def __init__(self, console: Console, out: Path) -> None:
        self.console, self._out = console, out
        self._metrics: Metrics | None = None
        self._best: dict[int, Scores] = {}
        """Of each seed: what is no better is said seldom; all of it is in metrics.jsonl."""
        self._last = time.monotonic()
        self._pace = Pace()
        self._bar = Progress(
            TextColumn("  {task.description}"), BarColumn(), TextColumn("{task.fields[left]}"), console=console
        )
        self._task = self._bar.add_task("reading", total=None, left="")

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *fault: object) -> None:
        self._bar.stop()

    @property
    def watch(self) -> Watch:
        return Watch(say=self.say, epoch=self._epoch, progress=self._progress)

    def say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def point(self, point: CurvePoint) -> None:
        self.say(f"curve: {point.examples:,} examples · {point.metric} {point.mean:.4f} ± {point.deviation:.4f}")

    def _progress(self, step: int, steps: int, loss: float, speed: float) -> None:
        words = f"step {step:,}/{steps:,}  training loss {loss:.3f}  {speed:,.0f} texts/s"
        left = self._pace.left(step, steps)
        if self.console.is_terminal:
            self._bar.update(self._task, completed=step, total=steps, description=words, left=left)
        elif time.monotonic() - self._last >= LINE_EVERY_S:
            self._last = time.monotonic()
            self.say(f"  {words}  {left}".rstrip())

    def _epoch(self, seed: int, epoch: Epoch) -> None:
        if self._metrics is None:
            self._metrics = Metrics(self._out, self.console)
        values = epoch.scores.values if epoch.scores is not None else {}
        losses = {"training_loss": epoch.training_loss}
        if epoch.scores is not None:
            losses["validation_loss"] = epoch.scores.validation_loss
        self._metrics.write("valid", epoch.step, {"seed": seed, "epoch": epoch.epoch, **losses, **values})
        better = epoch.scores is not None and compare(epoch.scores, self._best.get(seed)) > 0
        whole = epoch.scores is None and epoch.epoch == round(epoch.epoch)
        if not (better or whole or time.monotonic() - self._last >= LINE_EVERY_S):
            return
        self._last = time.monotonic()
        if better and epoch.scores is not None:
            self._best[seed] = epoch.scores
        named = {name.replace("_", " "): value for name, value in losses.items()} | values
        said = " · ".join(f"{name} {value:.4f}" for name, value in named.items())
        self.say(f"  seed {seed}, epoch {epoch.epoch:.3g}: {said}")


class Pace:
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
        seconds = (steps - step) * (time.monotonic() - self._began[1]) / (step - self._began[0])
        return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"


def show_result(console: Console, tuned: Tuned, out: Path) -> None:
    """What was reached, and what to do next."""
    if tuned.scores is not None:
        many = len(tuned.runs) > 1
        table = Table(box=None, pad_edge=False, title="held out", title_justify="left")
        for name in ("metric", "kept", *(("mean of seeds", "deviation") if many else ())):
            table.add_column(name, justify="left" if name == "metric" else "right")
        for name, value in tuned.scores.values.items():
            mean, deviation = tuned.spread[name]
            row = [f"{mean:.4f}", f"{deviation:.4f}"] if many else []
            table.add_row(f"{name} *" if name == tuned.metric else name, f"{value:.4f}", *row)
        console.print(table)
        run = next(run for run in tuned.runs if run.seed == tuned.kept)
        epoch = f"epoch {run.best.epoch:.3g}" if run.best is not None else "the weights"
        chosen = f"seed {run.seed}, {epoch}" if many else epoch
        console.print(f"* by which what is kept was chosen: {chosen}", highlight=False)
        if many and tuned.fitted:
            console.print("kept: with the fitted threshold; mean and deviation of seeds: before it", highlight=False)
        if line := tuned.calibration.line:
            console.print(line, highlight=False, soft_wrap=True)
    taken = sum(path.stat().st_size for path in out.iterdir() if path.is_file())
    console.print(
        f"saved {escape(printable(str(out)))} ({taken / 1e6:,.0f} MB, a model directory; its card is README.md)",
        soft_wrap=True,
        highlight=False,
    )
    words = task_of(tuned.bundle).card.command
    console.print(f"next: larvatus predict {escape(printable(str(out)))} {words}", soft_wrap=True, highlight=False)
