"""Models behind a socket: uvicorn around the application of `app.py`.

with listening_socket("127.0.0.1", 0) as socket:
    listen([load("runs/law")], ServeSettings(), socket)         # until a signal stops it
"""

from __future__ import annotations

import socket as sockets
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from larvatus.core.errors import UsageError
from larvatus.inference.model import Model
from larvatus.interfaces.serve.settings import ServeSettings

if TYPE_CHECKING:
    from fastapi import FastAPI  # an extra

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
