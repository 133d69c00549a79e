"""Draining: after a signal to stop, new requests get 503, and requests in flight are finished within bounded time.

    drain = Drain()
    app.add_middleware(Draining, drain=drain)
    drain.begin()                       # on SIGTERM: /healthz and all new requests get 503
    drain.is_done                       # when the last request in flight has its response

The port stays open meanwhile: a load balancer reads 503 and tries another server; a closed port would be an error.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from larvatus.interfaces.serve.errors import Closing
from larvatus.interfaces.serve.responses import send_error_unread

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
