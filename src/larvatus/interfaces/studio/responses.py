"""How the studio's own routes read request bodies, and write results and errors as JSON.

    given = await read_body(request, LearnRequest)
    return await run_in_thread(lambda: begin(given))

Bodies are bounded while they are read; JSON is strict (no NaN, known fields only). Errors look like the server's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from larvatus.core.errors import LarvatusError
from larvatus.core.ranges import digits
from larvatus.interfaces.serve.errors import BadRequest, RequestError, WrongBody, error_body, http_status
from larvatus.interfaces.studio.learn_request import MOST_BYTES

FRESH = {"Cache-Control": "no-store"}


def json_reply(values: Any, status: int = 200) -> Response:
    """A JSON response. Numbers that are not finite (a diverged loss) become null."""
    body = json.dumps(_finite(values), ensure_ascii=False, allow_nan=False).encode("utf-8", errors="replace")
    return Response(body, status, FRESH, media_type="application/json")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


Answer = Callable[[Request], Awaitable[Response]]
Body = TypeVar("Body", bound=msgspec.Struct)
LARGEST_BODY = 2 * MOST_BYTES + 2**16
"""Bytes; a character may be written as an escape."""


class TooLarge(RequestError):
    status = 413


def with_error_responses(answer: Answer) -> Answer:
    """The same route, with errors that users cause turned into responses."""

    async def safe(request: Request) -> Response:
        try:
            return await answer(request)
        except LarvatusError as fault:
            return json_reply(error_body(fault), http_status(fault))

    return safe


async def read_body(request: Request, kind: type[Body]) -> Body:
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > LARGEST_BODY:
            raise TooLarge(f"more than {LARGEST_BODY:,} bytes are too many here; use larvatus finetune")
    try:
        return msgspec.json.decode(b"".join(parts), type=kind)
    except msgspec.ValidationError as fault:
        raise WrongBody(str(fault)) from fault
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as fault:
        raise BadRequest(f"the body is not JSON: {fault}") from fault


def whole_number(request: Request, name: str) -> int:
    value = digits(request.query_params.get(name, "0"))
    if value is None:
        raise WrongBody(f"{name} must be a whole number")
    return value


async def run_in_thread(work: Callable[[], Any], *, status: int = 200) -> Response:
    """The result of `work`, which runs in a thread, as a response."""
    return json_reply(await run_in_threadpool(work), status)
