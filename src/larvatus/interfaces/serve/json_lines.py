"""Requests and responses as lines of JSON, in order, without a socket: for programs that start the server themselves.

    $ larvatus serve runs/law --json
    {"route": "fill", "texts": ["The appeal was [MASK]."], "id": 1}
    {"id":1,"model":"law","results":[…]}

A line is the body of a request with its route and an optional `id` (a string or a number), which the response repeats.
Further lines are read while others run, so that they share forward passes as requests over HTTP do; responses keep the
order of the lines. At most `AHEAD` lines run at once: a program that writes faster has to wait. The response to a line
that is refused is `{"error": …, "status": 422, "line": 7}`, and the next line is read. The server ends when the input
has ended and all responses are written.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO

import msgspec

from larvatus.core.errors import LarvatusError, did_you_mean
from larvatus.core.signals import Stop, handle_signals
from larvatus.interfaces.serve.operations import OPERATIONS
from larvatus.interfaces.serve.operations.operation import read_body
from larvatus.interfaces.serve.responses import BadRequest, OverLimit, WrongBody, error_body, http_status, logger
from larvatus.interfaces.serve.server import Server

MODELS = "models"
AHEAD = 64
CHUNK = 65_536
LOOK_S = 0.2
"""Seconds between two checks for a signal while no line arrives."""

Read = Callable[[int], bytes]
Id = str | int | float | None
Envelope = dict[str, msgspec.Raw]
_envelope = msgspec.json.Decoder(Envelope)
_encode = msgspec.json.Encoder().encode


def serve_lines(server: Server, read: Read, sink: BinaryIO) -> None:
    """Answer every line of the input on `sink`; `read(n)` returns at most n bytes, none at the end.

    `read` must not belong to a buffered stream: a thread blocks in it, and stays there when a signal ends the program.
    """
    pending: queue.Queue[Future[bytes] | None] = queue.Queue(min(AHEAD, server.settings.queue))
    stopping = threading.Event()
    pool = ThreadPoolExecutor(pending.maxsize, thread_name_prefix="larvatus line")

    def read_ahead() -> None:
        try:
            for number, line in enumerate(lines_of(read, server.settings.max_body), start=1):
                if stopping.is_set():
                    return
                if line is None or line.strip():
                    pending.put(pool.submit(answer_line, server, line, number))
        finally:
            pending.put(None)

    with handle_signals() as stop, stop.noting():
        threading.Thread(target=read_ahead, name="larvatus lines", daemon=True).start()
        try:
            _write(pending, sink, stop)
        finally:
            stopping.set()
            pool.shutdown(cancel_futures=True)
        stop.check()


def _write(pending: queue.Queue[Future[bytes] | None], sink: BinaryIO, stop: Stop) -> None:
    """Write responses in order; after a signal, those of the lines that were read."""
    while True:
        try:
            answer = pending.get(timeout=0 if stop.requested else LOOK_S)
        except queue.Empty:
            if stop.requested:
                return
            continue
        if answer is None:
            return
        sink.write(answer.result() + b"\n")
        sink.flush()


def lines_of(read: Read, longest: int) -> Iterator[bytes | None]:
    r"""Lines without their ends; None for a line that is longer than allowed, which is never held in memory.

    >>> from io import BytesIO
    >>> list(lines_of(BytesIO(b"a\nlonger\nb").read, 4))
    [b'a', None, b'b']
    """
    parts: list[bytes] = []
    size = 0
    while chunk := read(CHUNK):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield b"".join([*parts, end]) if size + len(end) <= longest else None
            parts, size = [], 0
        size += len(rest)
        parts = [*parts, rest] if size <= longest else []
    if size:
        yield b"".join(parts) if size <= longest else None


def answer_line(server: Server, line: bytes | None, number: int) -> bytes:
    """The response to a line; errors too, never a traceback."""
    name: Id = None
    try:
        if line is None:
            most = server.settings.max_body
            raise OverLimit(f"the line is longer than {most:,} bytes (--max-body); send less at once")
        envelope = _decode(line)
        name = _take_field(envelope, "id", Id)
        response = _response(server, envelope)
    except LarvatusError as fault:
        response = {**error_body(fault), "status": http_status(fault), "line": number}
    except Exception as fault:  # unexpected: the log says what it was, never on which input
        logger.error("line %d failed: %s", number, type(fault).__name__)
        response = {**error_body(fault), "status": http_status(fault), "line": number}
    return _encode(response if name is None else {"id": name, **response})


def _decode(line: bytes) -> Envelope:
    try:
        return _envelope.decode(line)
    except msgspec.ValidationError:
        raise WrongBody('a line is an object: {"route": "fill", "texts": […]}') from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        reason = "not UTF-8" if isinstance(fault, UnicodeDecodeError) else str(fault)
        raise BadRequest(f"the line is not JSON: {reason}") from None


def _take_field(envelope: Envelope, field: str, kind: Any) -> Any:
    """Take a field that is not part of the body out of the line; None if it is absent."""
    try:
        return msgspec.json.decode(envelope.pop(field, msgspec.Raw(b"null")), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise WrongBody(f"{field} must be a text{'' if field == 'route' else ' or a number'}") from None


def _response(server: Server, envelope: Envelope) -> dict[str, Any]:
    route = _take_field(envelope, "route", str | None)
    if route == MODELS:
        return {"models": [model.describe() for model in server.served.models.values()]}
    if route not in OPERATIONS:
        problem = "the line names no route" if route is None else f"there is no route {route!r}"
        raise WrongBody(problem + did_you_mean(route or "", [*OPERATIONS, MODELS]))
    operation = OPERATIONS[route]
    return server.answer_now(operation, read_body(_encode(envelope), operation.Body))
