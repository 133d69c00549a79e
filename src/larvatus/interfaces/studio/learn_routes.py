"""The routes of Learn: check a file, train on it, follow the training, stop it.

POST /studio/api/learn/check   {"name": "reviews.csv", "text": "…"}        reports what the file contains; keeps nothing
POST /studio/api/learn/start   {…, "model": "law", "choices": {"epochs": 3}}
GET  /studio/api/learn                                                     state of the training
GET  /studio/api/learn/records?after=0                                     its metrics
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
from larvatus.interfaces.studio.learn_request import ENDINGS, MOST_BYTES, LearnFile, LearnJob, LearnRequest
from larvatus.interfaces.studio.models import StudioModels
from larvatus.interfaces.studio.recognise import LEARNABLE, Recognised, naming_files_only, recognise
from larvatus.interfaces.studio.responses import Answer, json_reply, read_body, run_in_thread, whole_number
from larvatus.interfaces.studio.run_metrics import records_dict


def learn_routes(learner: Learner, models: StudioModels) -> dict[tuple[str, str], Answer]:
    """Routes by method and path."""

    async def state(request: Request) -> Response:
        limits = {"bytes": MOST_BYTES, "endings": list(ENDINGS), "tasks": list(LEARNABLE)}
        return json_reply({**learner.state(), "limits": limits})

    async def records(request: Request) -> Response:
        after, stamp = whole_number(request, "after"), request.query_params.get("stamp", "")
        return await run_in_thread(lambda: _curve(learner, after, stamp))

    async def check_file(request: Request) -> Response:
        given = await read_body(request, LearnFile)
        return await run_in_thread(lambda: _check_file(given))

    async def start(request: Request) -> Response:
        given = await read_body(request, LearnRequest)
        return await run_in_thread(lambda: begin(learner, models, given), status=202)

    async def stop(request: Request) -> Response:
        return await run_in_thread(learner.stop)

    async def resume(request: Request) -> Response:
        return await run_in_thread(learner.resume, status=202)

    root = "/studio/api/learn"
    return {
        ("GET", root): state,
        ("GET", f"{root}/records"): records,
        ("POST", f"{root}/check"): check_file,
        ("POST", f"{root}/start"): start,
        ("POST", f"{root}/stop"): stop,
        ("POST", f"{root}/resume"): resume,
    }


def _check_file(given: LearnFile) -> dict[str, Any]:
    given.check_size()
    with tempfile.TemporaryDirectory(prefix="larvatus-learn-") as folder:
        path = Path(folder) / given.checked_name()
        path.write_text(given.text, encoding="utf-8", newline="")
        with naming_files_only(path.parent):
            return recognise(path, task=given.task, errors=given.errors).without_folder(path.parent)


def begin(learner: Learner, models: StudioModels, given: LearnRequest) -> dict[str, Any]:
    """Store the file, check it again, and start to train on it. Of two requests at once, the second is refused."""
    with learner.beginning:
        return _begin(learner, models, given)


def _begin(learner: Learner, models: StudioModels, given: LearnRequest) -> dict[str, Any]:
    learner.refuse_while_busy()
    given.check_size()
    directory = models.directory(given.model)
    file = given.checked_name()
    name = learner.free_name(PurePosixPath(file).stem)
    path = learner.keep_file(name, file, given.text)
    try:
        with naming_files_only(path.parent):
            recognised = recognise(path, task=given.task, errors=given.errors)
        refuse_errors(recognised, path.parent)
    except Exception:
        path.unlink()
        path.parent.rmdir()
        raise
    job = LearnJob(
        task=recognised.task,
        model=str(directory),
        train=str(path),
        out=str(learner.folders.models / name),
        choices=given.choices,
        errors=given.errors,
        device=learner.device,
    )
    return learner.start(job, name=name)


def refuse_errors(recognised: Recognised, folder: Path) -> None:
    if not recognised.may_learn:
        first = recognised.without_folder(folder)["errors"][0]
        raise DataError(f"{first['message']}: {'; '.join(first['examples'])}".rstrip(": "))


def _curve(learner: Learner, after: int, stamp: str) -> dict[str, Any]:
    return records_dict(learner.folder(), after=after, stamp=stamp)
