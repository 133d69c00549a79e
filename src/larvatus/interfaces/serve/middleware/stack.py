"""The middleware of a server, in order; metrics, security headers and draining are here.

    add_middleware(app, server)                  # `build_app` calls it last
    app.state.middleware.drain.begin()           # on SIGTERM: /healthz and all new requests get 503
    app.state.middleware.drain.is_done           # when the last request in flight has its response

A request passes these from the outside in; none depends on the others:

    ObserveMiddleware      metrics, security headers, 500 in one line       here
    DrainMiddleware        503 while the server stops                       here
    KeyMiddleware          401, 403                                         access.py
    HostMiddleware         403, and 400 without a Host                      access.py
    BodyLimitMiddleware    413, 415 and 408, before the body is read        access.py
    DisconnectMiddleware   cancels a request when its client disconnects    access.py

Routes check the fields of a body (`operations/operation.py`), its cost (`server.py`) and the queue (`batcher.py`, 429).

An unexpected error is one line of the log without any text of the request: `KeyError at operations/cloze.py:41 in POST
/v1/fill`. /metrics is for Prometheus; its labels are routes and statuses, never anything that users send:

    larvatus_requests_total{route="/v1/fill",method="POST",status="200"} 12.0
    larvatus_request_seconds_bucket{route="/v1/fill",le="0.1"} 11.0

While the server drains, the port stays open: a load balancer reads 503 and tries another server; a closed port would
be an error. Requests in flight are finished within bounded time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from larvatus.interfaces.serve.middleware.access import (
    BodyLimitMiddleware,
    DisconnectMiddleware,
    HostMiddleware,
    KeyMiddleware,
    KeyRing,
)
from larvatus.interfaces.serve.responses import Closing, error_location, logger, send_error, send_error_unread
from larvatus.interfaces.serve.server import Server

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SIZES = tuple(2**power for power in range(0, 16))
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
ELSEWHERE = "elsewhere"
"""Label of requests that match no route: a path that a client makes up becomes no label."""


class ServerMetrics:
    """Counters of one server, in their own registry.

    >>> metrics = ServerMetrics()
    >>> metrics.count_pass(tokens=40, sequences=3, seconds=0.01)
    >>> [line for line in metrics.text().decode().splitlines() if line.startswith("larvatus_tokens_total")]
    ['larvatus_tokens_total 40.0']
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter(
            "larvatus_requests", "Requests answered.", ["route", "method", "status"], registry=registry
        )
        self.seconds = Histogram(
            "larvatus_request_seconds", "From headers to response.", ["route"], buckets=SECONDS, registry=registry
        )
        self.gone = Counter("larvatus_clients_gone", "Clients that disconnected while they waited.", registry=registry)
        self.tokens = Counter("larvatus_tokens", "Tokens that encoders read.", registry=registry)
        self.passes = Counter("larvatus_passes", "Passes of encoders.", registry=registry)
        self.faults = Counter("larvatus_pass_faults", "Passes that failed.", registry=registry)
        self.pass_seconds = Histogram("larvatus_pass_seconds", "Seconds of a pass.", buckets=SECONDS, registry=registry)
        self.batch_tokens = Histogram("larvatus_batch_tokens", "Tokens of a pass.", buckets=SIZES, registry=registry)
        self.batch_sequences = Histogram(
            "larvatus_batch_sequences", "Sequences of a pass.", buckets=SIZES, registry=registry
        )

    def follow(self, server: Server) -> None:
        """Count every pass of a server; its queue is read when metrics are requested."""
        batcher = server.batcher
        batcher.on_pass, batcher.on_error = self.count_pass, self.faults.inc
        self._gauge("larvatus_queue_depth", "Requests that run or wait.", lambda: batcher.requests)
        self._gauge("larvatus_queue_size", "Most requests at once (--queue).", lambda: batcher.queue)
        self._gauge("larvatus_batches_waiting", "Batches that wait for a pass.", lambda: batcher.waiting_batches)
        self._gauge(
            "larvatus_failing", "1 from a failed pass until one succeeds.", lambda: batcher.last_error is not None
        )

    def _gauge(self, name: str, help: str, value: Callable[[], float]) -> None:
        Gauge(name, help, registry=self.registry).set_function(value)

    def count_response(self, scope: Scope, status: int, seconds: float) -> None:
        route = route_of(scope)
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.requests.labels(route, method, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def count_pass(self, *, tokens: int, sequences: int, seconds: float) -> None:
        """Count a pass that succeeded."""
        self.passes.inc()
        self.tokens.inc(tokens)
        self.batch_tokens.observe(tokens)
        self.batch_sequences.observe(sequences)
        self.pass_seconds.observe(seconds)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        text: bytes = generate_latest(self.registry)
        return text


def route_of(scope: Scope) -> str:
    """Path of the route that a request matched, as it was declared."""
    path = getattr(scope.get("route"), "path", None)
    if isinstance(path, str):
        return path
    routes = scope["app"].routes if "app" in scope else ()
    known = any(
        getattr(route, "path", None) == scope["path"] for route in routes
    )  # plain routes do not set themselves in the scope
    return str(scope["path"]) if known else ELSEWHERE


GONE = 499
"""Status that metrics count for requests whose client disconnected; it is never sent."""
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"),
    (b"cache-control", b"no-store"),
)
"""Security headers, added unless a route has set its own."""


class ObserveMiddleware:
    """Counts requests, adds security headers, and turns unexpected errors into responses."""

    def __init__(self, app: ASGIApp, *, metrics: ServerMetrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # the server has none
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = GONE
        start = time.monotonic()

        async def write(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = with_security_headers(message.get("headers", []))
            await send(message)

        try:
            await self.app(scope, receive, write)
        except asyncio.CancelledError:  # the time to drain is over
            if status == GONE:
                await send_error(write, Closing("the server stopped before the response was ready; try again"))
        except Exception as fault:
            logger.error("%s in %s %s", error_location(fault), scope["method"], route_of(scope))
            if status == GONE:
                await send_error(write, fault)
            else:
                raise BrokenResponse from None  # part of the response is sent: the connection ends
        finally:
            self.metrics.count_response(scope, status, time.monotonic() - start)


class BrokenResponse(Exception):
    """An error after the response had begun."""


def with_security_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a response, with the security headers that the route has not set."""
    there = {name.lower() for name, _ in headers}
    return [*headers, *((name, value) for name, value in SECURITY_HEADERS if name not in there)]


# Draining, and the stack.

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
