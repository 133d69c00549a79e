"""Claims of a model card from measured results: figures with their data, settings, seed and the model's checksum.

    make_claims("audit bias", result.figures(), model, settings={"samples": 1000}, data=file_data([path]), seed=0)

Audits and suites attach these claims to their reports: `--json` writes them and `larvatus card DIR --add` reads them.
Data in memory have no claims, because nobody could find them again. int8 weights have none either, as in `evaluate`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from larvatus.core import files
from larvatus.evaluation.audit.bias.report import BiasReport
from larvatus.evaluation.audit.leaks import LeakReport
from larvatus.evaluation.audit.toxicity.generated import GeneratedToxicityReport
from larvatus.evaluation.audit.toxicity.judges import ClassifierJudge
from larvatus.evaluation.audit.toxicity.measure import NEUTRAL, ToxicityReport
from larvatus.evaluation.suite.part import SuiteFigure, SuiteModel
from larvatus.evaluation.suite.results import ROLES, PartRecord, SuiteResults
from larvatus.inference.model import Model
from larvatus.metrics.figures import Figure
from larvatus.models.bundle.checksums import model_digest
from larvatus.models.bundle.claims import Claim, Data, make_claim
from larvatus.models.network import int8_weights
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.saving import hardware

MOST_FILES = 100
"""Files that a claim lists by name, so that `card --verify` finds them. Figures on more files are only recorded."""
VERSIONS = ("larvatus", "torch", "python")


def make_claims(
    command: str,
    figures: Iterable[Figure],
    model: Model,
    *,
    settings: Mapping[str, Any],
    data: tuple[Data, ...],
    seed: int | None,
) -> tuple[Claim, ...]:
    """One claim for each finite figure, all with the same settings, data and seed."""
    if int8_weights(model.network):
        return ()
    device, digest = str(model.device), model_digest(Path(model.bundle.path))
    return tuple(
        make_claim(
            figure.metric,
            figure.value,
            **interval_fields(figure),
            command=command,
            settings={**settings, **figure.conditions},
            data=data,
            seed=seed,
            percent=figure.percent,
            model=digest,
            machine=hardware(Runtime(device=device)),
        )
        for figure in figures
        if math.isfinite(figure.value)
    )


def interval_fields(figure: Figure) -> dict[str, Any]:
    """Ends and unit of the interval as fields of a claim; empty if there is no interval."""
    if figure.interval is None:
        return {}
    low, high = figure.interval
    return {"low": low, "high": high, "unit": figure.unit}


def file_data(sources: Sequence[Any]) -> tuple[Data, ...]:
    """Files with their checksums; empty unless every source is a file."""
    paths = [Path(source) for source in sources if isinstance(source, str | Path)]
    if len(paths) < len(sources) or not all(path.is_file() for path in paths):
        return ()
    return tuple(Data(name=str(path), sha256=files.sha256(path.resolve())) for path in paths)  # may be a link


def checksum_of_files(names: Sequence[str], checksums: Sequence[str]) -> str:
    """One checksum over the names and checksums of several files."""
    lines = "".join(f"{name} {checksum}\n" for name, checksum in zip(names, checksums, strict=True))
    return hashlib.sha256(lines.encode()).hexdigest()


def bias_claims(
    report: BiasReport, model: Model, *, sources: Mapping[str, Sequence[Any]], swap_settings: Mapping[str, Any]
) -> tuple[Claim, ...]:
    """Claims of every part of a bias audit.

    `sources` are the files of each part; `swap_settings` say how examples were read and swapped.
    """
    depends = {"associations": ("permutations", "layers"), "crows_pairs": ("most_pairs",)}
    claims: list[Claim] = []
    for name, part in report.parts.items():
        if not (data := file_data(sources[name])):
            continue
        given = {each: report.settings[each] for each in ("samples", *depends.get(name, ()))}
        settings = {each: value for each, value in given.items() if value is not None}
        settings = {"task": name, **settings, **(swap_settings if name == "swaps" else {})}
        seed = report.settings["seed"]
        claims += make_claims("audit bias", part.figures(), model, settings=settings, data=data, seed=seed)
    return tuple(claims)


def leak_claims(
    report: LeakReport,
    model: Model,
    *,
    sources: Mapping[str, Sequence[Any]],
    settings: Mapping[str, Mapping[str, Any]],
    seed: int,
) -> tuple[Claim, ...]:
    """Claims of a leak audit. `sources` are files and `settings` what figures depend on: for `canaries`, and for
    `texts` (`members` and `held_out`)."""
    planted, members, held_out = (_file_set(sources.get(name, ())) for name in ("canaries", "members", "held_out"))
    claims: tuple[Claim, ...] = ()
    if report.exposure is not None and planted:
        figures: Iterable[Figure] = report.exposure.figures()
        claims += make_claims("audit leaks", figures, model, settings=settings["canaries"], data=planted, seed=seed)
    if members and held_out:
        parts = [part for part in (report.membership, report.restoration, report.extraction) if part is not None]
        figures = chain.from_iterable(part.figures() for part in parts)
        texts = (*members, *held_out)
        claims += make_claims("audit leaks", figures, model, settings=settings["texts"], data=texts, seed=seed)
    return claims


def _file_set(sources: Sequence[Any]) -> tuple[Data, ...]:
    """A single file as it is; several files as one set with one checksum."""
    several = file_data(sources)
    if len(several) < 2:
        return several
    names = tuple(data.name for data in several)
    listed = names if len(names) <= MOST_FILES else ()
    checksum = checksum_of_files(names, [data.sha256 for data in several])
    return (Data(name=f"{names[0]} and {len(names) - 1:,} more", sha256=checksum, kind="files", files=listed),)


def toxicity_claims(
    report: ToxicityReport | GeneratedToxicityReport,
    model: Model,
    *,
    judge: Path | ClassifierJudge | None,
    prompts: str | Path | None,
    seed: int,
) -> tuple[Claim, ...]:
    """Claims of a toxicity audit. `judge` is the word list's file or the classifier; `prompts` are the neutral ones if
    None. The word list is the first of the files. A classifier's checksum and label are settings."""
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
    return make_claims("audit toxicity", report.figures(), model, settings=settings, data=data, seed=seed)


