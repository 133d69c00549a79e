"""The studio's own routes: training runs, model cards, Learn and Search.

    GET  /studio/api/runs                                        all runs
    GET  /studio/api/runs/records?name=law&after=0&stamp=        new records of a run
    GET  /studio/api/card?model=law
    POST /studio/api/picture       {"task": "parse", "record": {…}}          a prediction of the server as a picture
    GET  /studio/api/paths                                       directories of models, for code to copy
    POST /studio/api/learn/check   {"name": "reviews.csv", "text": "…"}    reports what the file contains; keeps nothing
    POST /studio/api/learn/start   {…, "model": "law", "choices": {"epochs": 3}}
    GET  /studio/api/learn                                       state of the training
    GET  /studio/api/learn/records?after=0                       its metrics
    POST /studio/api/learn/stop, /resume
    GET  /studio/api/search                                      state of the build, limits
    POST /studio/api/search/new    {"name": "My notes"}          → {"collection": "my-notes"}
    POST /studio/api/search/file   {"collection": "my-notes", "name": "a.md", "text": "…"}
    POST /studio/api/search/build  {"collection": "my-notes", "model": "english", "column": "body"}
    POST /studio/api/search/stop
    POST /studio/api/search/marks  {"index": "my-notes", "query": "…", "passages": ["…"]}

Questions go to the server's own /v1/search. `marks` explains its results: the words of each passage that match a word
of the question (`inference/search/late_index.py`), and the question and the passages as points in the plane.

Layers, Why and Swap have their routes in `interpreting.py`, Probe in `probing.py`.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from larvatus.core.drawing import STYLE, as_json, element
from larvatus.core.errors import DataError, UsageError, did_you_mean
from larvatus.inference.maps.clusters import principal_components
from larvatus.inference.model import Model, load
from larvatus.inference.search.late_index import QueryWords, match_words
from larvatus.inference.search.text_vectors import unit_vectors
from larvatus.interfaces.serve.responses import NoSuchIndex, NoSuchModel, WrongBody
from larvatus.interfaces.serve.served_models import ServedModels
from larvatus.interfaces.studio.card_view import card_of
from larvatus.interfaces.studio.http import Answer, json_reply, read_body, run_in_thread, whole_number
from larvatus.interfaces.studio.learn import Learner
from larvatus.interfaces.studio.learn_request import (
    ENDINGS,
    LEARNABLE,
    MOST_BYTES,
    LearnFile,
    LearnJob,
    LearnRequest,
    Recognised,
    naming_files_only,
    recognise,
)
from larvatus.interfaces.studio.run_metrics import describe_run, find_runs, records_dict, run_named
from larvatus.interfaces.studio.search import (
    DOCUMENT_ENDINGS,
    MOST_FILES,
    MOST_IN_ALL,
    BuildRequest,
    CollectionFile,
    IndexBuilder,
    MarksRequest,
    NewCollection,
)
from larvatus.interfaces.studio.settings import Folders
from larvatus.tasks.registry import get_task


@dataclass(frozen=True)
class StudioModels:
    """The models of a running server: their directories, and how a newly trained one is served."""

    served: ServedModels
    device: str = "auto"

    def model(self, name: str | None) -> Model:
        """A served model; None for the first. Raises if it is not served."""
        models = self.served.models
        if name is not None and name not in models:
            raise NoSuchModel(f"there is no model {name!r}{did_you_mean(name, models)}")
        return next(iter(models.values()) if name is None else iter([models[name]])).model

    def directory(self, name: str | None) -> Path:
        """Directory of a served model."""
        return Path(self.model(name).bundle.path)

    def publish(self, directory: Path) -> str:
        """Serve a model that was just trained, and return its name."""
        return self.served.add(load(directory, device=self.device)).name

    def paths(self) -> dict[str, str]:
        """Paths for `larvatus.load` in the folder where the studio was started, by name of the model."""
        return {name: str(served.model.bundle.path) for name, served in self.served.models.items()}


class PictureRequest(msgspec.Struct):
    """A prediction as `/v1/TASK` gives it."""

    task: str
    record: dict[str, Any]

    def draw(self) -> Any:
        """The picture as the page builds it, `core/drawing.py`."""
        try:
            drawn = get_task(self.task).draw(self.record)
        except (msgspec.ValidationError, RecursionError) as fault:
            raise WrongBody(f"the record is no prediction of {self.task}: {fault}") from fault
        if drawn is None:
            raise WrongBody(f"there is no picture of the task {self.task}")
        return as_json(element("div", {}, element("style", {}, STYLE), drawn))


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

    async def picture(request: Request) -> Response:
        given = await read_body(request, PictureRequest)
        return await run_in_thread(given.draw)

    return {
        ("POST", "/studio/api/picture"): picture,
        ("GET", "/studio/api/paths"): paths,
        ("GET", "/studio/api/runs"): runs,
        ("GET", "/studio/api/runs/records"): records,
        ("GET", "/studio/api/card"): card,
    }


def list_runs(folder: Path) -> dict[str, Any]:
    there = find_runs(folder)
    runs = [described for name, run in there.runs.items() if (described := describe_run(name, run)) is not None]
    return {"folder": folder.name, "path": str(folder), "exists": folder.is_dir(), "runs": runs, "whole": there.whole}


def learn_routes(learner: Learner, models: StudioModels) -> dict[tuple[str, str], Answer]:
    """Routes by method and path."""

    async def state(request: Request) -> Response:
        limits = {"bytes": MOST_BYTES, "endings": list(ENDINGS), "tasks": list(LEARNABLE)}
        return json_reply({**learner.state(), "limits": limits})

    async def records(request: Request) -> Response:
        after, stamp = whole_number(request, "after"), request.query_params.get("stamp", "")
        return await run_in_thread(lambda: records_dict(learner.folder(), after=after, stamp=stamp))

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
        if given.choices.searches and not recognised.searchable:
            raise UsageError("auto compares ways to classify single texts with one class each; choose what is trained")
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


# Search.

LIMITS = {"bytes": MOST_BYTES, "files": MOST_FILES, "all": MOST_IN_ALL, "endings": list(DOCUMENT_ENDINGS)}


def search_routes(builder: IndexBuilder, models: StudioModels) -> dict[tuple[str, str], Answer]:
    """Routes by method and path."""

    async def state(request: Request) -> Response:
        return await run_in_thread(lambda: {**builder.state(), "indexes": _indexes(models.served), "limits": LIMITS})

    async def new(request: Request) -> Response:
        given = await read_body(request, NewCollection)
        return await run_in_thread(lambda: {"collection": builder.new(given.name)})

    async def file(request: Request) -> Response:
        given = await read_body(request, CollectionFile)
        return await run_in_thread(lambda: {"name": builder.add_file(given)})

    async def build(request: Request) -> Response:
        given = await read_body(request, BuildRequest)
        return await run_in_thread(lambda: builder.start(given), status=202)

    async def stop(request: Request) -> Response:
        return await run_in_thread(builder.stop)

    async def marks(request: Request) -> Response:
        given = await read_body(request, MarksRequest)
        return await run_in_thread(lambda: explain(models.served, given))

    root = "/studio/api/search"
    return {
        ("GET", root): state,
        ("POST", f"{root}/new"): new,
        ("POST", f"{root}/file"): file,
        ("POST", f"{root}/build"): build,
        ("POST", f"{root}/stop"): stop,
        ("POST", f"{root}/marks"): marks,
    }


def _indexes(served: ServedModels) -> list[dict[str, Any]]:
    """All indexes of the server, with their paths for code to copy."""
    return [{**each.describe(), "path": str(each.index.path)} for each in served.indexes.values()]


def explain(served: ServedModels, given: MarksRequest) -> dict[str, Any]:
    """Matching words of each passage, and points of the question (the first) and the passages."""
    indexes = served.indexes
    if given.index not in indexes:
        raise NoSuchIndex(f"there is no index {given.index!r}{did_you_mean(given.index, indexes)}")
    if not given.query.strip() or not all(passage.strip() for passage in given.passages):
        raise UsageError("the question or a passage is empty; write a question")
    index = indexes[given.index].index
    matches = match_words(index.model, given.query, given.passages, rarity=index.rarity)
    vectors_ND = unit_vectors(index.model, [given.query, *given.passages]).astype(np.float64)
    points = principal_components(vectors_ND, 2).tolist() if len(given.passages) > 1 else []
    return {"points": points, **_plain(given, matches)}


def _plain(given: MarksRequest, matches: QueryWords) -> dict[str, Any]:
    passages = [
        [{"start": word.start, "end": word.end, "query": word.query, "strength": word.strength} for word in words]
        for words in matches.passages
    ]
    return {"query_words": [given.query[start:end] for start, end in matches.words], "passages": passages}
