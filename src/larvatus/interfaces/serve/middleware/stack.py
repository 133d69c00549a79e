"""The middleware of a server, in order.

    add_middleware(app, server)          # `build_app` calls it last

A request passes these from the outside in. Each is a file that does not depend on the others:

    ObserveMiddleware      metrics, security headers, 500 in one line       observe.py
    DrainMiddleware        503 while the server stops                       drain.py
    KeyMiddleware          401, 403                                         keys.py
    HostMiddleware         403, and 400 without a Host                      hosts.py
    BodyLimitMiddleware    413, 415 and 408, before the body is read        body_limit.py
    DisconnectMiddleware   cancels a request when its client disconnects    disconnects.py

Routes check the fields of a body (`operations/operation.py`), its cost (`server.py`) and the queue (`batcher.py`, 429).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from larvatus.interfaces.serve.middleware.body_limit import BodyLimitMiddleware
from larvatus.interfaces.serve.middleware.disconnects import DisconnectMiddleware
from larvatus.interfaces.serve.middleware.drain import Drain, DrainMiddleware
from larvatus.interfaces.serve.middleware.hosts import HostMiddleware
from larvatus.interfaces.serve.middleware.keys import KeyMiddleware, KeyRing
from larvatus.interfaces.serve.middleware.observe import ObserveMiddleware, ServerMetrics
from larvatus.interfaces.serve.server import Server

BODY_S = 20.0
"""Seconds within which a body must arrive, or --timeout, if that is less."""


@dataclass(frozen=True, eq=False)
class MiddlewareState:
    """State that the middleware shares: `app.state.middleware`."""

    drain: Drain
    metrics: ServerMetrics


def add_middleware(app: FastAPI, server: Server) -> None:
    """Wrap the application in all middleware; the outermost is added last."""
    settings = server.settings
    state = app.state.middleware = MiddlewareState(Drain(), ServerMetrics())
    state.metrics.follow(server)

    async def metrics(request: Request) -> Response:
        """Counters for Prometheus."""
        return Response(state.metrics.text(), media_type=state.metrics.content_type)

    app.add_route("/metrics", metrics, methods=["GET"])
    app.add_middleware(DisconnectMiddleware, on_gone=state.metrics.gone.inc)
    app.add_middleware(BodyLimitMiddleware, most=settings.max_body, seconds=min(BODY_S, settings.timeout))
    if settings.key_file is None or settings.host_allowed:  # a page of another site has no key
        app.add_middleware(HostMiddleware, names=(settings.host, *settings.host_allowed))
    if settings.key_file is not None:
        app.add_middleware(KeyMiddleware, ring=KeyRing.read(Path(settings.key_file)))
    app.add_middleware(DrainMiddleware, drain=state.drain)
    app.add_middleware(ObserveMiddleware, metrics=state.metrics)
