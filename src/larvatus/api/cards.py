"""Model cards whose figures can be checked: render one, add figures, work all out again.

card("runs/law")                                              # README.md anew from the claims in larvatus.json
card("runs/ner", add=["test.json"])                           # with what `evaluate --json` wrote
verify_card("runs/ner", data=["held_out/"]).ok
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from larvatus import files, notebook
from larvatus.api.asked import Asked, Recorded, Subject
from larvatus.api.recomputing import RERUN
from larvatus.bundle.claims import ROUNDING, Claim, Data, claimed, claims_in, merged, written
from larvatus.bundle.energy import WORLD, Draw, energy_claims
from larvatus.bundle.figures import shown
from larvatus.bundle.manifest import NAME as MANIFEST
from larvatus.bundle.packaged import model_path
from larvatus.bundle.rewriting import CardState, card_state, write_card
from larvatus.bundle.shelf import ChangedData, MissingData, Shelf
from larvatus.bundle.sizes import size_claims
from larvatus.errors import ArtefactError, DataError, LarvatusError, UsageError, did_you_mean
from larvatus.nn.device import choose_device
from larvatus.version import VERSION

Verdict = Literal["same", "recorded", "missing data", "differs", "changed data", "other weights", "failed"]
GOOD: tuple[Verdict, ...] = ("same", "recorded", "missing data")
REMEMBERED = ("steps", "tokens", "seed", "hardware", "runtime", "training seconds")
"""What the lineage of a pretrained model says in figures."""
TRAINING_TIME = ("training seconds", "seconds of training")
RUN_APART = ("metric", "language", "category", "group", "statistic")
"""Settings in which figures of one run differ."""


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """A card as it was written."""

    directory: Path
    claims: tuple[Claim, ...]
    changed: bool
    """Whether README.md or larvatus.json had to be written."""

    def to_dict(self) -> dict[str, Any]:
        return {"directory": str(self.directory), "changed": self.changed, "claims": written(self.claims)}

    def _repr_html_(self) -> str:
        rows = [(claim.label, shown(claim), claim.command) for claim in self.claims]
        return notebook.table(("figure", "value", "command"), rows)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one claim."""

    claim: Claim
    verdict: Verdict
    again: int | float | str | None = None
    """The figure as it came out now."""
    why: str = ""

    @property
    def line(self) -> str:
        """For people."""
        said = f"{self.claim.label} ({self.claim.command})"
        if self.verdict == "same":
            return f"{said}: {self.claim.value} again"
        if self.verdict == "recorded":
            return f"{said}: {self.claim.value}, recorded; not run again"
        if self.verdict == "missing data":
            return f"{said}: not verified: {self.why}"
        return f"{said}: {self.why}"

    def to_dict(self) -> dict[str, Any]:
        claim = {"metric": self.claim.label, "command": self.claim.command, "value": self.claim.value}
        return {**claim, "verdict": self.verdict, "again": self.again, "why": self.why}


@dataclass(frozen=True, kw_only=True)
class Verification:
    """Every claim of a card, worked out again where that can be done."""

    directory: Path
    outcomes: tuple[Outcome, ...]
    faults: tuple[str, ...] = ()
    """Of the card as a whole: README.md says otherwise than the claims."""

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
        rows = [(each.claim.label, shown(each.claim), each.verdict, each.why) for each in self.outcomes]
        return notebook.table(("figure", "claimed", "verdict", ""), rows)


def card(
    directory: str | Path,
    *,
    add: Iterable[Any] = (),
    watts: float | None = None,
    intensity: float | None = None,
    overhead: float | None = None,
) -> ModelCard:
    """Render a model's README.md from the claims in its larvatus.json, after adding some.

    Text of yours outside of the figures is kept, and vouched for again.

    Args:
        directory: A model that Larvatus wrote.
        add: Results whose claims are taken over: files that a command wrote with `--json`, what `evaluate` returned,
            or dictionaries. A newer claim of the same figure takes the place of an older one.
        watts: Of one device, for the estimate of energy; else as it was estimated before.
        intensity: Grams of CO₂ equivalent of a kWh, for the estimate; else as before.
        overhead: Energy of the whole data centre for each kWh of the devices (PUE).

    Returns:
        The card: its claims, and whether anything had to be written.

    Example:
        >>> card(directory).claims[0].metric
        'layers'
    """
    where = Path(model_path(directory))
    state = card_state(where)
    claims = state.claims or tuple(_first_claims(where, state))
    for result in add:
        claims = merged(claims, _added(result, state, where))
    if any(given is not None for given in (watts, intensity, overhead)):
        claims = merged(claims, _energy(claims, where, watts=watts, intensity=intensity, overhead=overhead))
    changed = write_card(where, claims)
    return ModelCard(directory=where, claims=card_state(where).claims, changed=changed)


def _first_claims(directory: Path, state: CardState) -> list[Claim]:
    """What can be said of a model that has no claims, such as one of Larvatus 0.1: its size, and what it remembers."""
    if state.edited:  # a README.md that was edited does not keep a model from being counted
        write_card(directory, ())
    bundle = Subject(directory).bundle
    sizes = size_claims(bundle.network, vocabulary=bundle.tokenizer.size)
    return [*sizes, *_remembered(bundle.lineage)]


def _remembered(lineage: Mapping[str, Any]) -> Iterator[Claim]:
    """Figures of the lineage: how long a model was trained, and scores that fine-tuning had on held-out examples."""
    for name in REMEMBERED:
        if isinstance(value := lineage.get(name), int | float | str) and not isinstance(value, bool):
            yield claimed(name, value, command="pretrain", versions={}, date="", machine="")
    scores, dev = lineage.get("scores"), lineage.get("dev")
    if isinstance(scores, Mapping) and isinstance(dev, Mapping):
        data = Data(name=str(dev.get("name")), sha256=str(dev.get("sha256")), kind="examples")
        for name, value in scores.items():
            if isinstance(value, int | float) and math.isfinite(value):
                yield claimed(
                    name, value, command="evaluate", data=(data,), tolerance=ROUNDING, versions={}, date="", machine=""
                )


