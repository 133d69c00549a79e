"""Pages of other sites: a browser on this machine must not be made to ask a server that trusts this machine.

Without keys, whoever can reach 127.0.0.1 may ask. A page from elsewhere can, too: by a request across origins, or by a
name of its own that it lets point at 127.0.0.1. The first is told by `Origin`, the second by `Host`: a public name has
a dot, while localhost, addresses and names within a network of containers have none.

    Host: 127.0.0.1:8311   Host: localhost:8311   Host: larvatus:8311      answered
    Host: evil.example     Origin: https://evil.example                    403
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from larvatus.serve.answers import ForeignPage, answer_unread, header


class Hosts:
    """Refuses what a page of another site asks for. With keys it is not needed: such a page has none."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _is_ours(header(scope, b"host") or "", header(scope, b"origin")):
            way = "ask http://127.0.0.1 or http://localhost, or start the server with --key-file"
            await answer_unread(receive, send, ForeignPage(f"pages of other sites may not ask; {way}"))
            return
        await self.app(scope, receive, send)


def _is_ours(host: str, origin: str | None) -> bool:
    """Whether a request names this machine, and comes from no page or from one that this server served.

    >>> _is_ours("localhost:8311", None), _is_ours("[::1]:8311", "http://[::1]:8311")
    (True, True)
    >>> _is_ours("evil.example", None), _is_ours("localhost:8311", "https://evil.example")
    (False, False)
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return False
    except ValueError:
        return False
    if "." not in name and ":" not in name:
        return True
    if name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
