"""Figures of an audit as claims: each with its interval, the files it was measured on, and the model's checksum.

quoted = Quoted.of("sent_more preferred (pll), %", score.metric, unit=PAIRS, category="gender", percent=True)
claims_of("audit bias", [quoted], model, settings={"samples": 1000}, data=files_of(["crows_pairs.csv"]), seed=0)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from larvatus.core import files
from larvatus.inference.model import Model
from larvatus.inference.model.quantised import int8_weights
from larvatus.metrics.bootstrap import Interval
from larvatus.models.bundle.checksums import model_digest
from larvatus.models.bundle.claims import Claim, Data, make_claim
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.saving import hardware


@dataclass(frozen=True, kw_only=True)
class Quoted:
    """A figure that a reader would quote."""

    metric: str
    value: float
    low: float | None = None
    high: float | None = None
    at: Mapping[str, Any] = field(default_factory=dict)
    """Of whom: `category`, `group`."""
    percent: bool = False
    """In per cent or points."""
    unit: str = ""
    """Resampled for the interval."""

    @classmethod
    def of(cls, metric: str, interval: Interval, *, unit: str, percent: bool = False, **at: Any) -> Quoted:
        ends = {"low": interval.low, "high": interval.high}
        return cls(metric=metric, value=interval.value, **ends, at=at, percent=percent, unit=unit)


def make_claims(
    command: str,
    figures: Iterable[Quoted],
    model: Model,
    *,
    settings: Mapping[str, Any],
    data: tuple[Data, ...],
    seed: int | None,
) -> tuple[Claim, ...]:
    """Those that are numbers, under settings that they share; none of weights in int8, as of `evaluate`."""
    if int8_weights(model.network):
        return ()
    device, digest = str(model.device), model_digest(Path(model.bundle.path))
    return tuple(
        make_claim(
            figure.metric,
            figure.value,
            **interval_fields(figure.low, figure.high, unit=figure.unit),
            command=command,
            settings={**settings, **figure.at},
            data=data,
            seed=seed,
            percent=figure.percent,
            model=digest,
            machine=hardware(Runtime(device=device)),
        )
        for figure in figures
        if math.isfinite(figure.value)
    )


def interval_fields(low: float | None, high: float | None, unit: str = "") -> dict[str, Any]:
    """Both ends and what was resampled, or nothing: one example has no interval."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return {}
    return {"low": float(low), "high": float(high), "unit": unit}


def file_data(sources: Sequence[Any]) -> tuple[Data, ...]:
    """Files with their checksums; empty unless every source is one, since what is in memory cannot be named."""
    paths = [Path(source) for source in sources if isinstance(source, str | Path)]
    if len(paths) < len(sources) or not all(path.is_file() for path in paths):
        return ()
    return tuple(Data(name=str(path), sha256=files.sha256(path.resolve())) for path in paths)  # a user may name a link
