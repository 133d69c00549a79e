"""JSON responses of routes and middleware. Errors are `{"error": {"type": …, "message": …}}`, never a traceback.

    return json_response({"models": []})
    await answer(send, BodyTooLarge("bodies have at most 1,000 bytes (--max-body); send less at once"))

Middleware sends errors itself, before a route is reached; `send_error_unread` is for a body that was not read whole.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from larvatus.interfaces.serve.errors import NoKey, error_body, http_status

LINGER_S = 1.0
"""Seconds for which incoming data is dropped, so that the client reads the error before the connection ends."""
_encoder = msgspec.json.Encoder()


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Numbers are not rounded; those that are not finite become null."""
    return Response(_encoder.encode(content), status, headers, media_type="application/json")


def error_response(fault: BaseException) -> Response:
    return json_response(error_body(fault), http_status(fault), error_headers(fault))


async def handle_larvatus_error(request: Request, fault: Exception) -> Response:
    """The application's handler of `LarvatusError`s."""
    return error_response(fault)


async def handle_http_exception(request: Request, fault: Exception) -> Response:
    """The application's handler of errors of the framework: no such route, no such method."""
    assert isinstance(fault, HTTPException)
    message = {404: "there is no such address", 405: "this address takes another method"}.get(
        fault.status_code, str(fault.detail)
    )
    error = {"error": {"type": "HTTPError", "message": f"{message}; GET /openapi.json lists all"}}
    return json_response(error, fault.status_code, dict(fault.headers or {}))


def error_headers(fault: BaseException) -> dict[str, str]:
    """Headers that go with an error: when to retry, how to authenticate."""
    retry = getattr(fault, "retry_after", None)
    headers = {} if retry is None else {"Retry-After": str(retry)}
    return {**headers, "WWW-Authenticate": "Bearer"} if isinstance(fault, NoKey) else headers


def request_header(scope: Scope, name: bytes) -> str | None:
    """A header of the request, None if it is absent. Several of one name are joined as HTTP joins them."""
    values = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
    return ", ".join(values) if values else None


async def send_error(send: Send, fault: BaseException) -> None:
    """Send an error as a complete response."""
    await _send(send, fault, close=False)


async def send_error_unread(receive: Receive, send: Send, fault: BaseException) -> None:
    """Send an error to a client whose body was not read to its end, and close the connection.

    If it were closed at once, the system would discard what the client has not read of the response, because the client
    still sends. So incoming data is dropped for a moment first, chunk by chunk.
    """
    await _send(send, fault, close=True)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while True:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body"):
                    break
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send(send: Send, fault: BaseException, *, close: bool) -> None:
    body = msgspec.json.encode(error_body(fault))
    headers = {"content-type": "application/json", "content-length": str(len(body)), **error_headers(fault)}
    if close:
        headers["connection"] = "close"
    encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": http_status(fault), "headers": encoded})
    await send({"type": "http.response.body", "body": body, "more_body": close})
