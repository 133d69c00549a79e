"""Work out every claim of a card again, by the functions that measured it, within tolerances of this Larvatus.

    verify_card("runs/ner", data=["held_out/"]).ok

A claim must name the weights that it is of by their checksum, and be the only one of its figure. What training gives
(how long it took, means over seeds) is recorded; all else is worked out again, or named with the data that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from larvatus.core import notebook
from larvatus.core.errors import ArtefactError, LarvatusError, UsageError, did_you_mean
from larvatus.core.version import VERSION
from larvatus.evaluation.cards.request import ClaimedModel, NotRerunnable, OnlyRecorded, RerunRequest
from larvatus.interfaces.api.recomputing import RERUN
from larvatus.models.bundle import manifest as manifests
from larvatus.models.bundle.card_update import CardState, card_state
from larvatus.models.bundle.claim_data import ChangedData, DataFinder, MissingData
from larvatus.models.bundle.claims import STATISTIC, Claim
from larvatus.models.bundle.figures import format_claim
from larvatus.models.bundle.model_names import model_path
from larvatus.models.bundle.tolerances import tolerance_of
from larvatus.models.nn.device import choose_device
from larvatus.tasks.trainer.claims import CHOSEN, TUNING_FACTS
from larvatus.training.pretraining.saving import TRAINING_FACTS

Verdict = Literal["same", "recorded", "missing data", "differs", "changed data", "other weights", "unsigned", "failed"]
GOOD: tuple[Verdict, ...] = ("same", "recorded", "missing data")
RUN_APART = ("metric", "language", "category", "group", "statistic")
"""Settings in which figures of one run differ."""


def _of_pretraining(claim: Claim) -> bool:
    return claim.metric in TRAINING_FACTS


def _of_fine_tuning(claim: Claim) -> bool:
    over_seeds = STATISTIC in claim.settings
    undefined = isinstance(claim.value, str) and bool(claim.data)  # a score that is not a number
    return claim.metric in TUNING_FACTS or claim.metric.startswith(CHOSEN) or over_seeds or undefined


TRAINED: Mapping[str, Callable[[Claim], bool]] = {
    "pretrain": _of_pretraining,
    "finetune": _of_fine_tuning,
    "before and after": lambda claim: True,  # of the model that training went on from, too
}
"""Commands whose figures only training gives, and which of their claims are such figures."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one claim."""

    claim: Claim
    verdict: Verdict
    again: int | float | str | None = None
    """The figure as it came out now."""
    tolerance: float = 0.0
    """How far it may be from the claim, by this Larvatus."""
    why: str = ""

    @property
    def line(self) -> str:
        """For people."""
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
    """Every claim of a card, worked out again where that can be done."""

    directory: Path
    outcomes: tuple[Outcome, ...]
    faults: tuple[str, ...] = ()
    """Faults of the whole card: README.md disagrees with the claims."""

    @property
    def ok(self) -> bool:
        """Whether nothing differs; what could not be worked out again is no difference."""
        return not self.faults and all(outcome.verdict in GOOD for outcome in self.outcomes)

    def of(self, *verdicts: Verdict) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.verdict in verdicts]

    def to_dict(self) -> dict[str, Any]:
        outcomes = [outcome.to_dict() for outcome in self.outcomes]
        return {"directory": str(self.directory), "ok": self.ok, "faults": list(self.faults), "outcomes": outcomes}

    def _repr_html_(self) -> str:
        rows = [(each.claim.label, format_claim(each.claim), each.verdict, each.why) for each in self.outcomes]
        return notebook.table(("figure", "claimed", "verdict", ""), rows)


def verify_card(directory: str | Path, *, data: Iterable[str | Path] = (), device: str = "cpu") -> Verification:
    """Work out again every claim of a card that can be, by the functions that measured it; nothing is written.

    Args:
        directory: A model that Larvatus wrote.
        data: Files and directories where the data of claims are looked for, besides the model's own directory and the
            current one.
        device: `cpu`, `cuda` or `auto`.

    Returns:
        What became of each claim; `ok` where nothing differs.

    Example:
        >>> verify_card(directory).ok
        True
    """
    where = Path(model_path(directory))
    state = card_state(where)
    if state.edited:
        raise ArtefactError(
            f"{where / 'README.md'} was changed since it was vouched for; larvatus card {where} keeps your text and "
            "renders its figures again"
        )
    manifests.verify(where, state.manifest)
    same_version = state.manifest.larvatus == VERSION  # another may render the same claims in other words
    faults = []
    if state.claims and same_version and not state.rendered:
        faults = [f"README.md does not say what {manifests.NAME} holds; larvatus card {where} renders it again"]
    work = _Verifying(
        state, ClaimedModel(where, str(choose_device(device))), DataFinder([*_places(data), where, Path()])
    )
    return Verification(directory=where, outcomes=tuple(work.outcomes()), faults=tuple(faults))


def _places(data: Iterable[str | Path]) -> list[Path]:
    places = [Path(place) for place in data]
    for place in places:
        if not place.exists():
            raise UsageError(f"--data {place} is not there")
        if not (place.is_file() or place.is_dir()):  # reading a pipe would wait for its writer
            raise UsageError(f"--data {place} is neither a file nor a directory")
    return places


@dataclass(frozen=True)
class _Verifying:
    state: CardState
    subject: ClaimedModel
    shelf: DataFinder

    def outcomes(self) -> Iterable[Outcome]:
        """In the order of the claims."""
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
        """Claims that do not name these weights."""
        digest = self.state.manifest.digest
        if not claim.model:
            why = "does not say of which weights it is (no checksum of the model); measure it again, and --add it"
            return Outcome(claim=claim, verdict="unsigned", why=why)
        if claim.model != digest:
            why = f"of other weights: {claim.model[:12]}…, and these are {digest[:12]}…"
            return Outcome(claim=claim, verdict="other weights", why=why)
        return None

    def _run(self, claims: list[Claim]) -> Iterable[Outcome]:
        """One run answers all these claims."""
        command = claims[0].command
        if command in TRAINED:
            return [_recorded(claim) for claim in claims]
        rerun = RERUN.get(command)
        try:
            if rerun is None:
                raise MissingData(*claims[0].data) if claims[0].data else NotRerunnable("names no data to measure on")
            again = {claim.key: claim for claim in rerun(RerunRequest(self.subject, self.shelf, claims[0]))}
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
    anew = again.get(claim.key)
    if anew is None:
        known = sorted({other.metric for other in again.values()})
        why = f"unknown metric: {claim.command} gives none of this name{did_you_mean(claim.metric, known)}"
        return Outcome(claim=claim, verdict="failed", why=why)
    tolerance = tolerance_of(claim, anew)
    why = next(_differences(claim, anew, tolerance), "")
    verdict: Verdict = "differs" if why else "same"
    return Outcome(claim=claim, verdict=verdict, again=anew.value, tolerance=tolerance, why=why)


def _differences(claim: Claim, again: Claim, tolerance: float) -> Iterator[str]:
    """Whatever a card shows and this Larvatus does not find."""
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
