"""`larvatus serve DIR [DIR…]`: every task of models behind one address."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from larvatus.inference.model import Model
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.machine import Machine
from larvatus.interfaces.serve.memory import keep_little_memory
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.models.bundle.model_names import HELP as PACKAGED
from larvatus.models.bundle.model_names import model_or_packaged


@from_structs
def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DIR]...", help=f"Model directories, or hub names; by default {PACKAGED}."),
    ] = None,
    *,
    settings: Annotated[ServeSettings, Panel()],
    machine: Machine,
) -> None:
    """Serve every task of models: /v1/fill, /v1/embed, /v1/classify, …; /docs lists all. Ctrl-C ends it."""
    keep_little_memory()  # before any thread has an arena
    if settings.json_lines:
        _answer_lines([machine.load(name) for name in models or [model_or_packaged()]], settings)
        return
    from larvatus.interfaces.serve.listening import listen, listening_socket  # FastAPI and uvicorn are an extra

    socket = listening_socket(settings.host, settings.port)
    with socket:
        loaded = [machine.load(name) for name in models or [model_or_packaged()]]
        host, port = socket.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        listen(
            loaded,
            settings,
            socket,
            ready=lambda names: print(f"{names} on http://{shown}:{port} (see /docs)", flush=True),
        )


def _answer_lines(models: Sequence[Model], settings: ServeSettings) -> None:
    """Requests from standard input, answers to standard output; needs nothing that a socket would."""
    from larvatus.interfaces.serve.json_lines import serve_lines
    from larvatus.interfaces.serve.server import Server

    server = Server.of(models, settings)
    try:
        serve_lines(server, lambda most: os.read(sys.stdin.fileno(), most), sys.stdout.buffer)
    finally:
        server.close()
