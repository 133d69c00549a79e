"""HTTP around the studio's own routes: request bodies, JSON responses, and who may send requests.

    app.add_middleware(StudioMiddleware, names=("127.0.0.1",), token=secrets.token_urlsafe())
    given = await read_body(request, LearnRequest)
    return await run_in_thread(lambda: begin(given))

Bodies are bounded while they are read; JSON is strict (no NaN, known fields only). Errors look like the server's.

Only browsers and programs on this machine may use the studio, not pages of other sites in that browser:

- The Host must be a name of this machine, or an allowed one. A page of another site whose name resolves to this machine
  (DNS rebinding) has its own name there, and is refused.
- Requests that write must come from this page: the Origin, if the browser sends one, must be the Host, and
  `Sec-Fetch-Site` must not name another site.
- Requests that write in the studio also need the token of the address that the command printed.

Every response has a Content-Security-Policy: only scripts that the studio serves can run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Iterable
from hmac import compare_digest
from typing import Any, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from larvatus.core.errors import LarvatusError
from larvatus.core.ranges import digits
from larvatus.interfaces.serve.middleware.access import AllowedHosts, is_same_origin
from larvatus.interfaces.serve.responses import BadRequest, RequestError, WrongBody, error_body, http_status
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


class TooLarge(RequestError, status=413):
    """A body that is too large for the studio."""


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


TOKEN = "x-studio-token"
WRITING = "/studio/api/"
READS = ("GET", "HEAD", "OPTIONS")
POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Inline styles are allowed because plotly adds some; inline scripts are not."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Forbidden(RequestError, status=403):
    """A request that may not use the studio."""


class StudioMiddleware:
    """Middleware around all routes, those of the server too."""

    def __init__(self, app: ASGIApp, *, names: Iterable[str], token: str) -> None:
        self._app, self._token = app, token
        self._hosts = AllowedHosts(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refused = self._refusal(scope)
        answer = self._app if refused is None else json_reply(error_body(Forbidden(refused)), Forbidden.status)
        await answer(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> str | None:
        """Why a request is refused; None if it is not."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host not in self._hosts:
            return f"{host!r} is not a name of this studio; open the address that larvatus studio printed"
        if scope["method"] in READS:
            return None
        same_site = headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
        if not same_site or not is_same_origin(headers.get("origin"), host):
            return "another site sent this request; open the address that larvatus studio printed"
        given = headers.get(TOKEN, "").encode()
        if scope["path"].startswith(WRITING) and not compare_digest(given, self._token.encode()):
            return "this needs the token of the address that larvatus studio printed; open that whole address"
        return None
