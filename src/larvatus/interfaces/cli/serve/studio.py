"""`larvatus studio [DIR…]`: a page on which models can be seen, taught and watched."""

from __future__ import annotations

import threading
import webbrowser
from typing import Annotated

import typer

from larvatus.core.errors import UsageError
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.machine import Machine
from larvatus.interfaces.serve.listening import listening_socket, run_app
from larvatus.interfaces.serve.memory import keep_little_memory
from larvatus.interfaces.studio.settings import StudioSettings
from larvatus.models.bundle.model_names import HELP as PACKAGED
from larvatus.models.bundle.model_names import packaged_model


@from_structs
def studio(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DIR]...", help=f"Model directories, or hub names; by default {PACKAGED}."),
    ] = None,
    *,
    settings: Annotated[StudioSettings, Panel()],
    machine: Machine,
) -> None:
    """Open a page to fill blanks, look inside, compare, label, teach and watch models. Ctrl-C ends it."""
    named = models or [_packaged()]
    keep_little_memory()  # before any thread has an arena
    with listening_socket(settings.host, settings.port) as socket:
        from larvatus.interfaces.studio.app import build_studio  # FastAPI and uvicorn are an extra

        loaded = [machine.load(name) for name in named]
        device = "cpu" if machine.on_cpu else machine.device
        app = build_studio(loaded, settings.serve, settings.folders, device=device)
        host, port = socket.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{port}/studio/?token={app.state.studio_token}"

        def started() -> None:
            print(f"{', '.join(app.state.server.served.models)} on {address}", flush=True)
            if not settings.no_browser:
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

        run_app(app, socket, settings.serve, started=started)


def _packaged() -> str:
    directory = packaged_model()
    if directory is None:
        raise UsageError(
            "name a model directory: larvatus studio DIR. This installation has no English model (package "
            "larvatus_english) that could be shown; larvatus demo makes a small one in runs/demo"
        )
    return str(directory)
