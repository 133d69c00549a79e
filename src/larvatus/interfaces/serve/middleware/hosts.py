"""Host and origin checks: pages of other sites must not use a browser to reach a server on this machine.

Without keys, any program that reaches 127.0.0.1 may send requests. So may a page from another site: by a cross-origin
request, which shows in `Origin`, or through a host name that it resolves to 127.0.0.1 (DNS rebinding), which shows in
`Host`. Accepted hosts are names of this machine, the address that the server is bound to, and `--host-allowed`. A
request without a `Host` is refused. The studio uses the same checks (`studio/middleware.py`).

    Host: 127.0.0.1:8311   Host: localhost:8311   Host: [::1]:8311         accepted
    Host: larvatus:8311                                                    accepted with --host-allowed larvatus
    Host: evil.example     Host: evil     Origin: https://evil.example     403
    no Host, or an empty one                                               400
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from larvatus.interfaces.serve.errors import BadRequest, ForeignPage, RequestError
from larvatus.interfaces.serve.responses import request_header, send_error_unread
from larvatus.interfaces.serve.settings import is_loopback

_AUTHORITY = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s\[\]:@/?#\\,]+)(?::[0-9]*)?")
"""A name or an address, optionally with a port; nothing else is a valid Host."""


class AllowedHosts:
    """Names that a request may give as its `Host`, whatever the port.

    >>> allowed = AllowedHosts(["larvatus"])
    >>> [host in allowed for host in ("localhost:8311", "[::1]", "127.0.0.1", "larvatus:80", "Larvatus")]
    [True, True, True, True, True]
    >>> [host in allowed for host in ("evil", "evil.example", "", "10.0.0.1", "127.0.0.1.evil.example", "a@localhost")]
    [False, False, False, False, False, False]
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = frozenset(name.lower().strip("[]") for name in names)

    def __contains__(self, host: object) -> bool:
        if not isinstance(host, str) or not _AUTHORITY.fullmatch(host):
            return False
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name in self.names or is_loopback(name) or name.endswith(".localhost")


def is_same_origin(origin: str | None, host: str) -> bool:
    """Whether a request has no `Origin`, or that of a page which this host serves."""
    try:
        return origin is None or urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


class HostMiddleware:
    """Refuses requests to other host names, and requests that pages of other sites send."""

    def __init__(self, app: ASGIApp, *, names: Iterable[str] = ()) -> None:
        """`names` are accepted as well as names of this machine."""
        self.app = app
        self.allowed = AllowedHosts(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refusal(scope) if scope["type"] == "http" else None
        if refused is not None:
            await send_error_unread(receive, send, refused)
            return
        await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> RequestError | None:
        host, origin = request_header(scope, b"host"), request_header(scope, b"origin")
        if not host:
            return BadRequest("the request names no host; send the header Host, such as Host: 127.0.0.1")
        if host not in self.allowed:
            way = "use http://127.0.0.1 or http://localhost, or start the server with --host-allowed NAME"
            return ForeignPage(f"this server does not answer to that host; {way}")
        if is_same_origin(origin, host):
            return None
        way = "use http://127.0.0.1 or http://localhost, or start the server with --key-file"
        return ForeignPage(f"pages of other sites may not send requests; {way}")
