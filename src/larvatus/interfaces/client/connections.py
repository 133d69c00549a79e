"""Requests to one server: kept connections, limits on time and size, and retries when the server is full.

    connections = Connections("http://127.0.0.1:8311", key="secret", timeout=60, retries=4)
    connections.ask("GET", "/v1/models")           # the JSON of the response, or a ServerError with the server's line

Every route computes and changes nothing, so a request may be sent again: when the server is full (429), after the wait
that it requests, and when a kept connection turns out to be closed.

The timeout of a socket applies to each read: a server that sends a byte now and then would be read for ever. Here every
read, of headers too, gets what is left of the time for the whole call.
"""

from __future__ import annotations

import io
import json
import math
import ssl
import threading
import time
from contextlib import suppress
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from socket import socket
from typing import Any
from urllib.parse import urlsplit

import msgspec

from larvatus.core.errors import UsageError, printable
from larvatus.core.threads import reset_after_fork
from larvatus.interfaces.client.answers import LONGEST_LINE, ServerError, refusal, wrong_answer

MOST_BYTES = 64 * 2**20
"""Most bytes of a response. A server sends at most about two million numbers, 45 MB."""
CHUNK = 2**16


class AnswerTooLarge(Exception):
    """More bytes than a response may have."""


class CallDeadline:
    """The time at which a call must end."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left; raises TimeoutError if there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class DeadlineSocket:
    """A socket for `http.client` whose reads and writes all end by a deadline."""

    def __init__(self, plain: socket, deadline: CallDeadline) -> None:
        self.plain, self.deadline = plain, deadline

    def sendall(self, data: Any) -> None:
        self.plain.settimeout(self.deadline.left())
        self.plain.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        assert mode == "rb"
        return io.BufferedReader(_Reads(self, self.plain.makefile("rb", buffering=0)))

    def close(self) -> None:
        self.plain.close()


class _Reads(io.RawIOBase):
    """Reads from a file of the socket; the socket stays open until both are closed."""

    def __init__(self, of: DeadlineSocket, file: io.RawIOBase) -> None:
        self._of, self._file = of, file

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any, /) -> int | None:
        self._of.plain.settimeout(self._of.deadline.left())
        return self._file.readinto(into)

    def close(self) -> None:
        self._file.close()
        super().close()


def read_all(response: HTTPResponse, *, most: int) -> bytes:
    """The whole body."""
    if response.length is not None and response.length > most:
        raise AnswerTooLarge
    parts, size = list[bytes](), 0
    while part := response.read(CHUNK):
        parts.append(part)
        size += len(part)
        if size > most:
            raise AnswerTooLarge
    return b"".join(parts)


FULL = 429
WAIT_S = 1.0
"""Wait before a retry, if a full server does not send Retry-After."""


class Connections:
    """Connections to one server, for any number of threads: a request takes a free connection, or opens one."""

    def __init__(self, address: str, *, key: str | None, timeout: float, retries: int) -> None:
        self.reset_in_child()
        self._secure, self._host, self._port, self._path = _parts(address)
        if not (math.isfinite(timeout) and timeout > 0):
            raise UsageError(f"timeout={timeout!r} is not a valid timeout; give seconds, such as timeout=60")
        if retries < 0:
            raise UsageError(f"retries={retries} is negative; give 0 or more")
        self.address, self._timeout, self._retries = address, timeout, retries
        self._headers = {"Accept": "application/json", **_key_header(key)}
        reset_after_fork(self)

    def reset_in_child(self) -> None:
        """Leave the connections to the parent: two processes on one would read each other's responses."""
        self._free: list[HTTPConnection] = []
        self._lock = threading.Lock()

    def __del__(self) -> None:
        self.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of the response; raises a `ServerError` if the request is refused."""
        sent = None if body is None else _encoded(body)
        deadline = CallDeadline(self._timeout)
        try:
            for left in range(self._retries, -1, -1):
                status, wait, answer = self._exchange(method, self._path + path, sent, deadline)
                if status == FULL and left and wait <= deadline.left():
                    time.sleep(wait)
                    continue
                break
        except TimeoutError as fault:
            raise self._late() from fault
        except AnswerTooLarge:
            raise wrong_answer(self.address, f"it has more than {MOST_BYTES:,} bytes") from None
        return self._read(status, answer)

    def close(self) -> None:
        """Close free connections; one in use is closed after its request."""
        with self._lock:
            free, self._free = self._free, []
        for connection in free:
            connection.close()

    def _exchange(self, method: str, path: str, body: bytes | None, deadline: CallDeadline) -> tuple[int, float, bytes]:
        """Status, seconds to wait before a retry, and the bytes of the response."""
        with self._lock:
            kept = self._free.pop() if self._free else None
        if kept is not None:
            try:
                return self._send(kept, method, path, body, deadline)
            except TimeoutError:
                raise
            except (HTTPException, OSError, ValueError):
                self.close()  # the server has closed it; the others are as old
        try:
            return self._send(self._opened(deadline), method, path, body, deadline)
        except TimeoutError:
            raise
        except (HTTPException, OSError, ValueError) as fault:
            reason = printable((str(fault) or type(fault).__name__)[:LONGEST_LINE])
            raise ServerError(
                f"{self.address} does not answer ({reason}); is it running? larvatus serve DIR starts a server"
            ) from fault

    def _opened(self, deadline: CallDeadline) -> HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()
            return HTTPSConnection(self._host, self._port, timeout=deadline.left(), context=context)
        return HTTPConnection(self._host, self._port, timeout=deadline.left())

    def _send(
        self, connection: HTTPConnection, method: str, path: str, body: bytes | None, deadline: CallDeadline
    ) -> tuple[int, float, bytes]:
        done = False
        try:
            self._limit(connection, deadline)
            headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
            with suppress(BrokenPipeError, ConnectionResetError):  # refused before all of it was sent: 413
                connection.request(method, path, body=body, headers=headers)
            with connection.getresponse() as response:
                answer = read_all(response, most=MOST_BYTES)
            done = not response.will_close
        finally:
            if not done:
                connection.close()
        with self._lock:
            self._free.append(connection)
        return response.status, seconds_to_wait(response.getheader("Retry-After")), answer

    @staticmethod
    def _limit(connection: HTTPConnection, deadline: CallDeadline) -> None:
        """Apply the deadline to all reads and writes of a connection, new or kept."""
        if connection.sock is None:
            connection.connect()
        if isinstance(connection.sock, DeadlineSocket):
            connection.sock.deadline = deadline
        else:
            connection.sock = DeadlineSocket(connection.sock, deadline)

    def _late(self) -> ServerError:
        return ServerError(
            f"{self.address} did not answer in {self._timeout:g} seconds; send fewer texts at once, or give a longer "
            "timeout"
        )

    def _read(self, status: int, answer: bytes) -> Any:
        try:
            said = msgspec.json.decode(answer)
        except (RecursionError, MemoryError) as fault:
            why = "nested too deeply" if isinstance(fault, RecursionError) else "too large for the memory here"
            raise wrong_answer(self.address, why, status=status) from None
        except (ValueError, OverflowError) as fault:
            line = printable(answer[:LONGEST_LINE].decode("utf-8", "replace").strip().partition("\n")[0])
            raise ServerError(
                f"{self.address} answered {status} without JSON ({line or 'nothing'}); is it a Larvatus server?",
                status=status,
            ) from fault
        if status != 200:
            raise refusal(said, status, otherwise=f"{self.address} answered {status}")
        if not isinstance(said, dict):
            raise wrong_answer(self.address, f"JSON that is {type(said).__name__}, not an object", status=status)
        return said


def seconds_to_wait(header: str | None) -> float:
    """Seconds until the time in a Retry-After header, which is a number or a date.

    >>> seconds_to_wait("3"), seconds_to_wait(None), seconds_to_wait("Thu, 01 Jan 1970 00:00:00 GMT")
    (3.0, 1.0, 0.0)
    """
    if header is None:
        return WAIT_S
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError):
        return WAIT_S


def _parts(address: str) -> tuple[bool, str, int | None, str]:
    """Whether it is encrypted, host, port, and the path before every route."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    plain = not (parts.query or parts.fragment or parts.username or parts.password)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain or not address.isprintable():
        raise UsageError(
            f"{printable(address)!r} is not the address of a server; give one such as http://127.0.0.1:8311"
        )
    return parts.scheme == "https", parts.hostname, port, parts.path.rstrip("/")


def _key_header(key: str | None) -> dict[str, str]:
    if key is None:
        return {}
    if not key or not key.isascii() or not key.isprintable():
        raise UsageError(
            "the key contains invalid characters; give a line of the server's key file without its line end"
        )
    return {"Authorization": f"Bearer {key}"}


def _encoded(body: Any) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as fault:
        raise UsageError("a text has half of a surrogate pair, which is not a character; decode it again") from fault
    except (TypeError, ValueError) as fault:
        raise UsageError(f"a request takes texts, numbers and lists of them: {printable(str(fault))}") from fault
