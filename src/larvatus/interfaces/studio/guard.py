"""Who may ask the studio: this machine's own browser and programs, and no page of somebody else in that browser.

    app.add_middleware(Guard, names=("127.0.0.1",), token=secrets.token_urlsafe())

- The Host must be a name of this machine, or one that was given. A page elsewhere whose name is made to lead here
  (DNS rebinding) has its own name in it, and is refused.
- What writes must come from this page: an Origin, where the browser sends one, must be the Host, and `Sec-Fetch-Site`
  must not say that another site asks.
- What writes in the studio also wants the token of the address that the command printed.

Every answer carries a Content-Security-Policy: nothing runs but the scripts that are served here.
"""

from __future__ import annotations

from collections.abc import Iterable
from hmac import compare_digest
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from larvatus.interfaces.serve.hosts import AllowedHosts
from larvatus.interfaces.serve.refusals import Refusal, error_of
from larvatus.interfaces.studio.replies import reply

TOKEN = "x-studio-token"
WRITING = "/studio/api/"
READS = ("GET", "HEAD", "OPTIONS")
POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Styles may stand in the page: plotly puts some there as it is loaded. Scripts may not."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Forbidden(Refusal):
    status = 403


class Guard:
    """Middleware around all routes, those of the server too."""

    def __init__(self, app: ASGIApp, *, names: Iterable[str], token: str) -> None:
        self._app, self._token = app, token
        self._hosts = AllowedHosts(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refused = self._why_not(scope)
        answer = self._app if refused is None else reply(error_of(Forbidden(refused)), Forbidden.status)
        await answer(scope, receive, dressed)

    def _why_not(self, scope: Scope) -> str | None:
        """What is wrong with a request; None where nothing is."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host not in self._hosts:
            return f"{host!r} is no name of this studio; open the address that larvatus studio printed"
        if scope["method"] in READS:
            return None
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return "another site asks for this; open the address that larvatus studio printed"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return "another site asks for this; open the address that larvatus studio printed"
        given = headers.get(TOKEN, "").encode()
        if scope["path"].startswith(WRITING) and not compare_digest(given, self._token.encode()):
            return "this wants the token of the address that larvatus studio printed; open that whole address"
        return None
