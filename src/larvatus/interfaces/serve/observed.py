"""The outermost layer: every request is timed and counted, every answer has headers that protect whoever reads it, and
what nobody foresaw becomes 500 with one line. The log names the kind of a fault and its place, never what was sent.

    larvatus.interfaces.serve: KeyError at routes/fill.py:41 in POST /v1/fill
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from larvatus.interfaces.serve.answers import answer
from larvatus.interfaces.serve.metrics import Metrics, route_of
from larvatus.interfaces.serve.refusals import Closing

logger = logging.getLogger("larvatus.serve")

GONE = 499
"""Counted as the status of requests whose client went; nobody gets it."""
PROTECTING = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"),
    (b"cache-control", b"no-store"),
)
"""Added where a route has not set its own."""


class Observed:
    """Counts, protects, and answers for faults."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # there is none, so none is let in
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = GONE
        start = time.monotonic()

        async def write(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = protected(message.get("headers", []))
            await send(message)

        try:
            await self.app(scope, receive, write)
        except asyncio.CancelledError:  # the server's time to drain is over
            if status == GONE:
                await answer(write, Closing("the server stopped before the answer was ready; ask again"))
        except Exception as fault:
            logger.error("%s in %s %s", place_of(fault), scope["method"], route_of(scope))
            if status == GONE:
                await answer(write, fault)
            else:
                raise Broken from None  # half an answer is out: the connection ends
        finally:
            self.metrics.answered(scope, status, time.monotonic() - start)


class Broken(Exception):
    """A fault after an answer had begun."""


def protected(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of an answer, and those that protect where the route has not set its own."""
    there = {name.lower() for name, _ in headers}
    return [*headers, *((name, value) for name, value in PROTECTING if name not in there)]


def place_of(fault: BaseException) -> str:
    """What kind of fault, and where in our code: enough to look for it, with nothing of the request.

    >>> try: {}["a secret"]
    ... except KeyError as fault: print(place_of(fault).split(" at ")[0])
    KeyError
    """
    frames = traceback.extract_tb(fault.__traceback__)
    house = str(Path(__file__).parents[2])
    last = next(
        (frame for frame in reversed(frames) if frame.filename.startswith(house)), frames[-1] if frames else None
    )
    where = "" if last is None else f" at {Path(last.filename).parent.name}/{Path(last.filename).name}:{last.lineno}"
    return f"{type(fault).__name__}{where}"
