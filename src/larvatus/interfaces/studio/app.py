"""The studio: the server's routes, the page, and the routes that the page uses.

    app = build_studio(models, ServeSettings(), Folders(runs=Path("runs")))
    app.state.studio_token                    # part of the address: /studio/?token=…

The page is plain files in `page/`, and plotly from its installed package. Nothing is built or downloaded. The browser
revalidates every file, so that a new version of Larvatus shows at once.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from larvatus.core.errors import UsageError
from larvatus.inference.model import Model
from larvatus.interfaces.serve.app import build_app
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.interfaces.studio.http import POLICY, StudioMiddleware, with_error_responses
from larvatus.interfaces.studio.interpreting import interpreting_routes
from larvatus.interfaces.studio.learn import Learner
from larvatus.interfaces.studio.probing import make_prober, probe_routes
from larvatus.interfaces.studio.routes import StudioModels, learn_routes, reading_routes, search_routes
from larvatus.interfaces.studio.search import IndexBuilder
from larvatus.interfaces.studio.settings import Folders

PAGE = Path(__file__).parent / "page"
PLOTLY = "plotly.min.js"


class RevalidatedFiles(StaticFiles):
    """Files that a browser may cache, and revalidates before it uses them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        response.headers["Content-Security-Policy"] = POLICY
        return response


def plotly_folder() -> Path:
    """Folder of plotly's script in the installed package."""
    spec = find_spec("plotly")
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (Path(location) / "package_data" / PLOTLY).is_file():
            return Path(location) / "package_data"
    raise UsageError("the studio plots with plotly: pip install 'larvatus[studio]'")


def add_page(app: Starlette) -> None:
    plotly = RevalidatedFiles(directory=plotly_folder())

    async def script(request: Request) -> Response:
        return await plotly.get_response(PLOTLY, request.scope)

    async def home(request: Request) -> Response:
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"/studio/{query}", status_code=307)

    app.add_route(f"/studio/{PLOTLY}", script, methods=["GET"], include_in_schema=False)
    app.add_route("/", home, methods=["GET"], include_in_schema=False)
    app.mount("/studio", RevalidatedFiles(directory=PAGE, html=True), name="studio")


def build_studio(
    models: Sequence[Model], settings: ServeSettings, folders: Folders, *, device: str = "auto"
) -> FastAPI:
    """The studio around a server with these models; `device` is where Learn trains and runs its models."""
    app = build_app(models, settings, start_page=False)
    names = (settings.host, *settings.host_allowed)
    add_studio(app, StudioModels(app.state.server.served, device), folders, names=names, device=device)
    return app


def add_studio(
    app: Starlette, models: StudioModels, folders: Folders, *, names: Iterable[str] = (), device: str = "auto"
) -> Starlette:
    """Add the studio to an app. `names` are accepted as hosts, as well as names of this machine."""
    token = secrets.token_urlsafe(24)
    learner = Learner(folders, models.publish, device=device)
    prober = make_prober(folders, device)
    builder = IndexBuilder(folders.searched, lambda: models.served)
    routes = {
        **reading_routes(folders, models),
        **learn_routes(learner, models),
        **search_routes(builder, models),
        **interpreting_routes(models),
        **probe_routes(prober, models),
    }
    for (method, path), answer in routes.items():
        app.add_route(path, with_error_responses(answer), methods=[method], include_in_schema=False)
    add_page(app)
    app.add_middleware(StudioMiddleware, names=tuple(names), token=token)
    _close_with(app, learner, prober, builder)
    app.state.studio_token = token
    app.state.studio_learner = learner
    return app


def _close_with(app: Starlette, *jobs: Learner | IndexBuilder) -> None:
    """Stop the training, the probe, and the build of an index, when the server stops."""
    before = app.router.lifespan_context

    @asynccontextmanager
    async def both(of: Any) -> AsyncIterator[Any]:
        async with before(of) as state:
            try:
                yield state
            finally:
                for job in jobs:
                    await asyncio.to_thread(job.close)

    app.router.lifespan_context = both
