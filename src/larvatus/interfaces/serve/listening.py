"""Models behind a socket: uvicorn around the application of `app.py`, with strict timeouts, draining and flat memory.

    keep_little_memory()                                            # before the first thread
    with listening_socket("127.0.0.1", 0) as socket:
        listen([load("runs/law")], ServeSettings(), socket)         # until SIGTERM or Ctrl-C stops it

At the first signal new requests get 503 and those in flight are finished, for at most `drain_seconds`; a second signal
ends it at once. It then returns, so that the command exits with 0. `started` is called once signals are handled and the
socket is served: only then should the address be printed.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import os
import signal
import socket
import socket as sockets
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from larvatus.core.errors import UsageError
from larvatus.interfaces.serve.middleware.stack import Drain
from larvatus.interfaces.serve.responses import log_task_error, quiet_logs
from larvatus.interfaces.serve.settings import ServeSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from larvatus.inference.model import Model


HEADER_S = 5.0
"""Seconds for the headers of a request, from the connection or from their first byte."""
HEADER_BYTES = 64 * 2**10
KEEP_S = 15
"""Seconds between two requests of a connection, and for a response that the client does not read."""
AFTER_DRAIN_S = 2
"""Seconds for connections to close once nothing is in flight."""


MOST_CONNECTIONS = 512


class StrictHttpProtocol(HttpToolsProtocol):  # type: ignore[misc]  # uvicorn is untyped to us
    """Closes a connection whose headers do not arrive or do not end, or whose client does not read its response.

    When more than `most` are open, the one that has been idle longest is closed, so that clients which only connect
    keep nobody out; if all are busy, the new one is.
    """

    header_seconds = HEADER_S
    _timer: asyncio.TimerHandle | None = None
    _bytes = 0
    _unread = sys.maxsize
    """Bytes of the response that the client had not read at the last check."""

    def __init__(self, *given: Any, most: int = MOST_CONNECTIONS, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self._most = most
        self._idle_since = time.monotonic()
        self.access_log = False  # it would log query strings

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._wait_for_headers()
        if len(self.connections) > self._most:
            idle = [each for each in self.connections if each is not self and each.is_idle]
            min(idle, key=lambda each: each._idle_since, default=self)._cut()

    @property
    def is_idle(self) -> bool:
        """Whether no request of this connection is being read or answered."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def on_response_complete(self) -> None:
        self._idle_since = time.monotonic()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._bytes, self._unread = 0, sys.maxsize
        if self._timer is None:
            self._wait_for_headers()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(len(name) + len(value))

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def timeout_keep_alive_handler(self) -> None:
        """A client that reads slowly keeps its connection as long as it reads."""
        before, self._unread = self._unread, self.transport.get_write_buffer_size()
        if not self._unread:
            super().timeout_keep_alive_handler()
        elif self._unread < before:
            again = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
            self.timeout_keep_alive_task = again
        else:
            self._cut()

    def _wait_for_headers(self) -> None:
        self._timer = self.loop.call_later(self.header_seconds, self._cut)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _count(self, more: int) -> None:
        self._bytes += more
        if self._bytes > HEADER_BYTES:
            self._cut()

    def _cut(self) -> None:
        self.connections.discard(self)  # at once: the loop reports the loss later
        self.transport.abort()


class DrainingServer(uvicorn.Server):  # type: ignore[misc]
    """Drains at the first signal, stops at the second."""

    def __init__(self, config: uvicorn.Config, drain: Drain, seconds: float) -> None:
        super().__init__(config)
        self.drain = drain
        self.seconds = seconds
        self._latest = float("inf")
        self.on_started: Callable[[], None] = lambda: None

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Like uvicorn, but the signal is not raised again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.drain.begun:
            self.should_exit = self.force_exit = True
        self.stop()

    def stop(self) -> None:
        """Begin to drain; safe from any thread."""
        if not self.drain.begun:
            self._latest = time.monotonic() + self.seconds
            self.drain.begin()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(log_task_error)
        await super().startup(sockets)
        if self.started:
            self.on_started()

    async def on_tick(self, counter: int) -> bool:
        if self.drain.begun and time.monotonic() >= self._latest:
            await self._give_up()
        if self.drain.is_done:
            self.should_exit = True
        return bool(await super().on_tick(counter))

    async def _give_up(self) -> None:
        """Cancel requests that are still in flight, and let their errors be sent."""
        tasks = [task for task in self.server_state.tasks if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=AFTER_DRAIN_S)
        self.should_exit = True


