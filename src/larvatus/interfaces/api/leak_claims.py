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

from larvatus.evaluation.audit.leaks.exposure import Exposures
from larvatus.evaluation.audit.leaks.extraction import Extraction
from larvatus.evaluation.audit.leaks.membership import Membership
from larvatus.evaluation.audit.leaks.report import LeakReport
from larvatus.evaluation.audit.leaks.restoration import Restoration
from larvatus.evaluation.audit.units import CANARIES, DOCUMENTS
from larvatus.evaluation.cards.claims import Quoted, file_data, make_claims
from larvatus.inference.model import Model
from larvatus.models.bundle.claims import Claim, Data

COMMAND = "audit leaks"
MOST_FILES = 100
"""Files that a claim lists by name, so that `card --verify` finds them; figures of more files are recorded."""


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
        claims += make_claims(COMMAND, figures, model, settings=settings["canaries"], data=planted, seed=seed)
    if members and held_out:
        figures = chain(_membership(report.membership), _restored(report.restoration), _extracted(report.extraction))
        texts = (*members, *held_out)
        claims += make_claims(COMMAND, figures, model, settings=settings["texts"], data=texts, seed=seed)
    return claims


def _data(sources: Sequence[Any]) -> tuple[Data, ...]:
    """A file as it is; of several one checksum, over the names and checksums of all."""
    several = file_data(sources)
    if len(several) < 2:
        return several
    names = tuple(data.name for data in several)
    listed = names if len(names) <= MOST_FILES else ()
    checksum = checksum_of_files(names, [data.sha256 for data in several])
    return (Data(name=f"{names[0]} and {len(names) - 1:,} more", sha256=checksum, kind="files", files=listed),)


def checksum_of_files(names: Sequence[str], checksums: Sequence[str]) -> str:
    """One checksum over the names and checksums of several files."""
    lines = "".join(f"{name} {checksum}\n" for name, checksum in zip(names, checksums, strict=True))
    return hashlib.sha256(lines.encode()).hexdigest()


def _exposures(exposure: Exposures) -> Iterator[Quoted]:
    for repeats, row in exposure.by_repeats().items():
        at = {"group": f"planted {repeats:,} times" if repeats > 1 else "planted once"}
        yield Quoted(
            metric="exposure, mean bits", value=row["mean"], low=row["low"], high=row["high"], at=at, unit=CANARIES
        )
        yield Quoted(metric="exposure, most bits", value=row["most"], at=at)
        if "extracted" in row:
            yield Quoted(metric="canaries extracted", value=row["extracted"] / row["canaries"], at=at)


def _membership(told: Membership | None) -> Iterator[Quoted]:
    if told is None:
        return
    yield Quoted(metric="documents of training text", value=told.members)
    yield Quoted(metric="documents of held-out text", value=told.held_out)
    yield Quoted(metric="loss of training text, nats a word", value=told.loss_of_members)
    yield Quoted(metric="loss of held-out text, nats a word", value=told.loss_of_held_out)
    yield Quoted.of("loss of held-out text less that of training text", told.advantage, unit=told.unit)
    attacks = {f"by {name}": curve for name, curve in told.attacks.items()}
    for name, curve in {**attacks, **{f"blind, by {rule}": curve for rule, curve in told.blind.items()}}.items():
        yield Quoted.of("membership AUC", curve.area, unit=told.unit, category=name)
        for at in curve.caught:
            if at.share is not None:
                metric = f"members found at {at.rate:.1%} false positives"
                yield Quoted(
                    metric=metric, value=at.share, low=at.low, high=at.high, at={"category": name}, unit=told.unit
                )
    for name, values in told.by_draw.items():
        yield from _spread("membership AUC", values, {"category": f"by {name}"})


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
        yield from _spread("restored, difference", each.by_draw, at)


def _extracted(extraction: Extraction | None) -> Iterator[Quoted]:
    for prefix, each in ({} if extraction is None else extraction.prefixes).items():
        at = {"category": f"after {prefix:,} tokens"}
        for name, share in (("training", each.members), ("held-out", each.held_out)):
            metric = f"{name} documents extracted"
            yield Quoted(metric=metric, value=share.share, low=share.low, high=share.high, at=at, unit=DOCUMENTS)
        yield Quoted(
            metric="extracted, difference",
            value=each.difference,
            low=each.low,
            high=each.high,
            at=at,
            unit=DOCUMENTS,
        )
        yield from _spread("extracted, difference", each.by_draw, at)


def _spread(metric: str, values: Sequence[float], at: Mapping[str, Any]) -> Iterator[Quoted]:
    """How far a figure varies over samples of members; nothing where there is one sample."""
    for end, value in (("lowest", min), ("highest", max)) if values else ():
        yield Quoted(metric=f"{metric}, {end} of {len(values)} samples", value=value(values), at=at)
