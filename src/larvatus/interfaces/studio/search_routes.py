"""Routes of the Search view.

GET  /studio/api/search                                           state of the build, limits
POST /studio/api/search/new    {"name": "My notes"}               → {"collection": "my-notes"}
POST /studio/api/search/file   {"collection": "my-notes", "name": "a.md", "text": "…"}
POST /studio/api/search/build  {"collection": "my-notes", "model": "english", "column": "body"}
POST /studio/api/search/stop
POST /studio/api/search/marks  {"index": "my-notes", "query": "…", "passages": ["…"]}   matching words, and a map

Questions go to the server's own /v1/search. `marks` explains its results: the words of each passage that match a word
of the question (`inference/search/late_index.py`), and the question and the passages as points in the plane.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from larvatus.core.errors import UsageError, did_you_mean
from larvatus.inference.maps.clusters import principal_components
from larvatus.inference.search.late_index import QueryWords, match_words
from larvatus.inference.search.text_vectors import unit_vectors
from larvatus.interfaces.serve.errors import NoSuchIndex
from larvatus.interfaces.serve.served_models import ServedModels
from larvatus.interfaces.studio.http import Answer, read_body, run_in_thread
from larvatus.interfaces.studio.learn_request import MOST_BYTES
from larvatus.interfaces.studio.routes import StudioModels
from larvatus.interfaces.studio.search import IndexBuilder
from larvatus.interfaces.studio.search_request import (
    ENDINGS,
    MOST_FILES,
    MOST_IN_ALL,
    BuildRequest,
    CollectionFile,
    MarksRequest,
    NewCollection,
)

LIMITS = {"bytes": MOST_BYTES, "files": MOST_FILES, "all": MOST_IN_ALL, "endings": list(ENDINGS)}


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
