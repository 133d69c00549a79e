"""uvicorn with strict timeouts, which drains on SIGTERM or Ctrl-C.

    run_until_stopped(app, socket, drain=drain, drain_seconds=30)       # until it is drained after SIGTERM or Ctrl-C

At the first signal new requests get 503 and those in flight are finished, for at most `drain_seconds`; a second signal
ends it at once. It then returns, so that the command exits with 0. `started` is called once signals are handled and the
socket is served: only then should the address be printed.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from larvatus.interfaces.serve.middleware.stack import Drain
from larvatus.interfaces.serve.responses import log_task_error, quiet_logs

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
