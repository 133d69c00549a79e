"""Answers that are read with a limit of bytes and of time, whatever the other side sends.

    connection.sock = DeadlineSocket(connection.sock, CallDeadline(60))
    body = read_all(connection.getresponse(), most=MOST_BYTES)

A socket's own time limit holds for each read: a server that sends a byte now and then would be read for ever. Here
every read, of headers too, has what is left of the time for the whole call.
"""

from __future__ import annotations

import io
import time
from http.client import HTTPResponse
from socket import socket
from typing import Any

MOST_BYTES = 64 * 2**20
"""Most bytes of an answer. A server gives about two million numbers at most, 45 MB."""
CHUNK = 2**16


class AnswerTooLarge(Exception):
    """More bytes than an answer may have."""


class CallDeadline:
    """The end of a call."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left; TimeoutError where none is."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class DeadlineSocket:
    """A socket for `http.client`, each of whose reads and writes ends by a deadline."""

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
    """Reads of a file of the socket, which keeps it open until both are closed."""

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
