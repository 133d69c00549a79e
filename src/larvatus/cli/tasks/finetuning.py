"""What a fine-tuning shows: a bar on a terminal, plain lines elsewhere, scores after each evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from larvatus.cli.quiet import is_quiet
from larvatus.engine.pace import Pace
from larvatus.engine.watch import Watcher
from larvatus.errors import printable
from larvatus.tasks.fit.choosing import Epoch, compare
from larvatus.tasks.fit.finetune import Tuned, Watch
from larvatus.tasks.fit.run import CurvePoint
from larvatus.tasks.held_out import Scores
from larvatus.tasks.registry import task_of
from larvatus.tasks.scoring import head_of

LINE_EVERY_S = 30.0
"""Between two lines, where there is no bar and no evaluation says how far it is."""


class Show:
    """The run's mouth."""

    def __init__(self, console: Console, out: Path) -> None:
        self._watcher = Watcher(console)
        self._metrics = self._watcher.metrics(out)
        self._best: dict[int, Scores] = {}
        """Of each seed: what is no better is said seldom; all of it is in metrics.jsonl."""
        self._pace = Pace()
        self._bar = self._watcher.bar(words="reading", every_s=LINE_EVERY_S)

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(self, *fault: object) -> None:
        self._bar.__exit__(*fault)

    @property
    def watch(self) -> Watch:
        return Watch(say=self.say, epoch=self._epoch, progress=self._progress)

    def say(self, line: str) -> None:
        self._watcher.say(line)

    def point(self, point: CurvePoint) -> None:
        self.say(f"curve: {point.examples:,} examples · {point.metric} {point.mean:.4f} ± {point.deviation:.4f}")

    def _progress(self, step: int, steps: int, loss: float, speed: float) -> None:
        words = f"step {step:,}/{steps:,}  training loss {loss:.3f}  {speed:,.0f} texts/s"
        self._bar.show(step, words, left=self._pace.left(step, steps), total=steps)

    def _epoch(self, seed: int, epoch: Epoch) -> None:
        values = epoch.scores.values if epoch.scores is not None else {}
        self._metrics.write("valid", epoch.step, {"seed": seed, **epoch.figures()})
        better = epoch.scores is not None and compare(epoch.scores, self._best.get(seed)) > 0
        whole = epoch.scores is None and epoch.epoch == round(epoch.epoch)
        if not (better or whole or self._bar.is_line_due):
            return
        if better and epoch.scores is not None:
            self._best[seed] = epoch.scores
        named = {name.replace("_", " "): value for name, value in epoch.losses().items()} | values
        said = " · ".join(f"{name} {value:.4f}" for name, value in named.items())
        self._bar.say(f"  seed {seed}, epoch {epoch.epoch:.3g}: {said}")


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
    if (mix := head_of(tuned.bundle.network).learnt_mix) is not None:
        console.print(str(mix), highlight=False, soft_wrap=True)
    taken = sum(path.stat().st_size for path in out.iterdir() if path.is_file())
    console.print(
        f"saved {escape(printable(str(out)))} ({taken / 1e6:,.0f} MB, a model directory; its card is README.md)",
        soft_wrap=True,
        highlight=False,
    )
    if is_quiet():
        return
    words = task_of(tuned.bundle).card.command
    console.print(f"next: larvatus predict {escape(printable(str(out)))} {words}", soft_wrap=True, highlight=False)
