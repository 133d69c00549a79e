"""The FastAPI application of a server with its routes, which uvicorn or a test runs.

    app = build_app([load("runs/law")], ServeSettings())
    app.state.server.close()                    # ends its threads; uvicorn does this at the end of the lifespan

`POST /v1/NAME` runs an operation: body in, `{"model": …, "results": […]}` out. `GET /v1/models` lists the models.

`GET /healthz` reports whether a forward pass of every encoder works, through the same queue as every request. The
server is red from a failed pass until one succeeds. A check of a red server reports the failure even if its own pass
succeeds, so that the next reader sees it; that pass turns the server green. Checks at the same time share a pass:
anyone may send them without a key, and they must cost little.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import torch
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import LarvatusError
from larvatus.core.version import VERSION
from larvatus.inference.model import Model
from larvatus.interfaces.serve.errors import error_location, logger
from larvatus.interfaces.serve.middleware.stack import add_middleware
from larvatus.interfaces.serve.openapi import add_documentation
from larvatus.interfaces.serve.operations.operation import Operation, read_body
from larvatus.interfaces.serve.operations.registry import OPERATIONS
from larvatus.interfaces.serve.responses import (
    error_response,
    handle_http_exception,
    handle_larvatus_error,
    json_response,
)
from larvatus.interfaces.serve.server import Server
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.models.nn.device import on_device

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


def add_operations(app: FastAPI, server: Server) -> None:
    for operation in OPERATIONS.values():
        app.add_route(f"/v1/{operation.name}", endpoint(server, operation), methods=["POST"])


def endpoint(server: Server, operation: Operation) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[type-arg]
    """The function of a route."""

    async def answer(request: Request) -> Response:
        try:
            body = read_body(await request.body(), operation.Body)
            return json_response(await server.answer(operation, body))
        except LarvatusError as fault:
            return error_response(fault)
        except Exception as fault:  # unexpected: the log says where, never on which input
            logger.error("%s in POST /v1/%s", error_location(fault), operation.name)
            return error_response(fault)

    answer.__name__ = operation.name
    return answer


def add_models(app: FastAPI, server: Server) -> None:
    described = {name: (model, model.describe()) for name, model in server.served.models.items()}

    async def models(request: Request) -> Response:
        for name, model in server.served.models.items():
            if name not in described or described[name][0] is not model:  # the studio trained it, or built its index
                described[name] = (model, model.describe())
        return json_response({"models": [entry for _, entry in described.values()]})

    app.add_route("/v1/models", models, methods=["GET"])


FRESH_S = 0.5
"""Seconds for which the result of a successful pass is reused."""


class Health:
    """Checks the last pass, and runs one."""

    def __init__(
        self, probe: Callable[[], Awaitable[None]], *, is_red: Callable[[], bool], seconds: float = 10.0
    ) -> None:
        """`probe` runs a pass through the batcher; it must succeed within `seconds`."""
        self._probe = probe
        self._seconds = seconds
        self._running: asyncio.Task[None] | None = None
        self._succeeded = float("-inf")
        self.is_red = is_red

    async def check(self) -> bool:
        """Whether the last pass succeeded, and one succeeds now."""
        if self.is_red():
            await self._succeeds()
            return False
        return time.monotonic() - self._succeeded < FRESH_S or await self._succeeds()

    async def _succeeds(self) -> bool:
        """Whether a pass succeeds; simultaneous checks share it."""
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(self._pass())
        try:
            async with asyncio.timeout(self._seconds):
                await asyncio.shield(self._running)
        except Exception as fault:  # whatever it was, the pass did not succeed
            logger.error("%s in the pass of a health check", error_location(fault))
            return False
        return True

    async def _pass(self) -> None:
        await self._probe()
        self._succeeded = time.monotonic()


def add_health(app: FastAPI, server: Server) -> None:
    checked = Health(
        lambda: asyncio.to_thread(run_all, server),
        is_red=lambda: server.batcher.last_error is not None,
        seconds=server.settings.timeout,
    )

    async def health(request: Request) -> Response:
        well = await checked.check()
        return json_response({"status": "ok" if well else "failing"}, 200 if well else 503)

    app.add_route("/healthz", health, methods=["GET"])


def run_all(server: Server) -> None:
    """Run a pass of two tokens with each encoder. Raises if one fails, or gives numbers that are not finite."""
    for encoder in server.served.encoders.values():
        states = server.batcher.forward(encoder, on_device(TokenBatch.of([[0, 0]]), encoder.device))
        assert isinstance(states, torch.Tensor), "no layers are requested"
        if not bool(torch.isfinite(states).all()):
            raise ArithmeticError("the encoder's states are not finite")
