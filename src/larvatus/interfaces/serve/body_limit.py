"""Bodies of requests: bounded in bytes and in time, and JSON alone, before anybody works on them.

    app.add_middleware(BodyLimit, most=1_000_000, seconds=10)

The body is read here, at most `most` bytes of it whether or not the client says how many will come, and handed on in
one piece. Bodies of all requests together have a bound, too: many slow clients cannot fill the memory. There is no
parser of forms in the house: a multipart body is refused by its type, before it is read.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from larvatus.interfaces.serve.answers import BodyTooLarge, NotJSON, TooSlow, answer_unread, header
from larvatus.interfaces.serve.refusals import BadRequest, QueueFull, Refusal

BODILESS = {"GET", "HEAD", "OPTIONS"}
HELD = 64
"""Bodies of full size that all requests together may hold."""


class BodyLimit:
    """Reads a body whole; what is behind gets it in one message."""

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
            await answer_unread(receive, send, unread.refusal)
        finally:
            self.held -= len(chunks)

    def _check_headers(self, scope: Scope) -> None:
        length = header(scope, b"content-length")
        announced = header(scope, b"transfer-encoding") is not None or length not in (None, "0")
        if not announced:
            return
        if scope["method"] in BODILESS:
            raise _Unread(BadRequest(f"{scope['method']} takes no body; send none, or use POST"))
        if length is not None and not (length.isascii() and length.isdigit()):
            raise _Unread(BadRequest("Content-Length must be a number of bytes; leave it to your HTTP library"))
        if length is not None and (len(length) > 18 or int(length) > self.most):
            raise self._too_large()
        kind = (header(scope, b"content-type") or "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise _Unread(NotJSON("bodies are JSON; send it with the header Content-Type: application/json"))
        if (header(scope, b"content-encoding") or "identity").lower() != "identity":
            raise _Unread(NotJSON("compressed bodies are not taken; send the JSON as it is"))

    async def _read(self, receive: Receive, chunks: bytearray) -> bool:
        """Whether the body came whole; False where the client went before."""
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
    """A refusal before the body was read to its end; those of what is behind pass by."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__()
        self.refusal = refusal


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body in one message, then whatever comes from the client: that it is gone."""
    waiting = [body]

    async def replay() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return replay
