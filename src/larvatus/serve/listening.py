"""The server itself: uvicorn on a socket of ours, with patience that ends, and a drain when it is asked to stop.

    with listen("127.0.0.1", 8311) as socket:
        serve(app, socket, drain=drain, drain_seconds=30)       # until SIGTERM or Ctrl-C; then it returns

A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from larvatus.errors import UsageError
from larvatus.serve.drain import Drain
from larvatus.serve.quiet_logs import quiet_logs, task_failed

HEADER_S = 10.0
"""Until the headers of a first request are there."""
KEEP_S = 15.0
"""Between two requests of a connection, and for an answer that the client does not read."""
AFTER_DRAIN_S = 2
"""For connections to close once nothing is in flight."""


class Impatient(H11Protocol):
    """A connection that sends no request, or does not read its answer, is closed."""

    header_seconds = HEADER_S

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._first = self.loop.call_later(self.header_seconds, self._nothing_came)

    def connection_lost(self, exc: Exception | None) -> None:
        self._first.cancel()
        super().connection_lost(exc)

    def _nothing_came(self) -> None:
        if self.cycle is None:
            self.transport.abort()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size() > 0:
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()


class Server(uvicorn.Server):
    """Drains at the first signal, ends at the second, and exits as whoever called it says."""

    def __init__(self, config: uvicorn.Config, drain: Drain, seconds: float) -> None:
        super().__init__(config)
        self.drain = drain
        self.seconds = seconds
        self._latest = float("inf")

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
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
        """Begin to drain; from any thread."""
        if not self.drain.begun:
            self._latest = time.monotonic() + self.seconds
            self.drain.begin()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(task_failed)
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        if self.drain.is_done or (self.drain.begun and time.monotonic() >= self._latest):
            self.should_exit = True
        return await super().on_tick(counter)


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound, so that a port that is taken is one line before anything is loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host.strip("[]"), port))
    except OSError as fault:
        listening.close()
        raise UsageError(f"cannot listen on {host}:{port}: {fault.strerror}; give another --port or --host") from fault
    return listening


def make_server(app: ASGIApp, *, drain: Drain, drain_seconds: float, **settings: Any) -> Server:
    """A server that is not running yet: `serve` runs it, and tests do in a thread."""
    config = uvicorn.Config(
        app,
        http=Impatient,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(KEEP_S),
        timeout_graceful_shutdown=AFTER_DRAIN_S,
        **settings,
    )
    return Server(config, drain, drain_seconds)


def serve(app: ASGIApp, listening: socket.socket, *, drain: Drain, drain_seconds: float) -> None:
    """Until it is asked to stop, and has drained."""
    with quiet_logs():
        make_server(app, drain=drain, drain_seconds=drain_seconds).run([listening])
