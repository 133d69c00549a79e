"""Verify the claims of a card: measure every figure again and compare it within Larvatus's own tolerances.

    Verifier(card_state(path), ClaimedModel(path), DataFinder([path]), RERUN).verify()

A claim must name its weights by checksum and be the only claim of its figure. Figures that only training gives (time
spent, means over seeds) are recorded. All others are measured again, or listed with the data they need. A
`RerunRequest` has the model, the settings and the data of a claim. A card may come from anywhere, so its data are
searched by relative names below known places only: what the user named, the model's directory and the current
directory.

The tolerance depends on the kind of figure, never on the claim, except that a claim states the machine it was measured
on. Nothing else in a card has an influence.

| figure | tolerance |
| --- | --- |
| whole numbers (sizes, counts), words | 0 |
| estimates of energy, computed by a formula | 1e-9 of the value |
| measured in float32 on a CPU, both times | `ROUNDING` |
| measured in bfloat16 or on a GPU, either time | `HALF_PRECISION` |
| the same in per cent or points | a hundred times as much |
| perplexity, which is exp(loss) | as its loss, times the value |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from larvatus.core import notebook
from larvatus.core.errors import ArtefactError, DataError, LarvatusError, did_you_mean, printable
from larvatus.core.files import sha256
from larvatus.core.run_identity import VERSION
from larvatus.inference.model import Model, load
from larvatus.models.bundle import manifest as manifests
from larvatus.models.bundle.card import format_claim
from larvatus.models.bundle.claims import PERPLEXITY, STATISTIC, Claim, Data
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.partial_updates import CardState
from larvatus.tasks.registry import column_names
from larvatus.tasks.trainer.card import CHOSEN, TUNING_FACTS
from larvatus.training.pretraining.saving import TRAINING_FACTS

S = TypeVar("S", bound=Struct)


class OnlyRecorded(LarvatusError):
    """Figures of a command that only training gives; they are recorded and not measured again."""


class NotRerunnable(LarvatusError):
    """Figures that need more than data, such as another model."""


class MissingData(DataError):
    """Data of a claim that were not found."""

    def __init__(self, *data: Data) -> None:
        super().__init__(f"needs {', '.join(map(str, data))}")
        self.data = data


class ChangedData(DataError):
    """Data that have the right name but other contents."""

    def __init__(self, data: Data, actual: str, path: Path) -> None:
        super().__init__(f"{path} is not what was measured on: sha256 {actual[:12]}…, claimed {data.sha256[:12]}…")


@dataclass(frozen=True)
class DataFinder:
    places: Sequence[Path]

    def paths(self, data: Data) -> list[Path]:
        """All files of the data, in order. Data of kind `file` are checked against their checksum."""
        paths = [self._path(name, data) for name in data.files or (data.name,)]
        if data.kind == "file":
            actual = sha256(paths[0])
            if actual != data.sha256:
                raise ChangedData(data, actual, paths[0])
        return paths

    def _path(self, name: str, data: Data) -> Path:
        for path in self._candidates(name):
            if path.is_file() or (path.is_dir() and data.kind != "file"):  # a pipe would wait for its writer
                return path
        raise MissingData(data)

    def _candidates(self, name: str) -> Iterator[Path]:
        parts = PurePath(name).parts  # none of "" and "."
        if not parts or "\0" in name:
            return
        ends = [parts[start:] for start in range(len(parts))]
        safe = [end for end in ends if ".." not in end and not PurePath(*end).is_absolute()]
        for place in self.places:
            if place.name and place.name == parts[-1]:
                yield place
            yield from (place.joinpath(*end) for end in safe)


@dataclass(frozen=True)
class ClaimedModel:
    """The model of the claims, loaded on first use."""

    directory: Path
    device: str = "cpu"

    @cached_property
    def bundle(self) -> Bundle:
        return load_bundle(self.directory)

    @cached_property
    def model(self) -> Model:
        return load(self.directory, device=self.device)


@dataclass(frozen=True)
class RerunRequest:
    """Claims that one run measures again: one command, the same data, the same settings."""

    model: ClaimedModel
    finder: DataFinder
    claim: Claim
    """The first of the claims."""

    @property
    def data(self) -> Data:
        """The data set of the claims; refused if they name none."""
        if not self.claim.data:
            raise ArtefactError(f"claim {self.claim.metric} names no data; {self.claim.command} measures on some")
        return self.claim.data[0]

    def paths(self) -> list[Path]:
        """Paths of the data."""
        return self.finder.paths(self.data)

    def files(self) -> list[Path]:
        """Paths of several data files, each named and checked by itself."""
        if not self.claim.data or any(data.kind != "file" for data in self.claim.data):
            raise ArtefactError(f"claim {self.claim.metric} names no files; {self.claim.command} measures on some")
        paths, missing = [], []
        for data in self.claim.data:
            try:
                paths += self.finder.paths(data)
            except MissingData:
                missing.append(data)
        if missing:  # name all of them, so that a reader fetches them at once
            raise MissingData(*missing)
        return paths

    def columns(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Column names, checked against those that commands know."""
        for name, value in given.items():
            if name not in column_names():
                raise ArtefactError(f"claim {self.claim.metric}: settings: {printable(name)!r} is no column")
            if not isinstance(value, str | bool | None):
                raise ArtefactError(f"claim {self.claim.metric}: settings: column {name} is no name")
        return dict(given)

    def settings(self, kind: type[S], settings: Mapping[str, Any] | None = None) -> S:
        """The settings of the claims as a struct; anything that does not fit is refused."""
        try:
            return msgspec.convert(dict(self.claim.settings if settings is None else settings), kind)
        except msgspec.ValidationError as fault:
            raise ArtefactError(f"claim {self.claim.metric}: settings: {fault}") from fault


