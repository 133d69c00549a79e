"""The FastAPI application of a server, which uvicorn or a test runs.

app = build_app([load("runs/law")], ServeSettings())
app.state.server.close()                              # ends its threads; uvicorn does this at the end of the lifespan
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.exceptions import HTTPException

from larvatus.core.errors import LarvatusError
from larvatus.core.version import VERSION
from larvatus.inference.model import Model
from larvatus.interfaces.serve.middleware.stack import add_middleware
from larvatus.interfaces.serve.responses import handle_http_exception, handle_larvatus_error
from larvatus.interfaces.serve.routes.health import add_health
from larvatus.interfaces.serve.routes.openapi import add_documentation
from larvatus.interfaces.serve.routes.v1 import add_models, add_operations
from larvatus.interfaces.serve.server import Server
from larvatus.interfaces.serve.settings import ServeSettings

TITLE = "Larvatus"


def build_app(models: Sequence[Model], settings: ServeSettings | None = None) -> FastAPI:
    """An application with every operation of the models below /v1/; `app.state.server` is its `Server`."""
    server = Server.of(models, settings or ServeSettings())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        server.close()

    app = FastAPI(title=TITLE, version=VERSION, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.server = server
    app.add_exception_handler(LarvatusError, handle_larvatus_error)
    app.add_exception_handler(HTTPException, handle_http_exception)
    add_models(app, server)
    add_operations(app, server)
    add_health(app, server)
    add_documentation(app)
    add_middleware(app, server)
    return app
