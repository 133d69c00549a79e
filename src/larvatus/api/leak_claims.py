"""What an audit of leaks measured, as claims: exposure by repeats, membership by attack, restoration by kind.

    claims = leak_claims(report, model, sources={"canaries": [file]}, settings={"canaries": {"exact": 10_000}}, seed=0)
    larvatus audit leaks --model runs/mine --canaries runs/mine/corpus --json > leaks.json
    larvatus card runs/mine --add leaks.json

What rules get that never saw the model stands among them: without it an AUC says little.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from larvatus.api.claiming import Quoted, claims_of, files_of
from larvatus.audit.leaks.exposure import Exposures
from larvatus.audit.leaks.membership import Membership
from larvatus.audit.leaks.report import LeakReport
from larvatus.audit.leaks.restoration import Restoration
from larvatus.audit.units import CANARIES
from larvatus.bundle.claims import Claim, Data
from larvatus.model import Model

COMMAND = "audit leaks"


def leak_claims(
    report: LeakReport,
    model: Model,
    *,
    sources: Mapping[str, Sequence[Any]],
    settings: Mapping[str, Mapping[str, Any]],
    seed: int,
) -> tuple[Claim, ...]:
    """`sources` are files, and `settings` what figures depend on: those of `canaries`, of `members` and `held_out`."""
    planted, members, held_out = (_data(sources.get(name, ())) for name in ("canaries", "members", "held_out"))
    claims: tuple[Claim, ...] = ()
    figures: Iterator[Quoted]
    if report.exposure is not None and planted:
        figures = _exposures(report.exposure)
        claims += claims_of(COMMAND, figures, model, settings=settings["canaries"], data=planted, seed=seed)
    if report.membership is not None and members and held_out:
        figures = chain(_membership(report.membership), _restored(report.restoration))
        texts = (*members, *held_out)
        claims += claims_of(COMMAND, figures, model, settings=settings["texts"], data=texts, seed=seed)
    return claims


def _data(sources: Sequence[Any]) -> tuple[Data, ...]:
    """A file as it is; of several one checksum, over the names and checksums of all."""
    several = files_of(sources)
    if len(several) < 2:
        return several
    lines = "".join(f"{data.name} {data.sha256}\n" for data in several)
    name = f"{several[0].name} and {len(several) - 1:,} more"
    return (Data(name=name, sha256=hashlib.sha256(lines.encode()).hexdigest(), kind="files"),)


def _exposures(exposure: Exposures) -> Iterator[Quoted]:
    for repeats, row in exposure.by_repeats().items():
        at = {"group": f"planted {repeats:,} times" if repeats > 1 else "planted once"}
        yield Quoted(
            metric="exposure, mean bits", value=row["mean"], low=row["low"], high=row["high"], at=at, unit=CANARIES
        )
        yield Quoted(metric="exposure, most bits", value=row["most"], at=at)


def _membership(told: Membership) -> Iterator[Quoted]:
    attacks = {f"by {name}": curve for name, curve in told.attacks.items()}
    for name, curve in {**attacks, **{f"blind, by {rule}": curve for rule, curve in told.blind.items()}}.items():
        yield Quoted.of("membership AUC", curve.area, unit=told.unit, category=name)
        for at in curve.caught:
            if at.share is not None:
                metric = f"members found at {at.rate:.1%} false positives"
                yield Quoted(
                    metric=metric, value=at.share, low=at.low, high=at.high, at={"category": name}, unit=told.unit
                )


def _restored(restored: Restoration | None) -> Iterator[Quoted]:
    if restored is None:
        return
    for kind, each in restored.kinds.items():
        at = {"category": f"{kind}s"}
        for name, share in (("training", each.members), ("held-out", each.held_out)):
            metric = f"restored of {name} text"
            yield Quoted(metric=metric, value=share.share, low=share.low, high=share.high, at=at, unit=restored.unit)
        yield Quoted(
            metric="restored, difference",
            value=each.difference,
            low=each.low,
            high=each.high,
            at=at,
            unit=restored.unit,
        )
