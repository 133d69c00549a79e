"""Names that a server answers to: a browser on this machine must not be made to ask a server that trusts this machine.

Without keys, any program that reaches 127.0.0.1 may ask. A page from elsewhere can, too: by a request across origins,
or by a name of its own that it lets point at 127.0.0.1 (DNS rebinding). The first shows in `Origin`, the second in
`Host`: only names of this machine, the address that the server is bound to, and names given by `--host-allowed` are
answered. A request without a `Host` is refused.

    Host: 127.0.0.1:8311   Host: localhost:8311   Host: [::1]:8311         answered
    Host: larvatus:8311                                                    answered with --host-allowed larvatus
    Host: evil.example     Host: evil     Origin: https://evil.example     403
    no Host, or an empty one                                               400
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from larvatus.interfaces.serve.answers import ForeignPage, answer_unread, header
from larvatus.interfaces.serve.binding import is_loopback
from larvatus.interfaces.serve.refusals import BadRequest, Refusal

_AUTHORITY = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s\[\]:@/?#\\,]+)(?::[0-9]*)?")
"""A name or an address, and perhaps a port; nothing else can be a Host."""


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


class Hosts:
    """Refuses requests to other names, and those that a page of another site sends."""

    def __init__(self, app: ASGIApp, *, names: Iterable[str] = ()) -> None:
        """`names` are those that are answered to, besides names of this machine."""
        self.app = app
        self.allowed = AllowedHosts(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refusal(scope) if scope["type"] == "http" else None
        if refused is not None:
            await answer_unread(receive, send, refused)
            return
        await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Refusal | None:
        host, origin = header(scope, b"host"), header(scope, b"origin")
        if not host:
            return BadRequest("the request names no host; send the header Host, such as Host: 127.0.0.1")
        if host not in self.allowed:
            way = "ask http://127.0.0.1 or http://localhost, or start the server with --host-allowed NAME"
            return ForeignPage(f"this server does not answer to that host; {way}")
        try:
            if origin is None or urlsplit(origin).netloc.lower() == host.lower():
                return None
        except ValueError:
            pass
        way = "ask http://127.0.0.1 or http://localhost, or start the server with --key-file"
        return ForeignPage(f"pages of other sites may not ask; {way}")
