"""Progress of a fine-tuning run: a bar on a terminal, plain lines elsewhere, scores after each evaluation.

with FineTuneProgress(Reporter.on_stream(), Path("runs/mine")) as show:
    run_finetuning(run, dataclasses.replace(args, callbacks=show.callbacks), show.point)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self

from larvatus.core.tables import ReportPart, Table
from larvatus.tasks.scoring import head_of
from larvatus.tasks.trainer.checkpoint import Epoch, compare
from larvatus.tasks.trainer.config import Callbacks
from larvatus.tasks.trainer.finetune import FineTuneResult
from larvatus.tasks.trainer.run import LearningCurvePoint
from larvatus.tasks.validation import Scores
from larvatus.training.engine.reporter import RemainingTime, Reporter

LINE_EVERY_S = 30.0
"""Seconds between two lines of progress, where there is no bar."""


class FineTuneProgress:
    """Progress of a fine-tuning run: lines and a bar for people, `metrics.jsonl` in the run's folder.

    Args:
        reporter: Prints lines and the bar, or nothing where it is quiet.
        out: The run's folder; None where nothing is saved.
    """

    def __init__(self, reporter: Reporter, out: Path | None) -> None:
        self._watcher = reporter
        self._metrics = None if out is None else reporter.metrics(out)
        self._best: dict[int, Scores] = {}
        """Best scores of each seed: evaluations that are no better are rarely shown; metrics.jsonl has all."""
        self._pace = RemainingTime()
        self._bar = self._watcher.bar(words="reading", every_s=LINE_EVERY_S)

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(self, *fault: object) -> None:
        self._bar.__exit__(*fault)

    @property
    def callbacks(self) -> Callbacks:
        return Callbacks(say=self.say, epoch=self._epoch, progress=self._progress)

    def say(self, line: str) -> None:
        self._watcher.say(line)

    def point(self, point: LearningCurvePoint) -> None:
        self.say(f"curve: {point.examples:,} examples · {point.metric} {point.mean:.4f} ± {point.deviation:.4f}")

    def _progress(self, step: int, steps: int, loss: float, speed: float) -> None:
        words = f"step {step:,}/{steps:,}  training loss {loss:.3f}  {speed:,.0f} texts/s"
        self._bar.show(step, words, left=self._pace.left(step, steps), total=steps)

    def _epoch(self, seed: int, epoch: Epoch) -> None:
        values = epoch.scores.values if epoch.scores is not None else {}
        if self._metrics is not None:
            self._metrics.write("valid", epoch.step, {"seed": seed, **epoch.figures()})
        better = epoch.scores is not None and compare(epoch.scores, self._best.get(seed)) > 0
        whole = epoch.scores is None and epoch.epoch == round(epoch.epoch)
        if not (better or whole or self._bar.is_line_due):
            return
        if better and epoch.scores is not None:
            self._best[seed] = epoch.scores
        named = {name.replace("_", " "): value for name, value in epoch.losses().items()} | main_metrics(values)
        said = " · ".join(f"{name} {value:.4f}" for name, value in named.items())
        self._bar.say(f"  seed {seed}, epoch {epoch.epoch:.3g}: {said}")


def main_metrics(values: dict[str, float]) -> dict[str, float]:
    """The metrics of one task; of several, their mean and the first metric of each."""
    firsts = {name.partition(".")[0]: name for name in reversed(values)}
    return {name: value for name, value in values.items() if firsts[name.partition(".")[0]] == name}


def result_parts(result: FineTuneResult) -> Iterator[ReportPart]:
    """What a search tried, scores on held-out examples, how the weights were chosen, and calibration."""
    if result.search is not None:
        yield from result.search.parts()
    if result.scores is not None:
        many = len(result.runs) > 1
        rows = []
        for name, value in result.scores.values.items():
            mean, deviation = result.spread[name]
            spread = (f"{mean:.4f}", f"{deviation:.4f}") if many else ()
            rows.append((f"{name} *" if name == result.metric else name, f"{value:.4f}", *spread))
        yield "held out"
        columns = ("metric", "kept", *(("mean of seeds", "deviation") if many else ()))
        yield Table(columns, tuple(rows))
        run = next(run for run in result.runs if run.seed == result.kept)
        epoch = f"epoch {run.best.epoch:.3g}" if run.best is not None else "the weights"
        chosen = f"seed {run.seed}, {epoch}" if many else epoch
        if run.steps:  # a linear head of a search has no checkpoints
            yield f"* best checkpoint: {chosen}, selected by {result.metric}"
        if many and any(part.fitted for part in result.parts.values()):
            yield "kept: with the fitted threshold; mean and deviation of seeds: before it"
    for task, part in result.parts.items():
        if line := part.calibration.line:
            yield f"{task} {line}".lstrip()
        if (mix := head_of(part.bundle.network).learnt_mix) is not None:
            yield f"{task} {mix}".lstrip()
