"""Asked to stop: new requests are told so, those in flight are finished, in bounded time.

    drain = Drain()
    app.add_middleware(Draining, drain=drain)
    drain.begin()                       # by SIGTERM: /healthz and all new requests answer 503
    drain.is_done                       # when the last request in flight has its answer

The port stays open meanwhile, so that a balancer reads 503 and goes elsewhere, where a closed port would be an error.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from larvatus.interfaces.serve.answers import answer_unread
from larvatus.interfaces.serve.refusals import Closing

ALWAYS = frozenset({"/metrics"})
"""Answered to the end: whoever watches the server sees it drain."""


class Drain:
    """How many requests are in flight, and whether more are taken."""

    def __init__(self) -> None:
        self.begun = False
        self.inside = 0

    def begin(self) -> None:
        self.begun = True

    @property
    def is_done(self) -> bool:
        return self.begun and self.inside == 0


class Draining:
    """Refuses new requests once the drain has begun."""

    def __init__(self, app: ASGIApp, *, drain: Drain) -> None:
        self.app = app
        self.drain = drain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in ALWAYS:
            await self.app(scope, receive, send)
            return
        if self.drain.begun:
            way = "the server is stopping; ask another, or this one when it is back"
            await answer_unread(receive, send, Closing(way))
            return
        self.drain.inside += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.drain.inside -= 1
