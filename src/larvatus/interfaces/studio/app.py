"""The studio: the server's routes, the page, and the further routes that the page uses.

app = build_studio(models, ServeSettings(), Folders(runs=Path("runs")))
app.state.studio_token                    # part of the address: /studio/?token=…
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.applications import Starlette

from larvatus.inference.model import Model
from larvatus.interfaces.serve.app import build_app
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.interfaces.studio.learn import Learner
from larvatus.interfaces.studio.learn_routes import learn_routes
from larvatus.interfaces.studio.middleware import StudioMiddleware
from larvatus.interfaces.studio.models import ServedStudioModels, StudioModels
from larvatus.interfaces.studio.page_files import add_page
from larvatus.interfaces.studio.responses import with_error_responses
from larvatus.interfaces.studio.routes import reading_routes
from larvatus.interfaces.studio.settings import Folders


def build_studio(
    models: Sequence[Model], settings: ServeSettings, folders: Folders, *, device: str = "auto"
) -> FastAPI:
    """The studio around a server with these models; `device` is where Learn trains and runs its models."""
    app = build_app(models, settings)
    names = (settings.host, *settings.host_allowed)
    add_studio(app, ServedStudioModels(app.state.server.served, device), folders, names=names, device=device)
    return app


def add_studio(
    app: Starlette, models: StudioModels, folders: Folders, *, names: Iterable[str] = (), device: str = "auto"
) -> Starlette:
    """Add the studio to an app. `names` are accepted as hosts, as well as names of this machine."""
    token = secrets.token_urlsafe(24)
    learner = Learner(folders, models.publish, device=device)
    routes = {**reading_routes(folders, models), **learn_routes(learner, models)}
    for (method, path), answer in routes.items():
        app.add_route(path, with_error_responses(answer), methods=[method], include_in_schema=False)
    add_page(app)
    app.add_middleware(StudioMiddleware, names=tuple(names), token=token)
    _close_with(app, learner)
    app.state.studio_token = token
    app.state.studio_learner = learner
    return app


def _close_with(app: Starlette, learner: Learner) -> None:
    """Stop the training when the server stops."""
    before = app.router.lifespan_context

    @asynccontextmanager
    async def both(of: Any) -> AsyncIterator[Any]:
        async with before(of) as state:
            try:
                yield state
            finally:
                await asyncio.to_thread(learner.close)

    app.router.lifespan_context = both
