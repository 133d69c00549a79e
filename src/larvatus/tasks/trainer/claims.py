"""The figures of a fine-tuned model as claims: how it was trained, what that took, and what it is worth.

claims = result_claims(tuned, dev=Data(name="dev.tsv", sha256="5f2c…", kind="examples"), how={}, processes=1)
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from larvatus.models.bundle.claims import STATISTIC, Claim, Data, make_claim
from larvatus.models.bundle.energy import PowerDraw, device_power, energy_claims
from larvatus.models.bundle.figures import STATISTICS
from larvatus.models.bundle.sizes import size_claims
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
    tuned: FineTuneResult, *, dev: Data | None, how: Mapping[str, Any], processes: int = 1
) -> list[Claim]:
    """All that the card says in figures; `dev` are the held-out examples as they were read, `how` says in which way."""
    known = {"machine": _machine(tuned)}
    return [
        *size_claims(tuned.bundle.network, vocabulary=tuned.bundle.tokenizer.size),
        *(make_claim(name, fact, command="finetune", **known) for name, fact in _training(tuned).items()),
        *energy_claims(_draw(tuned, processes), **known),
        *(_results(tuned, dev, how, **known) if dev is not None else ()),
    ]


def _device(tuned: FineTuneResult) -> torch.device:
    return next(tuned.bundle.network.parameters()).device


def _machine(tuned: FineTuneResult) -> str:
    device = _device(tuned)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} CPU"


def _draw(tuned: FineTuneResult, processes: int) -> PowerDraw:
    device = _machine(tuned) if _device(tuned).type == "cuda" else ""
    watts, source = device_power(device, threads=torch.get_num_threads())
    seconds = math.fsum(run.seconds for run in tuned.runs)
    return PowerDraw(watts=watts, devices=processes, seconds=round(seconds, 1), source=source)


def _training(tuned: FineTuneResult) -> dict[str, str | int | float]:
    run = next(run for run in tuned.runs if run.seed == tuned.kept)
    config = tuned.config
    facts: dict[str, str | int | float] = {
        "what was trained": config.trained.word,
        "parameters trained": tuned.trained,
        "epochs": config.epochs or 0,
        "batch": config.batch,
        "rate": config.peak,
        "steps": run.steps,
        "seconds of training": round(run.seconds, 1),
        "seeds": ", ".join(str(run.seed) for run in tuned.runs),
        "seed of these weights": tuned.kept,
    }
    if tuned.windows[0]:
        facts["texts longer than a window"] = f"{tuned.windows[0]:,}, read in {tuned.windows[1]:,} windows"
    return facts | _calibration(tuned)


def _calibration(tuned: FineTuneResult) -> dict[str, str | int | float]:
    """What a temperature is worth, measured on each half of the held-out examples with one fitted on the other."""
    fit = tuned.calibration
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


def _results(tuned: FineTuneResult, dev: Data, how: Mapping[str, Any], **known: Any) -> Iterator[Claim]:
    """Scores of the kept weights, which an evaluation gives again, and what all seeds came to, which training gives."""
    if tuned.scores is None:
        return
    window = {"length": tuned.config.length, "truncate": tuned.config.truncate}
    settings = {**how, "options": {name: given for name, given in window.items() if given}}
    about = {"data": (dev,), "seed": tuned.kept, **known}
    for name, value in tuned.scores.values.items():
        again = not name.startswith(CHOSEN) and math.isfinite(value)
        yield make_claim(
            name,
            value if math.isfinite(value) else str(value),
            command="evaluate" if again else "finetune",
            settings={name: given for name, given in settings.items() if given} if again else {},
            **about,
        )
        if len(tuned.runs) > 1:
            for statistic, figure in zip(STATISTICS, tuned.spread[name], strict=True):
                spread = figure if math.isfinite(figure) else str(figure)
                yield make_claim(name, spread, command="finetune", settings={STATISTIC: statistic}, **about)