Rerun = Callable[[RerunRequest], Iterable[Claim]]
"""Measures some claims again."""


# Verification.

Verdict = Literal["same", "recorded", "missing data", "differs", "changed data", "other weights", "unsigned", "failed"]
GOOD: tuple[Verdict, ...] = ("same", "recorded", "missing data")
RUN_APART = ("metric", "language", "category", "group", "statistic")
"""Settings in which the figures of one run may differ."""


def _of_pretraining(claim: Claim) -> bool:
    return claim.metric in TRAINING_FACTS


def _of_fine_tuning(claim: Claim) -> bool:
    over_seeds = STATISTIC in claim.settings
    undefined = isinstance(claim.value, str) and bool(claim.data)  # a score that is not a number
    return claim.metric in TUNING_FACTS or claim.metric.startswith(CHOSEN) or over_seeds or undefined


TRAINED: Mapping[str, Callable[[Claim], bool]] = {
    "pretrain": _of_pretraining,
    "finetune": _of_fine_tuning,
    "before and after": lambda claim: True,  # includes figures of the model that training started from
}
"""Commands whose figures only training gives, each with a test of which claims are such figures."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of verifying one claim."""

    claim: Claim
    verdict: Verdict
    again: int | float | str | None = None
    """The value measured now."""
    tolerance: float = 0.0
    """Largest allowed difference from the claim."""
    why: str = ""

    @property
    def line(self) -> str:
        """One line for people."""
        said = f"{self.claim.label} ({self.claim.command})"
        if self.verdict == "same":
            allowed = f" (tolerance {self.tolerance:g})" if self.tolerance else ""
            return f"{said}: claimed {self.claim.value}, recomputed {self.again}{allowed}"
        if self.verdict == "recorded":
            return f"{said}: claimed {self.claim.value}, recorded; training is not run again"
        if self.verdict == "missing data":
            return f"{said}: not verified: {self.why}"
        return f"{said}: {self.why}"

    def to_dict(self) -> dict[str, Any]:
        claim = {"metric": self.claim.label, "command": self.claim.command, "value": self.claim.value}
        return {**claim, "verdict": self.verdict, "again": self.again, "tolerance": self.tolerance, "why": self.why}


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The outcomes of all claims of a card."""

    directory: Path
    outcomes: tuple[Outcome, ...]
    faults: tuple[str, ...] = ()
    """Faults of the whole card, such as a README.md that disagrees with the claims."""

    @property
    def ok(self) -> bool:
        """Whether nothing differs. Claims that could not be measured again do not count as different."""
        return not self.faults and all(outcome.verdict in GOOD for outcome in self.outcomes)

    def of(self, *verdicts: Verdict) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.verdict in verdicts]

    def to_dict(self) -> dict[str, Any]:
        outcomes = [outcome.to_dict() for outcome in self.outcomes]
        return {"directory": str(self.directory), "ok": self.ok, "faults": list(self.faults), "outcomes": outcomes}

    def _repr_html_(self) -> str:
        rows = [(each.claim.label, format_claim(each.claim), each.verdict, each.why) for each in self.outcomes]
        return notebook.table(("figure", "claimed", "verdict", ""), rows)


@dataclass(frozen=True)
class Verifier:
    """Measures the claims of a card again, one run for all claims that share it."""

    state: CardState
    model: ClaimedModel
    finder: DataFinder
    rerun: Mapping[str, Rerun]
    """How the claims of each command are measured again."""

    def verify(self, directory: Path) -> Verification:
        """Check README.md against the claims, then every claim."""
        same_version = self.state.manifest.larvatus == VERSION  # other versions may word the same claims differently
        faults = []
        if self.state.claims and same_version and not self.state.rendered:
            faults = [
                f"README.md does not show what {manifests.NAME} holds; larvatus card {directory} renders it again"
            ]
        return Verification(directory=directory, outcomes=tuple(self.outcomes()), faults=tuple(faults))

    def outcomes(self) -> Iterable[Outcome]:
        """Outcomes in the order of the claims."""
        done: dict[tuple[str, ...], Outcome] = {}
        groups: dict[Any, list[Claim]] = {}
        for claim in self.state.claims:
            refused = self._refused(claim)
            if refused is not None:
                done[claim.key] = refused
            else:
                groups.setdefault(_run_of(claim), []).append(claim)
        done |= {outcome.claim.key: outcome for group in groups.values() for outcome in self._run(group)}
        return [done[claim.key] for claim in self.state.claims]

    def _refused(self, claim: Claim) -> Outcome | None:
        """The outcome of a claim that does not name these weights; None for other claims."""
        digest = self.state.manifest.digest
        if not claim.model:
            why = "names no weights (no checksum of the model); measure it again, and --add it"
            return Outcome(claim=claim, verdict="unsigned", why=why)
        if claim.model != digest:
            why = f"belongs to other weights: {claim.model[:12]}…, and these are {digest[:12]}…"
            return Outcome(claim=claim, verdict="other weights", why=why)
        return None

    def _run(self, claims: list[Claim]) -> Iterable[Outcome]:
        """Measure claims again that share one run."""
        command = claims[0].command
        if command in TRAINED:
            return [_recorded(claim) for claim in claims]
        rerun = self.rerun.get(command)
        try:
            if rerun is None:
                raise MissingData(*claims[0].data) if claims[0].data else NotRerunnable("names no data to measure on")
            again = {claim.key: claim for claim in rerun(RerunRequest(self.model, self.finder, claims[0]))}
        except OnlyRecorded:
            return [Outcome(claim=claim, verdict="recorded") for claim in claims]
        except (MissingData, NotRerunnable) as fault:
            return [Outcome(claim=claim, verdict="missing data", why=str(fault)) for claim in claims]
        except ChangedData as fault:
            return [Outcome(claim=claim, verdict="changed data", why=str(fault)) for claim in claims]
        except LarvatusError as fault:
            return [Outcome(claim=claim, verdict="failed", why=f"cannot be run again: {fault}") for claim in claims]
        return [_compared(claim, again) for claim in claims]


def _recorded(claim: Claim) -> Outcome:
    if TRAINED[claim.command](claim):
        return Outcome(claim=claim, verdict="recorded")
    why = f"unknown metric: {claim.command} records none of this name, and nothing works it out again"
    return Outcome(claim=claim, verdict="failed", why=why)


def _run_of(claim: Claim) -> tuple[Any, ...]:
    settings = {name: value for name, value in claim.settings.items() if name not in RUN_APART}
    return (claim.command, claim.data, claim.seed, msgspec.json.encode(settings))


def _compared(claim: Claim, again: dict[tuple[str, ...], Claim]) -> Outcome:
    recomputed = again.get(claim.key)
    if recomputed is None:
        known = sorted({other.metric for other in again.values()})
        why = f"unknown metric: {claim.command} gives none of this name{did_you_mean(claim.metric, known)}"
        return Outcome(claim=claim, verdict="failed", why=why)
    tolerance = tolerance_of(claim, recomputed)
    why = next(_differences(claim, recomputed, tolerance), "")
    verdict: Verdict = "differs" if why else "same"
    return Outcome(claim=claim, verdict=verdict, again=recomputed.value, tolerance=tolerance, why=why)


def _differences(claim: Claim, again: Claim, tolerance: float) -> Iterator[str]:
    """Differences between a claim and the figure measured now."""
    pairs = [("", claim.value, again.value)]
    if claim.low is not None and claim.high is not None:
        if again.low is None or again.high is None:
            yield f"claimed an interval, {claim.low} to {claim.high}, but has none"
            return
        pairs += [("low end of the interval ", claim.low, again.low), ("high end ", claim.high, again.high)]
        if claim.unit != again.unit:
            yield f"claimed an interval over {claim.unit or 'units it does not name'}, but {again.unit} are resampled"
    for what, before, now in pairs:
        if not _within(before, now, tolerance):
            yield f"{what}claimed {before}, but comes to {now} (tolerance {tolerance:g})"
    if claim.estimate != again.estimate:
        yield f"claimed by another formula than {again.estimate or 'none: it is measured'}"


def _within(before: int | float | str, now: int | float | str, tolerance: float) -> bool:
    if isinstance(before, str) or isinstance(now, str):
        return before == now
    return abs(before - now) <= tolerance


ROUNDING = 1e-4
"""Other libraries and machines add float32 numbers in another order."""
HALF_PRECISION = 5e-3
FORMULA = 1e-9
"""Relative tolerance of estimates."""
ESTIMATED = "energy"
"""Command whose figures are computed by a formula."""


def tolerance_of(claim: Claim, again: Claim) -> float:
    """The absolute tolerance. `again` determines the kind of figure, because this Larvatus measured it."""
    value = again.value
    if isinstance(value, int | str):
        return 0.0
    if again.command == ESTIMATED:
        return FORMULA * abs(value)
    measured = HALF_PRECISION if _coarse(claim) or _coarse(again) else ROUNDING
    if again.metric == PERPLEXITY:
        return measured * abs(value)
    return 100 * measured if again.percent else measured


def _coarse(claim: Claim) -> bool:
    """Whether a figure was measured on a GPU or in bfloat16. A claim without a machine gets the narrow tolerance."""
    on_gpu = bool(claim.machine) and "cpu" not in claim.machine.lower()
    return on_gpu or claim.settings.get("precision") == "bf16"
