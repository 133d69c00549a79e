"""Answers as JSON, errors too: `{"error": {"type": …, "message": …}}`, never a traceback."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from larvatus.interfaces.serve.refusals import QueueFull, error_of, status_of

_encoder = msgspec.json.Encoder()


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Numbers as they are, not rounded; what is not finite is null."""
    return Response(_encoder.encode(content), status, headers, media_type="application/json")


def fault_response(fault: BaseException) -> Response:
    retry = {"Retry-After": str(fault.retry_after)} if isinstance(fault, QueueFull) else None
    return json_response(error_of(fault), status_of(fault), retry)


async def answer_fault(request: Request, fault: Exception) -> Response:
    return fault_response(fault)


async def answer_http(request: Request, fault: Exception) -> Response:
    """What the framework refuses: no such address, no such method."""
    assert isinstance(fault, HTTPException)
    message = {404: "there is no such address", 405: "this address takes another method"}.get(
        fault.status_code, str(fault.detail)
    )
    error = {"error": {"type": "HTTPError", "message": f"{message}; GET /openapi.json lists all"}}
    return json_response(error, fault.status_code, dict(fault.headers or {}))
