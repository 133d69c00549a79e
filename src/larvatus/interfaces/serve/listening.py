"""Models behind a socket: uvicorn around the application of `app.py`, in a process whose memory stays flat.

keep_little_memory()                                            # before the first thread
with listening_socket("127.0.0.1", 0) as socket:
    listen([load("runs/law")], ServeSettings(), socket)         # until a signal stops it
"""

from __future__ import annotations

import ctypes
import os
import socket as sockets
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from larvatus.core.errors import UsageError
from larvatus.interfaces.serve.settings import ServeSettings

if TYPE_CHECKING:
    from fastapi import FastAPI  # an extra

    from larvatus.inference.model import Model


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
    from larvatus.interfaces.serve.uvicorn_server import run_until_stopped  # needs an extra

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
