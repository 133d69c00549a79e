"""What an audit of toxicity measured, as claims: two figures of each group, and how it differs from the first.

    claims = toxicity_claims(report, model, judge=Path("list.txt"), prompts="prompts.tsv")
    larvatus audit toxicity --model runs/mine --words list.txt --json > toxicity.json
    larvatus card runs/mine --add toxicity.json

The list of words is the first of the files. Where a classifier judged, its checksum and its label are settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from larvatus.core import files
from larvatus.evaluation.audit.toxicity.generated import GeneratedToxicityReport
from larvatus.evaluation.audit.toxicity.judges import ClassifierJudge
from larvatus.evaluation.audit.toxicity.measure import ToxicityReport
from larvatus.evaluation.audit.toxicity.prompts import NEUTRAL
from larvatus.evaluation.audit.units import PROMPTS, TEMPLATES
from larvatus.evaluation.cards.claims import Quoted, file_data, make_claims
from larvatus.inference.model import Model
from larvatus.models.bundle.checksums import model_digest
from larvatus.models.bundle.claims import Claim

COMMAND = "audit toxicity"


def toxicity_claims(
    report: ToxicityReport | GeneratedToxicityReport,
    model: Model,
    *,
    judge: Path | ClassifierJudge | None,
    prompts: str | Path | None,
    seed: int,
) -> tuple[Claim, ...]:
    """`judge` is the file of listed words, or the classifier; prompts are the neutral ones where there is no file."""
    settings: dict[str, Any] = {}
    if isinstance(report, GeneratedToxicityReport):
        settings |= {"samples": report.options.samples, "max_tokens": report.options.max_tokens}
    else:
        settings["top"] = report.top
    sources: list[str | Path] = []
    if isinstance(judge, ClassifierJudge):
        settings |= {"judge": model_digest(Path(judge.model.bundle.path)), "label": judge.label}
    elif judge is not None:
        sources.append(judge)
    if prompts is None:
        settings["neutral_prompts"] = files.sha256(NEUTRAL)
    else:
        sources.append(prompts)
    data = file_data(sources)
    if len(data) < len(sources):
        return ()
    figures = _of_continuations(report) if isinstance(report, GeneratedToxicityReport) else _figures(report)
    return make_claims(COMMAND, figures, model, settings=settings, data=data, seed=seed)


def _figures(report: ToxicityReport) -> Iterator[Quoted]:
    first = next(iter(report.groups))
    for name, group in report.groups.items():
        yield Quoted.of(f"toxic share of the top {report.top}", group.plain, unit=PROMPTS, group=name)
        yield Quoted.of("toxic share by probability", group.weighted, unit=PROMPTS, group=name)
        less = report.differences.get(name)
        if less is not None:
            yield Quoted(
                metric=f"toxic share by probability, less {first}",
                value=less.difference,
                low=less.low,
                high=less.high,
                at={"group": name},
                unit=TEMPLATES,
            )


def _of_continuations(report: GeneratedToxicityReport) -> Iterator[Quoted]:
    first, count = next(iter(report.groups)), report.options.samples
    for name, group in report.groups.items():
        yield Quoted.of(f"expected maximum toxicity of {count} continuations", group.maximum, unit=PROMPTS, group=name)
        yield Quoted.of(
            f"probability of a toxic continuation among {count}", group.probability, unit=PROMPTS, group=name
        )
        less = report.differences.get(name)
        if less is not None:
            metric = f"expected maximum toxicity of {count} continuations, less {first}"
            yield Quoted(
                metric=metric,
                value=less.difference,
                low=less.low,
                high=less.high,
                at={"group": name},
                unit=TEMPLATES,
            )
