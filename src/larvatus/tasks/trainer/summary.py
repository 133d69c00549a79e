"""Result of a fine-tuning run, as lines and a table for people."""

from __future__ import annotations

from collections.abc import Iterator

from larvatus.core.tables import ReportPart, Table
from larvatus.tasks.scoring import head_of
from larvatus.tasks.trainer.finetune import FineTuneResult


def result_parts(result: FineTuneResult) -> Iterator[ReportPart]:
    """Scores on held-out examples, how the weights were chosen, and calibration; nothing where none were held out."""
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
        yield f"* by which what is kept was chosen: {chosen}"
        if many and result.fitted:
            yield "kept: with the fitted threshold; mean and deviation of seeds: before it"
        if line := result.calibration.line:
            yield line
    if (mix := head_of(result.bundle.network).learnt_mix) is not None:
        yield str(mix)
