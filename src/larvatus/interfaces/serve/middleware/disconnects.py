"""Cancels the work of clients that disconnect, so that it is never computed.

    app.add_middleware(Disconnects, on_gone=metrics.gone.inc)

The route runs as a task next to one that listens to the client. When the client disconnects, the task is cancelled: its
request leaves the queue, and no forward pass is spent on a response that nobody reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class DisconnectMiddleware:
    """Cancels operations (POST below /v1/) whose client has disconnected."""

    def __init__(self, app: ASGIApp, *, on_gone: Callable[[], None]) -> None:
        self.app = app
        self.on_gone = on_gone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].startswith("/v1/"):
            await self.app(scope, receive, send)
            return
        bodies = [await receive()]  # whole: `BodyLimit` has read it
        watch = asyncio.ensure_future(_until_gone(receive))

        async def read() -> Message:
            if bodies:
                return bodies.pop()
            await asyncio.shield(watch)
            return {"type": "http.disconnect"}

        work = asyncio.ensure_future(self.app(scope, read, send))
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()  # raises what it raised
            else:
                self.on_gone()
        finally:  # also when this task itself is cancelled: the server stops
            await _end(work)
            await _end(watch)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(task: asyncio.Future[None]) -> None:
    """Cancel a task and wait for its end; its exceptions are dropped."""
    if not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task
