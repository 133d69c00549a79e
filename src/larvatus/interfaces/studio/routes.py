"""The routes that read: of Runs, of Card, of code to copy.

GET /studio/api/runs                                        the runs there are
GET /studio/api/runs/records?name=law&after=0&stamp=        what one wrote since
GET /studio/api/card?model=law
GET /studio/api/paths                                       where models stand, for code that is copied
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from larvatus.interfaces.studio.cards import card_of
from larvatus.interfaces.studio.folders import Folders
from larvatus.interfaces.studio.models import StudioModels
from larvatus.interfaces.studio.reading import Answer, answered, whole_number
from larvatus.interfaces.studio.run_metrics import describe_run, find_runs, read_records_or_none, run_named


def reading_routes(folders: Folders, models: StudioModels) -> dict[tuple[str, str], Answer]:
    """Each by its method and path."""

    async def runs(request: Request) -> Response:
        return await answered(lambda: list_runs(folders.runs))

    async def records(request: Request) -> Response:
        name, stamp = request.query_params.get("name", ""), request.query_params.get("stamp", "")
        after = whole_number(request, "after")
        return await answered(lambda: read_records_or_none(run_named(folders.runs, name), after=after, stamp=stamp))

    async def card(request: Request) -> Response:
        name = request.query_params.get("model") or None
        return await answered(lambda: card_of(models.directory(name)))

    async def paths(request: Request) -> Response:
        return await answered(lambda: {"paths": models.paths()})

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
