"""What clients send: limits on request bodies, and clients that disconnect.

    app.add_middleware(DisconnectMiddleware, on_gone=metrics.gone.inc)
    app.add_middleware(BodyLimitMiddleware, most=1_000_000, seconds=10)

The body is read here, at most `most` bytes of it whether or not the client announces its length, and passed on in one
message. The bodies of all requests together are bounded, too: many slow clients cannot fill the memory. The package has
no parser for forms: a multipart body is refused by its type, before it is read.

A route runs as a task next to one that listens to the client. When the client disconnects, the task is cancelled: its
request leaves the queue, and no forward pass is spent on a response that nobody reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from larvatus.interfaces.serve.errors import BadRequest, BodyTooLarge, NotJSON, QueueFull, RequestError, TooSlow
from larvatus.interfaces.serve.responses import request_header, send_error_unread

BODILESS = {"GET", "HEAD", "OPTIONS"}
HELD = 64
"""Bodies of full size that fit into the bound on all requests together."""


class BodyLimitMiddleware:
    """Reads the whole body; the application gets it in one message."""

    def __init__(self, app: ASGIApp, *, most: int, seconds: float) -> None:
        self.app = app
        self.most = most
        self.seconds = seconds
        self.held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        chunks = bytearray()
        try:
            self._check_headers(scope)
            if not await self._read(receive, chunks):
                return
            await self.app(scope, _replayed(bytes(chunks), receive), send)
        except _Unread as unread:
            await send_error_unread(receive, send, unread.refusal)
        finally:
            self.held -= len(chunks)

    def _check_headers(self, scope: Scope) -> None:
        length = request_header(scope, b"content-length")
        announced = request_header(scope, b"transfer-encoding") is not None or length not in (None, "0")
        if not announced:
            return
        if scope["method"] in BODILESS:
            raise _Unread(BadRequest(f"{scope['method']} takes no body; send none, or use POST"))
        if length is not None and not (length.isascii() and length.isdigit()):
            raise _Unread(BadRequest("Content-Length must be a number of bytes; leave it to your HTTP library"))
        if length is not None and (len(length) > 18 or int(length) > self.most):
            raise self._too_large()
        kind = (request_header(scope, b"content-type") or "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise _Unread(NotJSON("bodies are JSON; send it with the header Content-Type: application/json"))
        if (request_header(scope, b"content-encoding") or "identity").lower() != "identity":
            raise _Unread(NotJSON("compressed bodies are not accepted; send plain JSON"))

    async def _read(self, receive: Receive, chunks: bytearray) -> bool:
        """Read the whole body. False if the client disconnected first."""
        try:
            async with asyncio.timeout(self.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return False
                    chunks += message.get("body", b"")
                    self.held += len(message.get("body", b""))
                    if len(chunks) > self.most:
                        raise self._too_large()
                    if self.held > HELD * self.most:
                        raise _Unread(QueueFull("too many large bodies at once; try again in a moment"))
                    if not message.get("more_body", False):
                        return True
        except TimeoutError:
            late = f"the body did not arrive within {self.seconds:g} seconds; send it faster, or a smaller one"
            raise _Unread(TooSlow(late)) from None

    def _too_large(self) -> _Unread:
        return _Unread(BodyTooLarge(f"bodies have at most {self.most:,} bytes (--max-body); send less at once"))


class _Unread(Exception):
    """An error before the body was read to its end. Errors of the application pass unchanged."""

    def __init__(self, refusal: RequestError) -> None:
        super().__init__()
        self.refusal = refusal


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body in one message, then the messages of the client: its disconnect."""
    waiting = [body]

    async def replay() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return replay


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
