"""Access to the studio: for browsers and programs on this machine, not for pages of other sites in that browser.

    app.add_middleware(Guard, names=("127.0.0.1",), token=secrets.token_urlsafe())

- The Host must be a name of this machine, or an allowed one. A page of another site whose name resolves to this machine
  (DNS rebinding) has its own name there, and is refused.
- Requests that write must come from this page: the Origin, if the browser sends one, must be the Host, and
  `Sec-Fetch-Site` must not name another site.
- Requests that write in the studio also need the token of the address that the command printed.

Every response has a Content-Security-Policy: only scripts that the studio serves can run.
"""

from __future__ import annotations

from collections.abc import Iterable
from hmac import compare_digest

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from larvatus.interfaces.serve.errors import RequestError, error_body
from larvatus.interfaces.serve.middleware.access import AllowedHosts, is_same_origin
from larvatus.interfaces.studio.responses import json_reply

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


class Forbidden(RequestError):
    status = 403


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
