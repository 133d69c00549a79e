"""What an audit of bias measured, as claims: by category or by groups, never one number alone; shares say of how many.

    claims = bias_claims(report, model, sources={"crows_pairs": ["crows_pairs.csv"]}, of_swaps={})
    larvatus audit bias --model runs/mine --pairs crows_pairs.csv --json > bias.json
    larvatus card runs/mine --add bias.json

Sets that came from memory have no claims: nobody could find them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from larvatus.evaluation.audit.bias.associations import Association, AssociationResult
from larvatus.evaluation.audit.bias.pairs import CrowsResult
from larvatus.evaluation.audit.bias.report import BiasReport
from larvatus.evaluation.audit.bias.stereoset import StereoResult
from larvatus.evaluation.audit.bias.swaps import SwapResult
from larvatus.evaluation.audit.bias.templates import TemplateResult
from larvatus.evaluation.audit.bias.winobias import WinoResult
from larvatus.evaluation.cards.claims import Quoted, file_data, make_claims
from larvatus.inference.model import Model
from larvatus.models.bundle.claims import Claim

COMMAND = "audit bias"
ALL = "all"
STANDARDISED = "standardised"


def bias_claims(
    report: BiasReport, model: Model, *, sources: Mapping[str, Sequence[Any]], of_swaps: Mapping[str, Any]
) -> tuple[Claim, ...]:
    """Of every part; `sources` are the files of each, `of_swaps` says how examples were read and swapped."""
    seed = report.settings["seed"]
    claims: list[Claim] = []
    for name, part in report.parts.items():
        data = file_data(sources[name])
        if data:
            settings = {"task": name, **_settings(name, report.settings), **(of_swaps if name == "swaps" else {})}
            claims += make_claims(COMMAND, FIGURES[name](part), model, settings=settings, data=data, seed=seed)
    return tuple(claims)


def _settings(part: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the figures of a part depend on."""
    more = {"associations": ("permutations", "layers"), "crows_pairs": ("most_pairs",)}
    names = ("samples", *more.get(part, ()))
    return {name: given[name] for name in names if given[name] is not None}


def crows(result: CrowsResult) -> Iterator[Quoted]:
    for method, scores in result.scores.items():
        for category, score in {**scores.by_category, ALL: scores.overall}.items():
            preferred = f"sent_more preferred ({method}), % of {score.pairs:,} pairs"
            yield Quoted.of(preferred, score.metric, unit=result.unit, percent=True, category=category)
            yield Quoted.of(
                f"sent_more less sent_less ({method}), nats", score.difference, unit=result.unit, category=category
            )


def stereo(result: StereoResult) -> Iterator[Quoted]:
    for kind, methods in result.scores.items():
        for method, categories in methods.items():
            for category, score in categories.items():
                for name, interval in (("lms", score.lms), ("ss", score.ss), ("icat", score.icat)):
                    metric = f"{kind} {name} ({method}), %, {score.examples:,} examples"
                    yield Quoted.of(metric, interval, unit=result.unit, percent=True, category=category)


def wino(result: WinoResult) -> Iterator[Quoted]:
    for category, score in result.scores.items():
        of_all = f"% of {score.sentences:,} sentences"
        yield Quoted.of(
            f"pro-stereotyped right, {of_all}", score.pro, unit=result.unit, percent=True, category=category
        )
        yield Quoted.of(
            f"anti-stereotyped right, {of_all}", score.anti, unit=result.unit, percent=True, category=category
        )
        yield Quoted.of("pro less anti, points", score.gap, unit=result.unit, percent=True, category=category)
        yield Quoted.of("log-odds of the stereotype, nats", score.log_odds, unit=result.unit, category=category)
        yield Quoted.of("log-odds less the prior, nats", score.corrected, unit=result.unit, category=category)
    yield Quoted.of("male pronoun preferred, %", result.preferred_male, unit=result.unit, percent=True, category=ALL)


def templates(result: TemplateResult) -> Iterator[Quoted]:
    for each in result.differences:
        at: dict[str, Any] = {"category": each.attributes, "group": " − ".join(each.groups)}
        yield Quoted.of("association, difference in nats", each.difference, unit=each.unit, **at)
        yield Quoted.of(
            "association with the group asked for, difference in nats", each.group_asked, unit=each.unit, **at
        )


def associations(result: AssociationResult) -> Iterator[Quoted]:
    for each in result.tests:
        yield from _association(each, result.unit)


def _association(each: Association, unit: str) -> Iterator[Quoted]:
    groups = f"{' / '.join(each.targets)}, {' / '.join(each.attributes)}"
    at: dict[str, Any] = {"category": each.name, "group": groups}
    if each.vectors == STANDARDISED:
        at["vectors"] = STANDARDISED
    yield Quoted.of(f"effect size d ({each.vectors})", each.effect, unit=unit, **at)
    yield Quoted(metric=f"p of d, two-sided ({each.vectors})", value=each.p.two_sided, at=at)


def swaps(result: SwapResult) -> Iterator[Quoted]:
    for category, each in result.categories.items():
        if each.changed is not None:
            changed = f"decisions changed, % of {each.texts:,} texts"
            yield Quoted.of(changed, each.changed, unit=result.unit, percent=True, category=category)
        yield Quoted.of("scores moved", each.moved, unit=result.unit, category=category)
        if each.accuracy is not None:
            for name, interval in zip(("as it stands", "swapped"), each.accuracy, strict=True):
                yield Quoted.of(f"right {name}, %", interval, unit=result.unit, percent=True, category=category)


FIGURES: Mapping[str, Callable[[Any], Iterator[Quoted]]] = {
    "crows_pairs": crows,
    "stereoset": stereo,
    "winobias": wino,
    "templates": templates,
    "associations": associations,
    "swaps": swaps,
}
"""What a reader would quote of each part."""
