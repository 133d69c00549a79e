"""Responses of a server: JSON, and the HTTP status and JSON of each error.

    return json_response({"models": []})
    raise NoSuchModel("there is no model 'law'; there are: english")       # 404
    await send_error(send, BodyTooLarge("bodies have at most 1,000 bytes (--max-body); send less at once"))

Errors are `{"error": {"type": …, "message": …}}`, never a traceback; `type` is the name of the class. Other
`LarvatusError`s of the library are 422: a text or an option cannot be used. Messages to clients name files, never
folders of this machine (`without_paths`).

Nothing that users send reaches a log: errors are logged by type and location. Python prints the message of a warning or
of an uncaught exception, and the message may quote a text, so a server runs within `quiet_logs()`.

Middleware sends errors itself, before a route is reached; `send_error_unread` is for a body that was not read whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from larvatus.core.errors import LarvatusError, OtherLanguageWarning

LONGEST = 2_000
"""Characters of a message: it may quote a name that a client made up."""
TOP_FOLDERS = frozenset(os.listdir("/"))
"""Listed once: no request looks at the disk."""
INTERNAL = "the server failed on this input; its log has the reason"
_PATH = re.compile(r"""(?<![\w/.])/([^\s/'"`<>|:;,()\[\]]+)/[^\s'"`<>|:;,()\[\]]*""")


class RequestError(LarvatusError):
    """Base class of errors that a request is answered with."""

    status: ClassVar[int] = 422

    def __init_subclass__(cls, *, status: int = 422) -> None:
        cls.status = status


class BadRequest(RequestError, status=400):
    """An empty request, or a body that is not JSON."""


class WrongBody(RequestError):
    """JSON with other fields or types than the route takes."""


class NoSuchModel(RequestError, status=404):
    """The server has no model of this name."""


class NoSuchIndex(RequestError, status=404):
    """The server has no index of this name."""


class OverLimit(RequestError):
    """More items, tokens or candidates than the server allows."""


class CannotDo(RequestError):
    """A model without the head that the operation needs."""


class QueueFull(RequestError, status=429):
    """Too many requests run or wait."""

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Closing(RequestError, status=503):
    """The server is draining, or closed."""


class TimedOut(RequestError, status=503):
    """No response within the timeout."""


class Cancelled(RequestError, status=499):
    """The client has disconnected; nobody receives this error."""


class BodyTooLarge(RequestError, status=413):
    """More bytes than the server allows."""


class NotJSON(RequestError, status=415):
    """A body of another content type: a form, a file, compressed data."""


class TooSlow(RequestError, status=408):
    """A body that does not arrive in time."""


class NoKey(RequestError, status=401):
    """A request without a key."""


class WrongKey(RequestError, status=403):
    """A key that the server does not know."""


class ForeignPage(RequestError, status=403):
    """A request that a page of another site made a browser send."""


def http_status(fault: BaseException) -> int:
    """The HTTP status of an error; 500 for unexpected ones."""
    if isinstance(fault, RequestError):
        return fault.status
    return 422 if isinstance(fault, LarvatusError) else 500


def error_body(fault: BaseException) -> dict[str, Any]:
    """The JSON of an error. It never holds a traceback, a path, or the message of an unexpected error."""
    expected = isinstance(fault, LarvatusError)
    message = without_paths(str(fault)) if expected else INTERNAL
    return {"error": {"type": type(fault).__name__ if expected else "InternalError", "message": message}}


def without_paths(message: str) -> str:
    """The message on one line, with the file name of each absolute path only, cut where it is very long.

    An absolute path begins with a folder that exists at the root of the file system; routes such as /v1/embed do not.

    >>> without_paths("cannot read '/usr/share/models/law.json'; GET /openapi.json lists all")
    "cannot read 'law.json'; GET /openapi.json lists all"
    """
    line = _PATH.sub(_file_name, " ".join(message.split()))
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _file_name(match: re.Match[str]) -> str:
    return match[0].rstrip("/").rpartition("/")[2] if match[1] in TOP_FOLDERS else match[0]


logger = logging.getLogger("larvatus.serve")


def error_location(fault: BaseException) -> str:
    """Type of an error and its place in our code: enough to find it, with nothing of the request.

    >>> try: {}["a secret"]
    ... except KeyError as fault: print(error_location(fault).split(" at ")[0])
    KeyError
    """
    frames = traceback.extract_tb(fault.__traceback__)
    package = str(Path(__file__).parents[2])
    last = next(
        (frame for frame in reversed(frames) if frame.filename.startswith(package)), frames[-1] if frames else None
    )
    where = "" if last is None else f" at {Path(last.filename).parent.name}/{Path(last.filename).name}:{last.lineno}"
    return f"{type(fault).__name__}{where}"


@contextmanager
def quiet_logs() -> Iterator[None]:
    """While a server runs; the previous hooks are restored afterwards."""
    hook = threading.excepthook
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OtherLanguageWarning)
        warnings.showwarning = _log_warning
        threading.excepthook = _log_thread_error
        for name in ("uvicorn.error", "uvicorn.access", "asyncio"):  # bad requests would fill the log
            logging.getLogger(name).setLevel(logging.ERROR)
        try:
            yield
        finally:
            threading.excepthook = hook


