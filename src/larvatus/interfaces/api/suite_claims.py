"""What a suite measured of a model, as claims: every figure of its table, with the files of its part.

    claims = suite_claims(results, subject)
    larvatus evaluate runs/mine --suite english --data data/ --json > suite.json
    larvatus card runs/mine --add suite.json

They are made of the records, so that parts which an earlier run measured are claimed with its date, versions and
machine. Of a fine-tuned part the mean over seeds is claimed, and the deviation where there are several.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from larvatus.evaluation.cards.claims import interval_fields
from larvatus.evaluation.suite.figures import SuiteFigure
from larvatus.evaluation.suite.part import SuiteModel
from larvatus.evaluation.suite.results import ROLES, PartRecord, SuiteResults
from larvatus.inference.model.quantised import int8_weights
from larvatus.models.bundle.checksums import model_digest
from larvatus.models.bundle.claims import Claim, Data, make_claim

COMMAND = "evaluate suite"
VERSIONS = ("larvatus", "torch", "python")


def suite_claims(results: SuiteResults, subject: SuiteModel) -> tuple[Claim, ...]:
    """Of the model, not of the one beside it; none of weights in int8, as of `evaluate`."""
    if int8_weights(subject.bundle.network):
        return ()
    digest = model_digest(subject.path)
    return tuple(
        claim
        for record in results.records.get(ROLES[0], {}).values()
        for figure in record.figures
        for claim in _claims(record, figure, suite=results.suite.name, model=digest)
    )


def _claims(record: PartRecord, figure: SuiteFigure, *, suite: str, model: str) -> Iterator[Claim]:
    known: dict[str, Any] = {
        "command": COMMAND,
        "settings": {"suite": suite, **_settings(record, figure)},
        "data": tuple(Data(name=name, sha256=checksum) for name, checksum in record.of["data"].items()),
        "model": model,
        "versions": {name: str(record.machine[name]) for name in VERSIONS},
        "date": record.made[:10],
        "machine": str(record.machine["device"]),
    }
    if figure.value is not None and math.isfinite(figure.value):
        yield make_claim(figure.measure, figure.value, **interval_fields(figure.low, figure.high), **known)
    if figure.deviation is not None:
        yield make_claim(f"{figure.measure}, deviation over {len(figure.seeds)} seeds", figure.deviation, **known)


def _settings(record: PartRecord, figure: SuiteFigure) -> dict[str, Any]:
    given = {name: value for name, value in record.of["settings"].items() if value not in (None, False)}
    settings = {"task": record.part, **given, **({"seeds": list(figure.seeds)} if figure.seeds else {})}
    if figure.id != record.part and figure.name.lower() != record.part:  # several figures of one part
        settings["category"] = figure.name
    return settings | ({"conditions": figure.conditions} if figure.conditions else {})