def suite_claims(results: SuiteResults, model: SuiteModel) -> tuple[Claim, ...]:
    """Claims of a suite's first model, made from its records: parts measured by an earlier run keep its date, versions
    and machine. A fine-tuned part claims the mean over seeds, and the deviation if there are several."""
    if int8_weights(model.bundle.network):
        return ()
    digest = model_digest(model.path)
    return tuple(
        claim
        for record in results.records.get(ROLES[0], {}).values()
        for figure in record.figures
        for claim in _part_claims(record, figure, suite=results.suite.name, model=digest)
    )


def _part_claims(record: PartRecord, row: SuiteFigure, *, suite: str, model: str) -> Iterator[Claim]:
    known: dict[str, Any] = {
        "command": "evaluate suite",
        "settings": {"suite": suite, **_part_settings(record, row)},
        "data": tuple(Data(name=name, sha256=checksum) for name, checksum in record.of["data"].items()),
        "model": model,
        "versions": {name: str(record.machine[name]) for name in VERSIONS},
        "date": record.made[:10],
        "machine": str(record.machine["device"]),
    }
    figure = row.figure()
    if figure is not None and math.isfinite(figure.value):
        yield make_claim(figure.metric, figure.value, **interval_fields(figure), **known)
    if row.deviation is not None:
        yield make_claim(f"{row.measure}, deviation over {len(row.seeds)} seeds", row.deviation, **known)


def _part_settings(record: PartRecord, row: SuiteFigure) -> dict[str, Any]:
    given = {name: value for name, value in record.of["settings"].items() if value not in (None, False)}
    settings = {"task": record.part, **given, **({"seeds": list(row.seeds)} if row.seeds else {})}
    if row.id != record.part and row.name.lower() != record.part:  # several figures of one part
        settings["category"] = row.name
    return settings | ({"conditions": row.conditions} if row.conditions else {})
