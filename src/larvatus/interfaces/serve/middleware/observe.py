"""The outermost middleware: metrics of every request, security headers, and 500 with one line for unexpected errors.

    larvatus.serve: KeyError at operations/fill.py:41 in POST /v1/fill          # the log: no text of the request

    larvatus_requests_total{route="/v1/fill",method="POST",status="200"} 12.0   # /metrics, for Prometheus
    larvatus_request_seconds_bucket{route="/v1/fill",le="0.1"} 11.0
    larvatus_passes_total 9.0

Labels of metrics are routes and statuses, never anything that users send.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from larvatus.interfaces.serve.errors import Closing, error_location, logger
from larvatus.interfaces.serve.responses import send_error
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
