"""`larvatus serve` and `larvatus studio`: every task of models behind one address, and a page in the browser.

larvatus serve runs/mine runs/tickets --port 8000
larvatus studio runs/mine
larvatus studio export site/ --model runs/mine
"""

from __future__ import annotations

import json
import os
import sys
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from larvatus.core.errors import UsageError, printable
from larvatus.core.ranges import Range
from larvatus.inference.model import Model
from larvatus.inference.model.loading import LoadOptions
from larvatus.interfaces.cli.command_list import DefaultGroup
from larvatus.interfaces.cli.from_struct import Panel, from_structs, ranged
from larvatus.interfaces.cli.options import Json, Machine, ModelName
from larvatus.interfaces.serve.listening import keep_little_memory, listen, listening_socket, run_app
from larvatus.interfaces.serve.served_index import models_of
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.interfaces.studio.export import LIMIT, export_page
from larvatus.interfaces.studio.settings import StudioSettings
from larvatus.models.bundle.model_names import HELP as PACKAGED
from larvatus.models.bundle.model_names import model_or_packaged, packaged_model

Models = Annotated[
    list[str] | None,
    typer.Argument(metavar="[DIR]...", help=f"Model directories, or hub names; by default {PACKAGED}."),
]


@from_structs
def serve(
    models: Models = None,
    *,
    settings: Annotated[ServeSettings, Panel()],
    machine: Machine,
) -> None:
    """Serve every task of models: /v1/fill, /v1/embed, /v1/classify, …. /docs lists all. Ctrl-C ends it."""
    keep_little_memory()  # before any thread has an arena
    if settings.json_lines:
        _answer_lines(_loaded(models, settings, machine), settings)
        return
    with listening_socket(settings.host, settings.port) as socket:
        loaded = _loaded(models, settings, machine)
        host, port = socket.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        listen(
            loaded,
            settings,
            socket,
            ready=lambda names: print(f"{names} on http://{shown}:{port} (see /docs)", flush=True),
        )


def _loaded(models: list[str] | None, settings: ServeSettings, machine: LoadOptions) -> list[Model]:
    """The named models; without a name those of the indexes, or the packaged one."""
    return [machine.load(name) for name in models or models_of(settings.index) or [model_or_packaged()]]


def _answer_lines(models: Sequence[Model], settings: ServeSettings) -> None:
    """Requests from standard input, answers to standard output; needs nothing that a socket would."""
    from larvatus.interfaces.serve.json_lines import serve_lines
    from larvatus.interfaces.serve.server import Server

    server = Server.of(models, settings)
    try:
        serve_lines(server, lambda most: os.read(sys.stdin.fileno(), most), sys.stdout.buffer)
    finally:
        server.close()


class _Group(DefaultGroup):
    default = "open"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or [self.default])


app = typer.Typer(
    cls=_Group,
    help="Open a page to fill blanks, inspect and compare models, label, fine-tune and watch runs, or export one. With "
    "directories, or with nothing, the command is `open`.",
)


@app.command("export")
def export(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="New folder: index.html, the model, ONNX Runtime.")],
    model: ModelName,
    runtime: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="npm package onnxruntime-web; default: in node_modules here or above."),
    ] = None,
    limit: Annotated[float, ranged(Range(1, 1e6), metavar="MB", help="Largest size of the folder.")] = LIMIT,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a page that was exported before.")] = False,
    as_json: Json = False,
) -> None:
    """Export Fill, Layers, Inside, Senses and Compare words of a model as files, for any file server and offline."""
    page = export_page(model, out=out, runtime=runtime, limit=limit, overwrite=overwrite)
    if as_json:
        print(json.dumps(page.to_dict()))
        return
    print(f"saved {printable(page.path)} ({page.size / 1e6:,.1f} MB): {', '.join(page.views)}")
    for view, reason in page.left_out.items():
        print(f"  {view} is left out: {reason}")
    print(f"  largest difference from torch with the same int8 weights: {page.difference:.1e}")
    print(f"  try it: python -m http.server --directory {printable(page.path)}")


@app.command("open")
@from_structs
def studio(
    models: Models = None,
    *,
    settings: Annotated[StudioSettings, Panel()],
    machine: Machine,
) -> None:
    """Open a page to fill blanks, inspect and compare models, label, fine-tune and watch runs. Ctrl-C ends it."""
    named = models or models_of(settings.index) or [_packaged()]
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
            "larvatus_english) that could be shown; larvatus pretrain bert --size tiny --corpus embedded --minutes 4 "
            "--out runs/mine trains a small one"
        )
    return str(directory)
