"""What a server lets in: keys, hosts and origins, request bodies of bounded size, clients that stay connected.

    larvatus serve runs/mine --key-file keys.txt --host 0.0.0.0
    curl -H "Authorization: Bearer $KEY" http://server:8311/v1/models

**Keys.** With a key file, every route except /healthz needs one of its keys. Keys are compared by their SHA-256, in
constant time and with all keys each time, so that the time of a response reveals neither which key was nearly right nor
its line.

**Hosts.** Without keys, any program that reaches 127.0.0.1 may send requests. So may a page from another site: by a
cross-origin request, which shows in `Origin`, or through a host name that it resolves to 127.0.0.1 (DNS rebinding),
which shows in `Host`. Accepted hosts are names of this machine, the address that the server is bound to, and
`--host-allowed`. The studio uses the same checks (`studio/http.py`).

    Host: 127.0.0.1:8311   Host: localhost:8311   Host: [::1]:8311         accepted
    Host: larvatus:8311                                                    accepted with --host-allowed larvatus
    Host: evil.example     Host: evil     Origin: https://evil.example     403
    no Host, or an empty one                                               400

**Bodies.** A body is read here, at most `most` bytes of it whether or not the client announces its length, and passed
on in one message. The bodies of all requests together are bounded, too: many slow clients cannot fill the memory. The
package has no parser for forms: a multipart body is refused by its type, before it is read.

**Clients.** A route runs as a task next to one that listens to the client. When the client disconnects, the task is
cancelled: its request leaves the queue, and no forward pass is spent on a response that nobody reads.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from larvatus.core.errors import UsageError
from larvatus.core.regular_files import follow_link, read_text
from larvatus.interfaces.serve.responses import (
    BadRequest,
    BodyTooLarge,
    ForeignPage,
    NoKey,
    NotJSON,
    QueueFull,
    RequestError,
    TooSlow,
    WrongKey,
    request_header,
    send_error_unread,
)
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


# Bodies and clients.

BODILESS = {"GET", "HEAD", "OPTIONS"}
HELD = 64
"""Bodies of full size that fit into the bound on all requests together."""


class BodyLimitMiddleware:
    """Reads the whole body; the application gets it in one message."""

    def __init__(self, app: ASGIApp, *, most: int, seconds: float) -> None:
        self.app = app
        self.most = most
        self.seconds = seconds
        self.held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        chunks = bytearray()
        try:
            self._check_headers(scope)
            if not await self._read(receive, chunks):
                return
            await self.app(scope, _replayed(bytes(chunks), receive), send)
        except _Unread as unread:
            await send_error_unread(receive, send, unread.refusal)
        finally:
            self.held -= len(chunks)

    def _check_headers(self, scope: Scope) -> None:
        length = request_header(scope, b"content-length")
        announced = request_header(scope, b"transfer-encoding") is not None or length not in (None, "0")
        if not announced:
            return
        if scope["method"] in BODILESS:
            raise _Unread(BadRequest(f"{scope['method']} takes no body; send none, or use POST"))
        if length is not None and not (length.isascii() and length.isdigit()):
            raise _Unread(BadRequest("Content-Length must be a number of bytes; leave it to your HTTP library"))
        if length is not None and (len(length) > 18 or int(length) > self.most):
            raise self._too_large()
        kind = (request_header(scope, b"content-type") or "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise _Unread(NotJSON("bodies are JSON; send it with the header Content-Type: application/json"))
        if (request_header(scope, b"content-encoding") or "identity").lower() != "identity":
            raise _Unread(NotJSON("compressed bodies are not accepted; send plain JSON"))

    async def _read(self, receive: Receive, chunks: bytearray) -> bool:
        """Read the whole body. False if the client disconnected first."""
        try:
            async with asyncio.timeout(self.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return False
                    chunks += message.get("body", b"")
                    self.held += len(message.get("body", b""))
                    if len(chunks) > self.most:
                        raise self._too_large()
                    if self.held > HELD * self.most:
                        raise _Unread(QueueFull("too many large bodies at once; try again in a moment"))
                    if not message.get("more_body", False):
                        return True
        except TimeoutError:
            late = f"the body did not arrive within {self.seconds:g} seconds; send it faster, or a smaller one"
            raise _Unread(TooSlow(late)) from None

    def _too_large(self) -> _Unread:
        return _Unread(BodyTooLarge(f"bodies have at most {self.most:,} bytes (--max-body); send less at once"))


class _Unread(Exception):
    """An error before the body was read to its end. Errors of the application pass unchanged."""

    def __init__(self, refusal: RequestError) -> None:
        super().__init__()
        self.refusal = refusal


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body in one message, then the messages of the client: its disconnect."""
    waiting = [body]

    async def replay() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return replay


class DisconnectMiddleware:
    """Cancels operations (POST below /v1/) whose client has disconnected."""

    def __init__(self, app: ASGIApp, *, on_gone: Callable[[], None]) -> None:
        self.app = app
        self.on_gone = on_gone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].startswith("/v1/"):
            await self.app(scope, receive, send)
            return
        bodies = [await receive()]  # whole: `BodyLimit` has read it
        watch = asyncio.ensure_future(_until_gone(receive))

        async def read() -> Message:
            if bodies:
                return bodies.pop()
            await asyncio.shield(watch)
            return {"type": "http.disconnect"}

        work = asyncio.ensure_future(self.app(scope, read, send))
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()  # raises what it raised
            else:
                self.on_gone()
        finally:  # also when this task itself is cancelled: the server stops
            await _end(work)
            await _end(watch)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(task: asyncio.Future[None]) -> None:
    """Cancel a task and wait for its end; its exceptions are dropped."""
    if not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task
