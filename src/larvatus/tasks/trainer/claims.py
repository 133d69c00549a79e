"""The figures of a fine-tuned model as claims: how it was trained, what that took, and what it is worth.

claims = result_claims(result, dev=Data(name="dev.tsv", sha256="5f2c…", kind="examples"), how={}, processes=1)
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from larvatus.models.bundle.card import STATISTICS
from larvatus.models.bundle.claims import (
    STATISTIC,
    Claim,
    Data,
    PowerDraw,
    device_power,
    energy_claims,
    make_claim,
    size_claims,
)
from larvatus.tasks.trainer.finetune import FineTuneResult

TUNING_FACTS = (
    "what was trained",
    "parameters trained",
    "epochs",
    "batch",
    "rate",
    "steps",
    "seconds of training",
    "seeds",
    "seed of these weights",
    "texts longer than a window",
    "temperature of probabilities",
    "temperature that was fitted",
    "calibration error without a temperature",
    "calibration error with one",
    "held-out loss without a temperature",
    "held-out loss with one",
)
"""Figures of a run that only training gives."""
CHOSEN = "best-"
"""Metrics that begin so are of a threshold that was chosen on the same examples: an evaluation has none of them."""


def result_claims(
    result: FineTuneResult, *, dev: Data | None, how: Mapping[str, Any], processes: int = 1
) -> list[Claim]:
    """All that the card says in figures; `dev` are the held-out examples as they were read, `how` says in which way."""
    known = {"machine": _machine(result)}
    return [
        *size_claims(result.bundle.network, vocabulary=result.bundle.tokenizer.size),
        *(make_claim(name, fact, command="finetune", **known) for name, fact in _training(result).items()),
        *energy_claims(_draw(result, processes), **known),
        *(_results(result, dev, how, **known) if dev is not None else ()),
    ]


def _device(result: FineTuneResult) -> torch.device:
    return next(result.bundle.network.parameters()).device


def _machine(result: FineTuneResult) -> str:
    device = _device(result)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} CPU"


def _draw(result: FineTuneResult, processes: int) -> PowerDraw:
    device = _machine(result) if _device(result).type == "cuda" else ""
    watts, source = device_power(device, threads=torch.get_num_threads())
    seconds = math.fsum(run.seconds for run in result.runs)
    return PowerDraw(watts=watts, devices=processes, seconds=round(seconds, 1), source=source)


def _training(result: FineTuneResult) -> dict[str, str | int | float]:
    run = next(run for run in result.runs if run.seed == result.kept)
    config = result.config
    facts: dict[str, str | int | float] = {
        "what was trained": config.trained.word,
        "parameters trained": result.trained,
        "epochs": config.epochs or 0,
        "batch": config.batch,
        "rate": config.peak,
        "steps": run.steps,
        "seconds of training": round(run.seconds, 1),
        "seeds": ", ".join(str(run.seed) for run in result.runs),
        "seed of these weights": result.kept,
    }
    if result.windows[0]:
        facts["texts longer than a window"] = f"{result.windows[0]:,}, read in {result.windows[1]:,} windows"
    return facts | _calibration(result)


def _calibration(result: FineTuneResult) -> dict[str, str | int | float]:
    """What a temperature is worth, measured on each half of the held-out examples with one fitted on the other."""
    fit = result.calibration
    if math.isnan(fit.fitted):
        return {}
    figures = {
        "temperature of probabilities": fit.temperature,
        "temperature that was fitted": fit.fitted,
        "calibration error without a temperature": fit.before,
        "calibration error with one": fit.after,
        "held-out loss without a temperature": fit.loss_before,
        "held-out loss with one": fit.loss_after,
    }
    return {name: round(value, 6) for name, value in figures.items() if math.isfinite(value)}


def _results(result: FineTuneResult, dev: Data, how: Mapping[str, Any], **known: Any) -> Iterator[Claim]:
    """Scores of the kept weights, which an evaluation gives again, and what all seeds came to, which training gives."""
    if result.scores is None:
        return
    window = {"length": result.config.length, "truncate": result.config.truncate}
    settings = {**how, "options": {name: given for name, given in window.items() if given}}
    about = {"data": (dev,), "seed": result.kept, **known}
    for name, value in result.scores.values.items():
        again = not name.startswith(CHOSEN) and math.isfinite(value)
        yield make_claim(
            name,
            value if math.isfinite(value) else str(value),
            command="evaluate" if again else "finetune",
            settings={name: given for name, given in settings.items() if given} if again else {},
            **about,
        )
        if len(result.runs) > 1:
            for statistic, figure in zip(STATISTICS, result.spread[name], strict=True):
                spread = figure if math.isfinite(figure) else str(figure)
                yield make_claim(name, spread, command="finetune", settings={STATISTIC: statistic}, **about)