def log_task_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """For `loop.set_exception_handler`."""
    fault = context.get("exception")
    logger.error("%s in a task", "a fault" if fault is None else error_location(fault))


def _log_thread_error(given: threading.ExceptHookArgs) -> None:
    logger.error("%s in a thread", "a fault" if given.exc_value is None else error_location(given.exc_value))


def _log_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    logger.warning("%s at %s:%d", category.__name__, Path(filename).name, lineno)


# JSON responses.

LINGER_S = 1.0
"""Seconds for which incoming data is dropped, so that the client reads the error before the connection ends."""
_encoder = msgspec.json.Encoder()


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Numbers are not rounded; those that are not finite become null."""
    return Response(_encoder.encode(content), status, headers, media_type="application/json")


def error_response(fault: BaseException) -> Response:
    return json_response(error_body(fault), http_status(fault), error_headers(fault))


async def handle_larvatus_error(request: Request, fault: Exception) -> Response:
    """The application's handler of `LarvatusError`s."""
    return error_response(fault)


async def handle_http_exception(request: Request, fault: Exception) -> Response:
    """The application's handler of errors of the framework: no such route, no such method."""
    assert isinstance(fault, HTTPException)
    message = {404: "there is no such address", 405: "this address takes another method"}.get(
        fault.status_code, str(fault.detail)
    )
    error = {"error": {"type": "HTTPError", "message": f"{message}; GET /openapi.json lists all"}}
    return json_response(error, fault.status_code, dict(fault.headers or {}))


def error_headers(fault: BaseException) -> dict[str, str]:
    """Headers that go with an error: when to retry, how to authenticate."""
    retry = getattr(fault, "retry_after", None)
    headers = {} if retry is None else {"Retry-After": str(retry)}
    return {**headers, "WWW-Authenticate": "Bearer"} if isinstance(fault, NoKey) else headers


def request_header(scope: Scope, name: bytes) -> str | None:
    """A header of the request, None if it is absent. Several of one name are joined as HTTP joins them."""
    values = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
    return ", ".join(values) if values else None


async def send_error(send: Send, fault: BaseException) -> None:
    """Send an error as a complete response."""
    await _send(send, fault, close=False)


async def send_error_unread(receive: Receive, send: Send, fault: BaseException) -> None:
    """Send an error to a client whose body was not read to its end, and close the connection.

    If it were closed at once, the system would discard what the client has not read of the response, because the client
    still sends. So incoming data is dropped for a moment first, chunk by chunk.
    """
    await _send(send, fault, close=True)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while True:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body"):
                    break
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send(send: Send, fault: BaseException, *, close: bool) -> None:
    body = msgspec.json.encode(error_body(fault))
    headers = {"content-type": "application/json", "content-length": str(len(body)), **error_headers(fault)}
    if close:
        headers["connection"] = "close"
    encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": http_status(fault), "headers": encoded})
    await send({"type": "http.response.body", "body": body, "more_body": close})
