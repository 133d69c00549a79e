"""Requests as lines of JSON, answers as lines of JSON, in their order, without a socket: for programs that start us.

    $ larvatus serve runs/law --json
    {"route": "fill", "texts": ["The appeal was [MASK]."], "id": 1}
    {"id":1,"model":"law","results":[…]}

A line is the body of a request with its route and, where one is wanted in the answer, an `id` (a text or a number).
Lines are read on while others are worked on, so that they flow into the same passes of the encoder as requests over
HTTP do; answers wait for their turn. At most `AHEAD` lines are under way: a program that writes faster is made to wait.
A line that is refused is answered with `{"error": …, "status": 422, "line": 7}`, and the next is read. The end of the
input ends it once all is answered.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO

import msgspec

from larvatus.core.errors import LarvatusError, did_you_mean
from larvatus.core.signals import Stop, handle_signals
from larvatus.interfaces.serve.bodies import read_body
from larvatus.interfaces.serve.operations.registry import OPERATIONS
from larvatus.interfaces.serve.refusals import BadRequest, OverLimit, WrongBody, error_of, status_of
from larvatus.interfaces.serve.server import Server

LOG = logging.getLogger("larvatus.serve")
MODELS = "models"
AHEAD = 64
CHUNK = 65_536
LOOK_S = 0.2
"""Between two looks for a signal, while nothing comes."""

Read = Callable[[int], bytes]
Id = str | int | float | None
Envelope = dict[str, msgspec.Raw]
_envelope = msgspec.json.Decoder(Envelope)
_encode = msgspec.json.Encoder().encode


def serve_lines(server: Server, read: Read, sink: BinaryIO) -> None:
    """Answer every line of the input on `sink`; `read(n)` gives at most n bytes, none at the end.

    It must not be a buffered stream's: a thread waits in it, which is left there when a signal ends the program.
    """
    under_way: queue.Queue[Future[bytes] | None] = queue.Queue(min(AHEAD, server.settings.queue))
    stopping = threading.Event()
    pool = ThreadPoolExecutor(under_way.maxsize, thread_name_prefix="larvatus line")

    def take() -> None:
        try:
            for number, line in enumerate(lines_of(read, server.settings.max_body), start=1):
                if stopping.is_set():
                    return
                if line is None or line.strip():
                    under_way.put(pool.submit(answer_line, server, line, number))
        finally:
            under_way.put(None)

    with handle_signals() as stop, stop.noting():
        threading.Thread(target=take, name="larvatus lines", daemon=True).start()
        try:
            _write(under_way, sink, stop)
        finally:
            stopping.set()
            pool.shutdown(cancel_futures=True)
        stop.check()


def _write(under_way: queue.Queue[Future[bytes] | None], sink: BinaryIO, stop: Stop) -> None:
    """Answers in their order; after a signal, those whose lines were read."""
    while True:
        try:
            answer = under_way.get(timeout=0 if stop.asked else LOOK_S)
        except queue.Empty:
            if stop.asked:
                return
            continue
        if answer is None:
            return
        sink.write(answer.result() + b"\n")
        sink.flush()


def lines_of(read: Read, longest: int) -> Iterator[bytes | None]:
    r"""Lines without their ends; None for one that is longer than allowed, which is never held whole.

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
    """The line that answers a line; errors too, never a traceback."""
    name: Id = None
    try:
        if line is None:
            most = server.settings.max_body
            raise OverLimit(f"the line is longer than {most:,} bytes (--max-body); send less at once")
        envelope = _opened(line)
        name = _part(envelope, "id", Id)
        said = _answered(server, envelope)
    except LarvatusError as fault:
        said = {**error_of(fault), "status": status_of(fault), "line": number}
    except Exception as fault:  # nobody foresaw it: the log says what it was, never on which input
        LOG.error("line %d failed: %s", number, type(fault).__name__)
        said = {**error_of(fault), "status": status_of(fault), "line": number}
    return _encode(said if name is None else {"id": name, **said})


def _opened(line: bytes) -> Envelope:
    try:
        return _envelope.decode(line)
    except msgspec.ValidationError:
        raise WrongBody('a line is an object: {"route": "fill", "texts": […]}') from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        said = "not UTF-8" if isinstance(fault, UnicodeDecodeError) else str(fault)
        raise BadRequest(f"the line is no JSON: {said}") from None


def _part(envelope: Envelope, field: str, kind: Any) -> Any:
    """A field of the line that is not the body's; None where it is not given."""
    try:
        return msgspec.json.decode(envelope.pop(field, msgspec.Raw(b"null")), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise WrongBody(f"{field} must be a text{'' if field == 'route' else ' or a number'}") from None


def _answered(server: Server, envelope: Envelope) -> dict[str, Any]:
    route = _part(envelope, "route", str | None)
    if route == MODELS:
        return {"models": [model.describe() for model in server.served.models.values()]}
    if route not in OPERATIONS:
        said = "the line names no route" if route is None else f"there is no route {route!r}"
        raise WrongBody(said + did_you_mean(route or "", [*OPERATIONS, MODELS]))
    operation = OPERATIONS[route]
    return server.answer_now(operation, read_body(_encode(envelope), operation.Body))
