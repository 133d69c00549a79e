"""The middleware of a server, in order, and draining.

    add_middleware(app, server)                  # `build_app` calls it last
    app.state.middleware.drain.begin()           # on SIGTERM: /healthz and all new requests get 503
    app.state.middleware.drain.is_done           # when the last request in flight has its response

A request passes these from the outside in; none depends on the others:

    ObserveMiddleware      metrics, security headers, 500 in one line       observe.py
    DrainMiddleware        503 while the server stops                       here
    KeyMiddleware          401, 403                                         access.py
    HostMiddleware         403, and 400 without a Host                      access.py
    BodyLimitMiddleware    413, 415 and 408, before the body is read        receiving.py
    DisconnectMiddleware   cancels a request when its client disconnects    receiving.py

Routes check the fields of a body (`operations/operation.py`), its cost (`server.py`) and the queue (`batcher.py`, 429).

While the server drains, the port stays open: a load balancer reads 503 and tries another server; a closed port would
be an error. Requests in flight are finished within bounded time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from larvatus.interfaces.serve.errors import Closing
from larvatus.interfaces.serve.middleware.access import HostMiddleware, KeyMiddleware, KeyRing
from larvatus.interfaces.serve.middleware.observe import ObserveMiddleware, ServerMetrics
from larvatus.interfaces.serve.middleware.receiving import BodyLimitMiddleware, DisconnectMiddleware
from larvatus.interfaces.serve.responses import send_error_unread
from larvatus.interfaces.serve.server import Server

ALWAYS = frozenset({"/metrics"})
"""Answered until the end, so that monitoring sees the server drain."""


class Drain:
    """Number of requests in flight, and whether new ones are accepted."""

    def __init__(self) -> None:
        self.begun = False
        self.inside = 0

    def begin(self) -> None:
        self.begun = True

    @property
    def is_done(self) -> bool:
        return self.begun and self.inside == 0


class DrainMiddleware:
    """Refuses new requests once draining has begun."""

    def __init__(self, app: ASGIApp, *, drain: Drain) -> None:
        self.app = app
        self.drain = drain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in ALWAYS:
            await self.app(scope, receive, send)
            return
        if self.drain.begun:
            way = "the server is stopping; use another one, or try again later"
            await send_error_unread(receive, send, Closing(way))
            return
        self.drain.inside += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.drain.inside -= 1


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
