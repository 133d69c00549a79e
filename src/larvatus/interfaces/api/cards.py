"""Model cards whose figures can be checked: render one, and add figures (`verifying.py` works them out again).

card("runs/law")                                              # README.md anew from the claims in larvatus.json
card("runs/ner", add=["test.json"])                           # with what `evaluate --json` wrote
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from larvatus.core import files, notebook
from larvatus.core.errors import DataError, UsageError, printable
from larvatus.evaluation.cards.request import ClaimedModel
from larvatus.models.bundle.card_update import CardState, card_state, write_card
from larvatus.models.bundle.claims import Claim, Data, claim_dicts, collect_claims, make_claim, merge_claims
from larvatus.models.bundle.energy import WORLD, PowerDraw, energy_claims
from larvatus.models.bundle.figures import format_claim
from larvatus.models.bundle.model_names import model_path
from larvatus.models.bundle.sizes import size_claims
from larvatus.training.pretraining.saving import TRAINING_FACTS

TRAINING_TIME = ("training seconds", "seconds of training")


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """A card as it was written."""

    directory: Path
    claims: tuple[Claim, ...]
    changed: bool
    """Whether README.md or larvatus.json had to be written."""

    def to_dict(self) -> dict[str, Any]:
        return {"directory": str(self.directory), "changed": self.changed, "claims": claim_dicts(self.claims)}

    def _repr_html_(self) -> str:
        rows = [(claim.label, format_claim(claim), claim.command) for claim in self.claims]
        return notebook.table(("figure", "value", "command"), rows)


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
        claims = merge_claims(claims, _added(result, state, where))
    if any(given is not None for given in (watts, intensity, overhead)):
        claims = merge_claims(claims, _energy(claims, where, watts=watts, intensity=intensity, overhead=overhead))
    changed = write_card(where, claims)
    return ModelCard(directory=where, claims=card_state(where).claims, changed=changed)


def _first_claims(directory: Path, state: CardState) -> list[Claim]:
    """What can be said of a model that has no claims, such as one of Larvatus 0.1: its size, and what it remembers."""
    if state.edited:  # a README.md that was edited does not keep a model from being counted
        write_card(directory, ())
    bundle = ClaimedModel(directory).bundle
    sizes = size_claims(bundle.network, vocabulary=bundle.tokenizer.size)
    return [*sizes, *_remembered(bundle.lineage)]


def _remembered(lineage: Mapping[str, Any]) -> Iterator[Claim]:
    """Figures of the lineage: how long a model was trained, and scores that fine-tuning had on held-out examples."""
    for name in TRAINING_FACTS:
        if isinstance(value := lineage.get(name), int | float | str) and not isinstance(value, bool):
            yield make_claim(name, value, command="pretrain", versions={}, date="", machine="")
    scores, dev = lineage.get("scores"), lineage.get("dev")
    if isinstance(scores, Mapping) and isinstance(dev, Mapping):
        data = Data(name=str(dev.get("name")), sha256=str(dev.get("sha256")), kind="examples")
        for name, value in scores.items():
            if isinstance(value, int | float) and math.isfinite(value):
                yield make_claim(name, value, command="evaluate", data=(data,), versions={}, date="", machine="")


def _added(result: Any, state: CardState, directory: Path) -> tuple[Claim, ...]:
    if isinstance(result, str | Path):
        claims = collect_claims(files.read_json(Path(result), DataError), result)
    elif (carried := getattr(result, "claims", None)) is not None:
        claims = tuple(carried)
    else:
        claims = collect_claims(result, type(result).__name__)
    said = result if isinstance(result, str | Path) else "what is added"
    for claim in claims:
        if not claim.model:
            raise DataError(
                f"{said}: claim {printable(claim.metric)} does not say of which model it is; measure {directory} with "
                "this Larvatus, whose results carry its checksum"
            )
        if claim.model != state.manifest.digest:
            raise DataError(
                f"{said} is of another model than {directory} ({printable(claim.model[:12])}…, not "
                f"{state.manifest.digest[:12]}…); measure this one"
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
    return energy_claims(msgspec.convert({**before, **known, **source}, PowerDraw))
