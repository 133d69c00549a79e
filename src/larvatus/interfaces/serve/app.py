"""The application: models in, a FastAPI application out, which uvicorn or a test runs.

app = build_app([load("runs/law")], ServeSettings())
app.state.server.close()                              # ends its threads; uvicorn does so by the lifespan
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.exceptions import HTTPException

from larvatus.core.errors import LarvatusError
from larvatus.core.version import VERSION
from larvatus.inference.model import Model
from larvatus.interfaces.serve.manners import add_manners
from larvatus.interfaces.serve.responses import answer_fault, answer_http
from larvatus.interfaces.serve.routes.documentation import add_documentation
from larvatus.interfaces.serve.routes.health import add_health
from larvatus.interfaces.serve.routes.models import add_models
from larvatus.interfaces.serve.routes.operations import add_operations
from larvatus.interfaces.serve.server import Server
from larvatus.interfaces.serve.settings import ServeSettings

TITLE = "Larvatus"


def build_app(models: Sequence[Model], settings: ServeSettings | None = None) -> FastAPI:
    """Every task of the models behind /v1/…; `app.state.server` is what answers."""
    server = Server.of(models, settings or ServeSettings())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        server.close()

    app = FastAPI(title=TITLE, version=VERSION, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.server = server
    app.add_exception_handler(LarvatusError, answer_fault)
    app.add_exception_handler(HTTPException, answer_http)
    add_models(app, server)
    add_operations(app, server)
    add_health(app, server)
    add_documentation(app)
    add_manners(app, server)
    return app
