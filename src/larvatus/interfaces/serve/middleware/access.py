"""Access to a server: keys, and checks of the host and origin.

    larvatus serve runs/mine --key-file keys.txt --host 0.0.0.0
    curl -H "Authorization: Bearer $KEY" http://server:8311/v1/models

With a key file, every route except /healthz needs one of its keys. Keys are compared by their SHA-256, in constant time
and with all keys each time, so that the time of a response reveals neither which key was nearly right nor its line.

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

import hashlib
import hmac
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from larvatus.core.errors import UsageError
from larvatus.core.regular_files import follow_link, read_text
from larvatus.interfaces.serve.errors import BadRequest, ForeignPage, NoKey, RequestError, WrongKey
from larvatus.interfaces.serve.responses import request_header, send_error_unread
from larvatus.interfaces.serve.settings import is_loopback

OPEN = frozenset({"/healthz"})
"""Routes that need no key: they take no input and report only whether the server works."""
SHORTEST = 16
"""Least characters of a key: shorter ones can be guessed."""


class KeyRing:
    """The keys of a file, as hashes.

    >>> ring = KeyRing(["a key of some length"])
    >>> ring.opens("a key of some length"), ring.opens("a key of some lengtH")
    (True, False)
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    @classmethod
    def read(cls, path: Path) -> KeyRing:
        """Read one key per line; empty lines and lines that begin with # are skipped."""
        lines = [line.strip() for line in read_text(follow_link(path), UsageError).splitlines()]
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys:
            raise UsageError(f"{path} holds no key; write one per line, such as: openssl rand -hex 32 > {path}")
        for number, line in enumerate(lines, start=1):
            if line in keys and len(line) < SHORTEST:
                raise UsageError(
                    f"{path}, line {number}: a key of fewer than {SHORTEST} characters can be guessed; "
                    "make one with: openssl rand -hex 32"
                )
        return cls(keys)

    def opens(self, key: str) -> bool:
        digest = _digest(key)
        matches = 0
        for known in self._digests:  # all of them: no early exit
            matches |= hmac.compare_digest(digest, known)
        return bool(matches)


class KeyMiddleware:
    """Denies by default: a request without a known key reaches no route, whether the route exists or not."""

    def __init__(self, app: ASGIApp, *, ring: KeyRing) -> None:
        self.app = app
        self.ring = ring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN:
            refused = self._refusal(scope)
            if refused is not None:
                await send_error_unread(receive, send, refused)
                return
        await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> RequestError | None:
        scheme, _, key = (request_header(scope, b"authorization") or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            return NoKey("a key is needed: send the header Authorization: Bearer KEY")
        if not self.ring.opens(key.strip()):
            return WrongKey("this key is not known here; ask the operator of the server for one")
        return None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


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