def draining_server(
    app: ASGIApp,
    *,
    drain: Drain,
    drain_seconds: float,
    backlog: int = 2_048,
    connections: int = MOST_CONNECTIONS,
) -> DrainingServer:
    """A server, not running yet."""
    protocol: Any = functools.partial(StrictHttpProtocol, most=connections)
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=backlog,
        timeout_keep_alive=KEEP_S,
        timeout_graceful_shutdown=AFTER_DRAIN_S,
    )
    return DrainingServer(config, drain, drain_seconds)


def run_until_stopped(
    app: ASGIApp,
    listening: socket.socket,
    *,
    drain: Drain,
    drain_seconds: float,
    connections: int = MOST_CONNECTIONS,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Serve on a socket until a signal arrives and all requests in flight have their response."""
    with quiet_logs():
        server = draining_server(app, drain=drain, drain_seconds=drain_seconds, connections=connections)
        server.on_started = started
        server.run([listening])


# Sockets and memory.

NEEDED = ("fastapi", "uvicorn", "httptools", "prometheus_client")
BACKLOG = 2_048


def check_installed() -> None:
    """Refuse if the packages of a server are not installed."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise UsageError(f'a server needs {", ".join(missing)}; pip install "larvatus[studio]"')


def listening_socket(host: str, port: int) -> sockets.socket:
    """A bound socket. It is bound before any model is loaded, so that a port in use is reported at once."""
    check_installed()
    family = sockets.AF_INET6 if ":" in host else sockets.AF_INET
    try:
        return sockets.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise UsageError(f"cannot listen on {host}:{port} ({reason}); choose another --host or --port") from fault


def listen(
    models: Sequence[Model],
    settings: ServeSettings,
    socket: sockets.socket,
    *,
    ready: Callable[[str], None] = lambda names: None,
) -> None:
    """Serve until SIGINT or SIGTERM. `ready` gets the names of the models once the server accepts requests."""
    from larvatus.interfaces.serve.app import build_app  # needs an extra

    app = build_app(models, settings)
    run_app(app, socket, settings, started=lambda: ready(", ".join(app.state.server.served.models)))


def run_app(
    app: FastAPI,
    socket: sockets.socket,
    settings: ServeSettings,
    *,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Run an application of `build_app` until SIGINT or SIGTERM."""

    run_until_stopped(
        app,
        socket,
        drain=app.state.middleware.drain,
        drain_seconds=settings.timeout,
        connections=settings.connections,
        started=started,
    )


# mallopt(3); the numbers are part of glibc's interface
_MMAP_THRESHOLD = -3
_ARENA_MAX = -8
ARENAS = 1
APART_BYTES = 1 << 20
USER_VARIABLES = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_little_memory() -> bool:
    """Limit arenas and mapped blocks. False if the allocator is not glibc's, or the user has set it up.

    glibc gives each thread an arena, keeps freed memory there for that thread, and raises by itself the size from which
    it maps a block of its own. The threads of a server take turns with blocks of every size, so each arena grows to the
    largest of them, and the process grows for an hour or more although nothing leaks. One arena and a fixed threshold
    keep it flat, at the price of some speed: the system clears mapped blocks each time. To trade memory for speed, set
    glibc's own variable (`MALLOC_ARENA_MAX=16 larvatus serve …`); it is then left unchanged.
    """
    if any(name in os.environ for name in USER_VARIABLES):
        return False
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018  # mallopt of another library may number its options differently
        mallopt = library.mallopt
    except (AttributeError, OSError, TypeError):
        return False
    accepted = [mallopt(_ARENA_MAX, ARENAS), mallopt(_MMAP_THRESHOLD, APART_BYTES)]
    return all(accepted)
