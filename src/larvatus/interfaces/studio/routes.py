"""The studio's routes that only read: training runs, model cards, paths for code examples.

GET /studio/api/runs                                        all runs
GET /studio/api/runs/records?name=law&after=0&stamp=        new records of a run
GET /studio/api/card?model=law
GET /studio/api/paths                                       directories of models, for code to copy
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from larvatus.core import files
from larvatus.core.regular_files import is_there, read_text
from larvatus.interfaces.studio.models import StudioModels
from larvatus.interfaces.studio.responses import Answer, run_in_thread, whole_number
from larvatus.interfaces.studio.run_metrics import describe_run, find_runs, records_dict, run_named
from larvatus.interfaces.studio.settings import Folders
from larvatus.models.bundle.card import claim_section, format_claim
from larvatus.models.bundle.card_update import card_state
from larvatus.models.bundle.claims import Claim
from larvatus.models.bundle.directory import CARD, LONGEST_CARD
from larvatus.models.bundle.manifest import read_manifest


def reading_routes(folders: Folders, models: StudioModels) -> dict[tuple[str, str], Answer]:
    """Routes by method and path."""

    async def runs(request: Request) -> Response:
        return await run_in_thread(lambda: list_runs(folders.runs))

    async def records(request: Request) -> Response:
        name, stamp = request.query_params.get("name", ""), request.query_params.get("stamp", "")
        after = whole_number(request, "after")
        return await run_in_thread(lambda: records_dict(run_named(folders.runs, name), after=after, stamp=stamp))

    async def card(request: Request) -> Response:
        name = request.query_params.get("model") or None
        return await run_in_thread(lambda: card_of(models.directory(name)))

    async def paths(request: Request) -> Response:
        return await run_in_thread(lambda: {"paths": models.paths()})

    return {
        ("GET", "/studio/api/paths"): paths,
        ("GET", "/studio/api/runs"): runs,
        ("GET", "/studio/api/runs/records"): records,
        ("GET", "/studio/api/card"): card,
    }


def list_runs(folder: Path) -> dict[str, Any]:
    there = find_runs(folder)
    runs = [described for name, run in there.runs.items() if (described := describe_run(name, run)) is not None]
    return {"folder": folder.name, "path": str(folder), "exists": folder.is_dir(), "runs": runs, "whole": there.whole}


def card_of(directory: Path) -> dict[str, Any]:
    """The card of a model that Larvatus wrote, or the README.md of another; `text` is empty if there is none."""
    root = files.standing(directory)
    if read_manifest(root) is None:
        text = read_text(root / CARD, most=LONGEST_CARD) if is_there(root / CARD) else ""
        return {"text": text, "claims": [], "edited": False, "ours": False}
    state = card_state(directory)
    return {
        "text": state.text,
        "claims": [_row(claim) for claim in state.claims],
        "edited": state.edited,
        "ours": True,
    }


def _row(claim: Claim) -> dict[str, Any]:
    return {
        "section": claim_section(claim),
        "figure": claim.label,
        "value": format_claim(claim),
        "low": claim.low,
        "high": claim.high,
        "data": [{"name": data.name, "sha256": data.sha256} for data in claim.data],
        "command": claim.command,
        "estimate": claim.estimate,
        "date": claim.date,
        "machine": claim.machine,
    }
