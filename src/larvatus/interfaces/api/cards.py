"""Model cards with verifiable figures: render a card, add figures to it, and measure them again.

card("runs/law")                                              # render README.md from the claims in larvatus.json
card("runs/ner", add=["test.json"])                           # add the figures that `evaluate --json` wrote
verify_card("runs/ner", data=["held_out/"]).ok                # measure its figures again (`rerun.py`)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from larvatus.core import files, notebook
from larvatus.core.errors import ArtefactError, DataError, UsageError, printable
from larvatus.evaluation.cards.verify import ClaimedModel, DataFinder, Verification, Verifier
from larvatus.interfaces.api.rerun import RERUN
from larvatus.models.bundle import manifest as manifests
from larvatus.models.bundle.card import format_claim
from larvatus.models.bundle.claims import (
    WORLD,
    Claim,
    Data,
    PowerDraw,
    claim_dicts,
    collect_claims,
    energy_claims,
    make_claim,
    merge_claims,
    size_claims,
)
from larvatus.models.bundle.model_names import model_path
from larvatus.models.bundle.partial_updates import CardState, card_state, write_card
from larvatus.models.nn.device import choose_device
from larvatus.training.pretraining.saving import TRAINING_FACTS

TRAINING_TIME = ("training seconds", "seconds of training")


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """A written card."""

    directory: Path
    claims: tuple[Claim, ...]
    changed: bool
    """Whether README.md or larvatus.json was written."""

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
    """Render a model's README.md from the claims in its larvatus.json, optionally adding claims.

    Your own text outside the figures is kept, and its checksum is updated.

    Args:
        directory: A model that Larvatus wrote.
        add: Results whose claims are added: files that a command wrote with `--json`, results of `evaluate`, or
            dictionaries. A newer claim of the same figure replaces an older one.
        watts: Power of one device for the energy estimate; by default, as estimated before.
        intensity: Grams of CO₂ equivalent per kWh for the estimate; by default, as before.
        overhead: Energy of the whole data centre per kWh of the devices (PUE).

    Returns:
        The card: its claims, and whether anything was written.

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
    """Claims of a model without any, such as one of Larvatus 0.1: its size, and the figures of its lineage."""
    if state.edited:  # an edited README.md does not prevent counting parameters
        write_card(directory, ())
    bundle = ClaimedModel(directory).bundle
    sizes = size_claims(bundle.network, vocabulary=bundle.tokenizer.size, word_layers=bundle.word_layers)
    return [*sizes, *_lineage_claims(bundle.lineage)]


def _lineage_claims(lineage: Mapping[str, Any]) -> Iterator[Claim]:
    """Figures of the lineage: training facts, and validation scores of fine-tuning."""
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
    source = result if isinstance(result, str | Path) else "the added result"
    for claim in claims:
        if not claim.model:
            raise DataError(
                f"{source}: claim {printable(claim.metric)} does not name its model; measure {directory} with this "
                "Larvatus, whose results contain the model's checksum"
            )
        if claim.model != state.manifest.digest:
            raise DataError(
                f"{source} belongs to another model than {directory} ({printable(claim.model[:12])}…, not "
                f"{state.manifest.digest[:12]}…); measure this one"
            )
    return claims


def _energy(
    claims: Sequence[Claim], directory: Path, *, watts: float | None, intensity: float | None, overhead: float | None
) -> tuple[Claim, ...]:
    """The energy estimate with the given values replaced."""
    before = next((claim.settings for claim in claims if claim.command == "energy"), None)
    if before is None:
        seconds = [claim.value for claim in claims if claim.metric in TRAINING_TIME]
        if not seconds or watts is None:
            what = "how long it was trained" if not seconds else "the power of its hardware: give --watts"
            raise UsageError(f"{directory} does not state {what}; its energy cannot be estimated")
        before = {"watts": watts, "seconds": float(seconds[0]), "intensity": WORLD}
    given = {"watts": watts, "intensity": intensity, "overhead": overhead}
    known = {name: value for name, value in given.items() if value is not None}
    source = {"source": "watts as stated"} if watts is not None else {}
    return energy_claims(msgspec.convert({**before, **known, **source}, PowerDraw))


def verify_card(directory: str | Path, *, data: Iterable[str | Path] = (), device: str = "cpu") -> Verification:
    """Measure the claims of a card again, by the functions that measured them. Nothing is written.

    Args:
        directory: A model that Larvatus wrote.
        data: Files and directories to search for the data of claims, in addition to the model's directory and the
            current one.
        device: `cpu`, `cuda` or `auto`.

    Returns:
        The outcome of each claim; `ok` is True if nothing differs.

    Example:
        >>> verify_card(directory).ok
        True
    """
    where = Path(model_path(directory))
    state = card_state(where)
    if state.edited:
        raise ArtefactError(
            f"{where / 'README.md'} does not match its checksum: it was edited; larvatus card {where} keeps your text "
            "and renders its figures again"
        )
    manifests.verify(where, state.manifest)
    model = ClaimedModel(where, str(choose_device(device)))
    return Verifier(state, model, DataFinder([*_places(data), where, Path()]), RERUN).verify(where)


def _places(data: Iterable[str | Path]) -> list[Path]:
    places = [Path(place) for place in data]
    for place in places:
        if not place.exists():
            raise UsageError(f"--data {place} does not exist")
        if not (place.is_file() or place.is_dir()):  # reading a pipe would wait for its writer
            raise UsageError(f"--data {place} is neither a file nor a directory")
    return places