def _added(result: Any, state: CardState, directory: Path) -> tuple[Claim, ...]:
    if isinstance(result, str | Path):
        claims = claims_in(files.read_json(Path(result), DataError), result)
    elif (carried := getattr(result, "claims", None)) is not None:
        claims = tuple(carried)
    else:
        claims = claims_in(result, type(result).__name__)
    others = [claim for claim in claims if claim.model and claim.model != state.manifest.digest]
    if others:
        raise DataError(
            f"{result if isinstance(result, str | Path) else 'what is added'} is of another model than {directory} "
            f"({others[0].model[:12]}…, not {state.manifest.digest[:12]}…); measure this one"
        )
    return claims


def _energy(
    claims: Sequence[Claim], directory: Path, *, watts: float | None, intensity: float | None, overhead: float | None
) -> tuple[Claim, ...]:
    """The estimate anew, with what is known better."""
    before = next((claim.settings for claim in claims if claim.command == "energy"), None)
    if before is None:
        seconds = [claim.value for claim in claims if claim.metric in TRAINING_TIME]
        if not seconds or watts is None:
            what = "how long it was trained" if not seconds else "what trained it: give --watts"
            raise UsageError(f"{directory} does not say {what}; its energy cannot be estimated")
        before = {"watts": watts, "seconds": float(seconds[0]), "intensity": WORLD}
    given = {"watts": watts, "intensity": intensity, "overhead": overhead}
    known = {name: value for name, value in given.items() if value is not None}
    source = {"source": "watts as stated"} if watts is not None else {}
    return energy_claims(msgspec.convert({**before, **known, **source}, Draw))


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
            "renders its figures anew"
        )
    same_version = state.manifest.larvatus == VERSION  # another may render the same claims in other words
    faults = []
    if state.claims and same_version and not state.rendered:
        faults = [f"README.md does not say what {MANIFEST} holds; larvatus card {where} renders it anew"]
    places = [Path(place) for place in data]
    for place in places:
        if not place.exists():
            raise UsageError(f"--data {place} is not there")
    work = _Verifying(state, Subject(where, str(choose_device(device))), Shelf([*places, where, Path()]))
    return Verification(directory=where, outcomes=tuple(work.outcomes()), faults=tuple(faults))


@dataclass(frozen=True)
class _Verifying:
    state: CardState
    subject: Subject
    shelf: Shelf

    def outcomes(self) -> Iterable[Outcome]:
        """In the order of the claims."""
        groups: dict[Any, list[Claim]] = {}
        for claim in self.state.claims:
            groups.setdefault(_run_of(claim), []).append(claim)
        done = {outcome.claim.key: outcome for group in groups.values() for outcome in self._run(group)}
        return [done[claim.key] for claim in self.state.claims]

    def _run(self, claims: list[Claim]) -> Iterable[Outcome]:
        """One run answers all these claims."""
        rerun = RERUN.get(claims[0].command)
        if rerun is None:
            return [self._recorded(claim) for claim in claims]
        try:
            again = {claim.key: claim for claim in rerun(Asked(self.subject, self.shelf, claims[0]))}
        except Recorded:
            return [self._recorded(claim) for claim in claims]
        except MissingData as fault:
            return [Outcome(claim=claim, verdict="missing data", why=str(fault)) for claim in claims]
        except ChangedData as fault:
            return [Outcome(claim=claim, verdict="changed data", why=str(fault)) for claim in claims]
        except LarvatusError as fault:
            return [Outcome(claim=claim, verdict="failed", why=f"cannot be run again: {fault}") for claim in claims]
        return [_compared(claim, again) for claim in claims]

    def _recorded(self, claim: Claim) -> Outcome:
        if claim.model and claim.model != self.state.manifest.digest:
            why = f"of other weights: {claim.model[:12]}…, and these are {self.state.manifest.digest[:12]}…"
            return Outcome(claim=claim, verdict="other weights", why=why)
        return Outcome(claim=claim, verdict="recorded")


def _run_of(claim: Claim) -> tuple[Any, ...]:
    settings = {name: value for name, value in claim.settings.items() if name not in RUN_APART}
    return (claim.command, claim.data, claim.seed, msgspec.json.encode(settings))


def _compared(claim: Claim, again: dict[tuple[str, ...], Claim]) -> Outcome:
    anew = again.get(claim.key)
    if anew is None:
        known = sorted({other.metric for other in again.values()})
        why = f"unknown metric: {claim.command} gives none of this name{did_you_mean(claim.metric, known)}"
        return Outcome(claim=claim, verdict="failed", why=why)
    pairs = [("", claim.value, anew.value)]
    if claim.low is not None and anew.low is not None:
        pairs += [("low end of the interval ", claim.low, anew.low), ("high end ", claim.high or 0, anew.high or 0)]
    for what, before, now in pairs:
        if not _within(before, now, claim.tolerance):
            why = f"{what}claimed {before}, but comes to {now} (tolerance {claim.tolerance:g})"
            return Outcome(claim=claim, verdict="differs", again=anew.value, why=why)
    return Outcome(claim=claim, verdict="same", again=anew.value)


def _within(before: int | float | str, now: int | float | str, tolerance: float) -> bool:
    if isinstance(before, str) or isinstance(now, str):
        return before == now
    return abs(before - now) <= tolerance
