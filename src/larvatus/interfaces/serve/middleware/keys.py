"""Keys: who may ask. With a key file every route but /healthz wants one of its keys; without one, only this machine.

    larvatus serve runs/mine --key-file keys.txt --host 0.0.0.0
    curl -H "Authorization: Bearer $KEY" http://server:8311/v1/models

Keys are compared by their SHA-256, in constant time and with all keys each time, so that the time of a response
reveals neither which key was nearly right nor its line in the file.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from larvatus.core.errors import UsageError
from larvatus.core.regular_files import follow_link, read_text
from larvatus.interfaces.serve.errors import NoKey, RequestError, WrongKey
from larvatus.interfaces.serve.responses import request_header, send_error_unread

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
