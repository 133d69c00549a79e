"""The routes of Learn: look at a file, learn it, follow, stop.

POST /studio/api/learn/check   {"name": "reviews.csv", "text": "…"}        what it holds; nothing is kept
POST /studio/api/learn/start   {…, "model": "law", "choices": {"epochs": 3}}
GET  /studio/api/learn                                                     how it goes
GET  /studio/api/learn/records?after=0                                     its curve
POST /studio/api/learn/stop, /resume
"""

from __future__ import annotations

import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from larvatus.core.errors import DataError
from larvatus.interfaces.studio.learn import Learner
from larvatus.interfaces.studio.learn_order import ENDINGS, MOST_BYTES, FileGiven, LearnOrder, LearnRequest
from larvatus.interfaces.studio.models import StudioModels
from larvatus.interfaces.studio.reading import Answer, answered, read_body, whole_number
from larvatus.interfaces.studio.recognise import LEARNABLE, Recognised, naming_files_only, recognise
from larvatus.interfaces.studio.replies import reply
from larvatus.interfaces.studio.run_metrics import read_records_or_none


def learn_routes(learner: Learner, models: StudioModels) -> dict[tuple[str, str], Answer]:
    """Each by its method and path."""

    async def state(request: Request) -> Response:
        limits = {"bytes": MOST_BYTES, "endings": list(ENDINGS), "tasks": list(LEARNABLE)}
        return reply({**learner.state(), "limits": limits})

    async def records(request: Request) -> Response:
        after, stamp = whole_number(request, "after"), request.query_params.get("stamp", "")
        return await answered(lambda: _curve(learner, after, stamp))

    async def look(request: Request) -> Response:
        given = await read_body(request, FileGiven)
        return await answered(lambda: _look(given))

    async def start(request: Request) -> Response:
        given = await read_body(request, LearnRequest)
        return await answered(lambda: _begin_alone(learner, models, given), status=202)

    async def stop(request: Request) -> Response:
        return await answered(learner.stop)

    async def resume(request: Request) -> Response:
        return await answered(learner.resume, status=202)

    root = "/studio/api/learn"
    return {
        ("GET", root): state,
        ("GET", f"{root}/records"): records,
        ("POST", f"{root}/check"): look,
        ("POST", f"{root}/start"): start,
        ("POST", f"{root}/stop"): stop,
        ("POST", f"{root}/resume"): resume,
    }


def _look(given: FileGiven) -> dict[str, Any]:
    given.check_size()
    with tempfile.TemporaryDirectory(prefix="larvatus-learn-") as folder:
        path = Path(folder) / given.checked_name()
        path.write_text(given.text, encoding="utf-8", newline="")
        with naming_files_only(path.parent):
            return recognise(path, task=given.task, errors=given.errors).shown(path.parent)


def _begin_alone(learner: Learner, models: StudioModels, given: LearnRequest) -> dict[str, Any]:
    with learner.beginning:
        return begin(learner, models, given)


def begin(learner: Learner, models: StudioModels, given: LearnRequest) -> dict[str, Any]:
    """Keep the file, look at it once more, and train on it."""
    learner.refuse_while_busy()
    given.check_size()
    directory = models.directory(given.model)
    file = given.checked_name()
    name = learner.place_for(PurePosixPath(file).stem)
    path = learner.keep_file(name, file, given.text)
    try:
        with naming_files_only(path.parent):
            seen = recognise(path, task=given.task, errors=given.errors)
        refuse_errors(seen, path.parent)
    except Exception:
        path.unlink()
        path.parent.rmdir()
        raise
    order = LearnOrder(
        task=seen.task,
        model=str(directory),
        train=str(path),
        out=str(learner.folders.models / name),
        choices=given.choices,
        errors=given.errors,
        device=learner.device,
    )
    return learner.start(order, name=name)


def refuse_errors(seen: Recognised, folder: Path) -> None:
    if not seen.may_learn:
        first = seen.shown(folder)["errors"][0]
        raise DataError(f"{first['message']}: {'; '.join(first['examples'])}".rstrip(": "))


def _curve(learner: Learner, after: int, stamp: str) -> dict[str, Any]:
    return read_records_or_none(learner.folder(), after=after, stamp=stamp)
