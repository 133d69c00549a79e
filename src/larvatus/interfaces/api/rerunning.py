"""How figures of audits and of suites are worked out again, by the calls that measured them.

    audited_bias(asked)                   # the claims of the same part of the audit, made now

A card may come from anywhere: what it says is read as settings of known names, files are looked up on the shelf, and
no path, model or standardiser that it names is opened. Figures that need one are `NotRerunnable`; those that need
training are `OnlyRecorded`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from larvatus.core import files
from larvatus.core.errors import ArtefactError, DataError, printable
from larvatus.data.text.archives import COMPRESSIONS
from larvatus.evaluation.audit.toxicity.prompts import NEUTRAL
from larvatus.evaluation.cards.request import NotRerunnable, OnlyRecorded, RerunRequest
from larvatus.evaluation.suite.part import SuitePart
from larvatus.evaluation.suite.suites import get_suite
from larvatus.interfaces.api.auditing_bias import audit_bias
from larvatus.interfaces.api.leak_claims import checksum_of_files
from larvatus.interfaces.api.leaks import LeakInputs, LeakSettings, audit_leaks, run_leak_audit
from larvatus.interfaces.api.suite import evaluate_suite
from larvatus.interfaces.api.toxicity import audit_toxicity
from larvatus.interfaces.settings import TextSettings
from larvatus.models.bundle.claim_data import ChangedData, MissingData
from larvatus.models.bundle.claims import Claim

KEYWORDS: Mapping[str, str] = {"crows_pairs": "pairs", "swaps": "test"}
"""Parts of a bias audit whose argument has another name."""


class BiasClaimSettings(Struct, frozen=True, kw_only=True):
    """One part of a bias audit."""

    task: Literal["crows_pairs", "stereoset", "winobias", "templates", "associations", "swaps"]
    samples: int
    permutations: int = 10_000
    most_pairs: int | None = None
    layers: str = "last"
    vectors: str = ""
    """Of standardised vectors, which need a file beside the model."""
    columns: dict[str, Any] = {}
    own_words: bool = False
    """Whether the last file is a list of swaps."""


class LeakClaimSettings(Struct, frozen=True, kw_only=True):
    """How leaks were looked for: in documents, or with canaries."""

    documents: int | None = None
    draws: int = 1
    words: int = 100
    masks: int = 10
    spans: int = 3
    prefix: tuple[int, ...] = ()
    suffix: int | None = None
    exact: int = 10_000
    samples: int = 1_000
    reference: str = ""
    """Checksum of a reference model, which is a model of its own."""
    reading: TextSettings = TextSettings()


class ToxicityClaimSettings(Struct, frozen=True, kw_only=True):
    """How prompts were filled or continued, and judged."""

    top: int | None = None
    samples: int | None = None
    max_tokens: int | None = None
    judge: str = ""
    """Checksum of a classifier, which is a model of its own."""
    neutral_prompts: str = ""


class SuiteClaimSettings(Struct, frozen=True, kw_only=True):
    """One part of a suite."""

    suite: str
    task: str
    quick: bool = False
    layers: str = "last"


def rerun_bias(asked: RerunRequest) -> Sequence[Claim]:
    how = asked.settings(BiasClaimSettings)
    if how.vectors:
        raise NotRerunnable("needs the standardiser of its vectors, which is no part of the model")
    columns = asked.columns(how.columns)
    paths = asked.files()
    given: dict[str, Any] = {}
    if how.own_words:
        if len(paths) < 2:
            raise ArtefactError(f"claim {asked.claim.metric} names no list of swaps after its examples")
        given["swaps"] = paths.pop()
    with tempfile.TemporaryDirectory() as folder:
        source: Any = paths if how.task == "swaps" else paths[0]
        if how.task == "winobias":
            source = folder
            for path in paths:
                shutil.copyfile(path, Path(folder) / path.name)
        given[KEYWORDS.get(how.task, how.task)] = source
        report = audit_bias(
            asked.subject.model,
            **given,
            **columns,
            samples=how.samples,
            permutations=how.permutations,
            most_pairs=how.most_pairs,
            layers=how.layers,
            seed=asked.claim.seed or 0,
        )
    return report.claims


def rerun_leaks(asked: RerunRequest) -> Sequence[Claim]:
    how, seed = asked.settings(LeakClaimSettings), asked.claim.seed or 0
    if how.reference:
        raise NotRerunnable("needs the reference model that was compared with")
    if how.documents is None:
        (canaries,) = asked.files()
        return audit_leaks(
            asked.subject.model, canaries=canaries, exact=how.exact, samples=how.samples, seed=seed
        ).claims
    members, held_out = _sets(asked)
    given = {name: getattr(how, name) for name in ("documents", "draws", "words", "masks", "spans", "prefix", "suffix")}
    sources = LeakInputs(members=members, held_out=held_out)
    report = run_leak_audit(asked.subject.model, sources, LeakSettings(seed=seed, **given), how.reading)
    # checked above: the same files, though they may be found under other names
    return [msgspec.structs.replace(claim, data=asked.claim.data) for claim in report.claims]


def _sets(asked: RerunRequest) -> list[list[Path]]:
    """Files of the training text and of the held-out text, each set with the checksum that was claimed."""
    sets, missing = [], []
    for data in asked.claim.data:
        if data.kind == "files" and not data.files:
            raise NotRerunnable("needs more files than the claim lists")
        try:
            paths = asked.shelf.paths(data)
        except MissingData:
            missing.append(data)
            continue
        if data.kind == "files":
            actual = checksum_of_files(data.files, [files.sha256(path) for path in paths])
            if actual != data.sha256:
                raise ChangedData(data, actual, paths[0])
        sets.append(paths)
    if missing:
        raise MissingData(*missing)
    if len(sets) != 2:
        raise ArtefactError(f"claim {asked.claim.metric} names no training text and held-out text")
    return sets


def rerun_toxicity(asked: RerunRequest) -> Sequence[Claim]:
    how = asked.settings(ToxicityClaimSettings)
    if how.judge:
        raise NotRerunnable(f"needs the classifier that judged, a model of checksum {printable(how.judge[:64])}")
    words, *prompts = asked.files()
    if not prompts and how.neutral_prompts != files.sha256(NEUTRAL):
        raise ArtefactError("the neutral prompts of this Larvatus are others than those that were measured on")
    source = prompts[0] if prompts else None
    given: dict[str, Any] = {"top": how.top, "samples": how.samples, "max_tokens": how.max_tokens}
    return audit_toxicity(asked.subject.model, source, words=words, seed=asked.claim.seed or 0, **given).claims


def rerun_suite(asked: RerunRequest) -> Sequence[Claim]:
    how = asked.settings(SuiteClaimSettings)
    (part,) = get_suite(how.suite).chosen((how.task,))
    if not part.again:
        raise OnlyRecorded(f"{part.name} is fine-tuned")
    with tempfile.TemporaryDirectory() as folder:
        for name, path in zip(_places(asked, part), asked.files(), strict=True):
            place = Path(folder) / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(path.resolve())
        results = evaluate_suite(
            asked.subject.directory,
            data=folder,
            suite=how.suite,
            only=[part.name],
            quick=how.quick,
            layers=how.layers,
            device=asked.device,
            quiet=True,
        )
    if results.unmeasured:
        raise DataError(results.unmeasured[0].why)
    return results.claims


def _places(asked: RerunRequest, part: SuitePart) -> list[str]:
    """Where the files stand in the folder of a suite: places that the part knows, and no others."""
    known = {f"{name}{ending}" for name in (*part.files, *part.may_read) for ending in ("", *COMPRESSIONS)}
    for data in asked.claim.data:
        if data.name not in known:
            raise ArtefactError(f"claim {asked.claim.metric}: {part.name} reads no {printable(data.name)!r}")
    return [data.name for data in asked.claim.data]
