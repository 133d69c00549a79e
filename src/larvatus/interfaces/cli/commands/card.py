"""`larvatus card DIR`: render the model card from its claims, add figures, or recompute them.

larvatus card runs/law
larvatus evaluate runs/ner --data test.conll --json > test.json; larvatus card runs/ner --add test.json
larvatus card runs/ner --verify --data held_out/
larvatus card runs/law --watts 310 --intensity 28
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from larvatus.core.errors import ArtefactError, UsageError, printable
from larvatus.core.ranges import Range
from larvatus.core.settings import Flag, Settings
from larvatus.core.tables import Column, Table
from larvatus.evaluation.cards.verify import GOOD, Verdict, Verification
from larvatus.interfaces.api.cards import ModelCard, card, verify_card
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.output import show_part, wide_console
from larvatus.models.bundle.card import format_claim
from larvatus.models.bundle.claims import INTENSITY, WATTS

ENERGY = "Estimate of energy"


class CardRequest(Settings):
    """A model, and what is done with its card."""

    model: Annotated[str, Flag(argument=True, metavar="DIR")]
    """A model directory that Larvatus wrote, or english, the packaged model."""
    add: Annotated[tuple[Path, ...], Flag(metavar="RESULT")] = ()
    """JSON that a command wrote (evaluate --json, audit … --json): its figures are added; repeatable."""
    verify: bool = False
    """Recompute every figure that can be recomputed; write nothing. Differences are shown, with exit code 5."""
    data: Annotated[tuple[Path, ...], Flag(metavar="PATH")] = ()
    """With --verify: where the data of figures are, in addition to DIR and the working directory; repeatable."""
    device: str = "cpu"
    """With --verify: cpu, cuda or auto."""
    as_json: Annotated[bool, Flag("--json")] = False
    """JSON for programs."""


class EnergySettings(Settings, path="--"):
    """Facts about the hardware that replace the built-in table."""

    watts: Annotated[float, WATTS] | None = None
    """Power of one training device."""
    intensity: Annotated[float, INTENSITY] | None = None
    """Grams of CO₂ equivalent of a kWh where it was trained; default: the world's mean, 475."""
    overhead: Annotated[float, Range(1, 100)] | None = None
    """kWh of the data centre for a kWh of the devices (PUE); default: 1."""


@from_structs
def model_card(request: Annotated[CardRequest, Panel()], known: Annotated[EnergySettings, Panel(ENERGY)]) -> None:
    """Render the model card from the claims in larvatus.json, add figures, or recompute all of them (--verify).

    Text of yours before and after the figures is kept. Nothing that a card names is run but Larvatus's own measuring.
    """
    energy = msgspec.structs.asdict(known)
    if request.verify:
        if request.add or any(value is not None for value in energy.values()):
            raise UsageError("--verify writes nothing; leave out --add, --watts, --intensity and --overhead")
        _verify(request)
        return
    if request.data:
        raise UsageError("--data goes with --verify: it names where the data of figures are")
    done = card(request.model, add=request.add, **energy)
    if request.as_json:
        print(json.dumps(done.to_dict(), ensure_ascii=False))
    else:
        _show(done)


def _show(done: ModelCard) -> None:
    console, rows = wide_console(), []
    for claim in done.claims:
        interval = "" if claim.low is None or claim.high is None else f"{claim.low:.4f} to {claim.high:.4f}"
        data = ", ".join(f"{data.name} ({data.sha256[:8]}…)" for data in claim.data)
        cells = (claim.label, format_claim(claim), interval, data, claim.command)
        rows.append(tuple(map(printable, cells)))
    columns = ("figure", Column("value"), "95% interval", "measured on", "command")
    show_part(console, Table(columns, rows, left=len(columns)))
    written = "written" if done.changed else "unchanged"
    console.print(f"{done.directory / 'README.md'}: {len(done.claims)} claims, {written}", markup=False, soft_wrap=True)


def _verify(request: CardRequest) -> None:
    checked = verify_card(request.model, data=request.data, device=request.device)
    if request.as_json:
        print(json.dumps(checked.to_dict(), ensure_ascii=False))
    else:
        _show_outcomes(checked)
    if not checked.ok:
        wrong = len(checked.faults) + len([each for each in checked.outcomes if each.verdict not in GOOD])
        raise ArtefactError(f"{request.model}: {wrong} of its figures cannot be confirmed")


def _show_outcomes(checked: Verification) -> None:
    for outcome in checked.of("same"):
        typer.echo(f"  {printable(outcome.line)}")
    wanted: dict[str, list[str]] = {}
    for outcome in checked.of("missing data"):
        wanted.setdefault(outcome.why, []).append(outcome.claim.label)
    for why, figures in wanted.items():
        typer.echo(printable(f"? not verified: {why}: {', '.join(figures)}"))
    for fault in checked.faults:
        typer.echo(f"! {printable(fault)}")
    for outcome in checked.outcomes:
        if outcome.verdict not in GOOD:
            typer.echo(f"! {printable(outcome.line)}")
    if not checked.outcomes:
        typer.echo(f"{checked.directory} claims nothing yet; larvatus card {checked.directory} begins its claims")
        return
    counts = {name: len(checked.of(*verdicts)) for name, verdicts in COUNTED.items()}
    typer.echo(f"{checked.directory}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))


COUNTED: dict[str, tuple[Verdict, ...]] = {
    "verified": ("same",),
    "recorded (training is not run again)": ("recorded",),
    "not verified because data are missing": ("missing data",),
    "wrong": ("differs", "changed data", "other weights", "unsigned", "failed"),
}
