"""What the server counts, for Prometheus at /metrics. Labels are names of routes and statuses; never what users send.

larvatus_requests_total{route="/v1/fill",method="POST",status="200"} 12.0
larvatus_request_seconds_bucket{route="/v1/fill",le="0.1"} 11.0
larvatus_passes_total 9.0
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import Scope

from larvatus.interfaces.serve.server import Server

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SIZES = tuple(2**power for power in range(0, 16))
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
ELSEWHERE = "elsewhere"
"""The route of whatever no route answers: a path that a client makes up becomes no label."""


class Metrics:
    """Counters of one server, in a registry of their own.

    >>> metrics = Metrics()
    >>> metrics.ran(tokens=40, sequences=3, seconds=0.01)
    >>> [line for line in metrics.shown().decode().splitlines() if line.startswith("larvatus_tokens_total")]
    ['larvatus_tokens_total 40.0']
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter(
            "larvatus_requests", "Requests answered.", ["route", "method", "status"], registry=registry
        )
        self.seconds = Histogram(
            "larvatus_request_seconds", "From headers to answer.", ["route"], buckets=SECONDS, registry=registry
        )
        self.gone = Counter("larvatus_clients_gone", "Clients that went while they waited.", registry=registry)
        self.tokens = Counter("larvatus_tokens", "Tokens that encoders read.", registry=registry)
        self.passes = Counter("larvatus_passes", "Passes of encoders.", registry=registry)
        self.faults = Counter("larvatus_pass_faults", "Passes that failed.", registry=registry)
        self.pass_seconds = Histogram("larvatus_pass_seconds", "Of a pass.", buckets=SECONDS, registry=registry)
        self.batch_tokens = Histogram("larvatus_batch_tokens", "Of a pass.", buckets=SIZES, registry=registry)
        self.batch_sequences = Histogram("larvatus_batch_sequences", "Of a pass.", buckets=SIZES, registry=registry)

    def follow(self, server: Server) -> None:
        """Hear of every pass of a server, and look up its queue whenever somebody asks."""
        passes, work = server.served.passes, server.work
        passes.on_pass, passes.on_fault = self.ran, self.faults.inc
        self._watch("larvatus_queue_depth", "Requests under way or waiting.", lambda: work.requests)
        self._watch("larvatus_queue_size", "Requests that may be (--queue).", lambda: work.queue)
        self._watch("larvatus_batches_waiting", "Batches that wait for a pass.", lambda: passes.waiting)
        self._watch(
            "larvatus_failing", "1 from a failed pass until one succeeds.", lambda: passes.last_fault is not None
        )

    def _watch(self, name: str, help: str, value: Callable[[], float]) -> None:
        Gauge(name, help, registry=self.registry).set_function(value)

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        route = route_of(scope)
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.requests.labels(route, method, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def ran(self, *, tokens: int, sequences: int, seconds: float) -> None:
        """A pass that succeeded."""
        self.passes.inc()
        self.tokens.inc(tokens)
        self.batch_tokens.observe(tokens)
        self.batch_sequences.observe(sequences)
        self.pass_seconds.observe(seconds)

    def shown(self) -> bytes:
        shown: bytes = generate_latest(self.registry)
        return shown


def route_of(scope: Scope) -> str:
    """The path of the route that answered, as it was declared."""
    path = getattr(scope.get("route"), "path", None)
    if isinstance(path, str):
        return path
    routes = scope["app"].routes if "app" in scope else ()
    known = any(getattr(route, "path", None) == scope["path"] for route in routes)  # plain ones do not name themselves
    return str(scope["path"]) if known else ELSEWHERE
