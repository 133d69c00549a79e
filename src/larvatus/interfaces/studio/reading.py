"""How the studio's own routes read what they are asked, and turn errors into answers.

    given = await read_body(request, LearnRequest)
    return await answered(lambda: begin(given))

Bodies are bounded while they are read; JSON is strict (no NaN, known fields alone).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from larvatus.core.errors import LarvatusError
from larvatus.core.ranges import digits
from larvatus.interfaces.serve.refusals import BadRequest, Refusal, WrongBody, error_of, status_of
from larvatus.interfaces.studio.learn_order import MOST_BYTES
from larvatus.interfaces.studio.replies import reply

Answer = Callable[[Request], Awaitable[Response]]
Body = TypeVar("Body", bound=msgspec.Struct)
LARGEST_BODY = 2 * MOST_BYTES + 2**16
"""Bytes: a character may be written as an escape."""


class TooLarge(Refusal):
    status = 413


def kept_safe(answer: Answer) -> Answer:
    """The same, where what is refused on the way becomes its answer."""

    async def safe(request: Request) -> Response:
        try:
            return await answer(request)
        except LarvatusError as fault:
            return reply(error_of(fault), status_of(fault))

    return safe


async def read_body(request: Request, kind: type[Body]) -> Body:
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > LARGEST_BODY:
            raise TooLarge(f"more than {LARGEST_BODY:,} bytes are not read here; use larvatus finetune")
    try:
        return msgspec.json.decode(b"".join(parts), type=kind)
    except msgspec.ValidationError as fault:
        raise WrongBody(str(fault)) from fault
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as fault:
        raise BadRequest(f"the body is no JSON: {fault}") from fault


def whole_number(request: Request, name: str) -> int:
    value = digits(request.query_params.get(name, "0"))
    if value is None:
        raise WrongBody(f"{name} is a whole number")
    return value


async def answered(work: Callable[[], Any], *, status: int = 200) -> Response:
    """Do it in a thread; what a user can cause is one line."""
    try:
        return reply(await run_in_threadpool(work), status)
    except LarvatusError as fault:
        return reply(error_of(fault), status_of(fault))
