"""How middleware says no: a status and one line as JSON, before a route is reached; never a traceback.

    await answer(send, BodyTooLarge("bodies have at most 1,000 bytes (--max-body); send less at once"))
    {"error": {"type": "BodyTooLarge", "message": "bodies have at most …"}}

`answer_unread` is for requests whose body was not read to its end.
"""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
from starlette.types import Receive, Scope, Send

from larvatus.interfaces.serve.refusals import Refusal, error_of, status_of

LINGER_S = 1.0
"""How long what a client still sends is thrown away, so that it reads the refusal before the connection ends."""


class BodyTooLarge(Refusal):
    status = 413


class NotJSON(Refusal):
    """A body of another type: forms, files, compressed ones."""

    status = 415


class TooSlow(Refusal):
    """A body that does not arrive."""

    status = 408


class NoKey(Refusal):
    status = 401


class WrongKey(Refusal):
    status = 403


class ForeignPage(Refusal):
    """A browser that a page of another site sent here."""

    status = 403


def headers_of(fault: BaseException) -> dict[str, str]:
    """What goes with a refusal beside its body: when to come back, how to say who one is."""
    retry = getattr(fault, "retry_after", None)
    headers = {} if retry is None else {"retry-after": str(retry)}
    return {**headers, "www-authenticate": "Bearer"} if isinstance(fault, NoKey) else headers


def header(scope: Scope, name: bytes) -> str | None:
    """A header of the request, None where it is absent; several of one name are joined as HTTP joins them."""
    values = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
    return ", ".join(values) if values else None


async def answer(send: Send, fault: BaseException, *, close: bool = False) -> None:
    """Send a refusal whole."""
    await _send(send, fault, close=close, more=False)


async def answer_unread(receive: Receive, send: Send, fault: BaseException) -> None:
    """Refuse a request whose body was not read to its end, and close the connection.

    Closed at once, the system would throw away what the client has not read of the answer, because the client still
    sends: what comes in is dropped for a moment first, chunk by chunk.
    """
    await _send(send, fault, close=True, more=True)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while True:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body"):
                    break
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send(send: Send, fault: BaseException, *, close: bool, more: bool) -> None:
    body = msgspec.json.encode(error_of(fault))
    headers = {"content-type": "application/json", "content-length": str(len(body)), **headers_of(fault)}
    if close:
        headers["connection"] = "close"
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status_of(fault), "headers": encoded})
    await send({"type": "http.response.body", "body": body, "more_body": more})
