"""A server in this process, for notebooks, scripts and tests; `larvatus serve` is the same as a command.

with serve_models("runs/tickets") as address:
    Client(address).classify("My card was charged twice.")["label"]
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from larvatus.core.errors import UsageError
from larvatus.inference.model import Model, load
from larvatus.interfaces.serve.listening import listening_socket
from larvatus.interfaces.serve.served_index import models_of
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.interfaces.settings import read_settings

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import ServeModelsKeywords

LOOK_S = 0.01
"""Seconds between two checks whether the server has started."""


@contextmanager
def serve_models(
    *models: str | Path | Model, device: str = "auto", **settings: Unpack[ServeModelsKeywords]
) -> Iterator[str]:
    """Serve every task of models on this machine while the `with` block runs; requests in flight are then finished.

    Args:
        *models: Model directories, hub names, or loaded models; without any, those of the indexes, or the English model
            that comes with Larvatus, where it is installed.
        device: Where models are loaded: `auto`, `cpu` or `cuda`.
        **settings: Those of `larvatus serve`: `port` (a free one by default), `host`, `key_file`, `index`
            (directories, for `Client.search`), `batch_tokens`, ….

    Yields:
        The address, for `Client`: `http://127.0.0.1:` and the port.

    Example:
        >>> with serve_models(classifier) as address, lv.Client(address) as client:
        ...     client.classify("good fine")["label"] in ("pos", "neg")
        True
    """
    (chosen,) = read_settings({"port": 0, **settings}, ServeSettings, function="serve_models")
    if chosen.json_lines:
        raise UsageError("json_lines answers on standard output, which is for larvatus serve --json; leave it out")
    with listening_socket(chosen.host, chosen.port) as socket:
        named = models or tuple(models_of(chosen.index)) or (None,)
        loaded = [each if isinstance(each, Model) else load(each, device=device) for each in named]
        from larvatus.interfaces.serve.app import build_app  # made of an extra
        from larvatus.interfaces.serve.uvicorn_server import draining_server

        app = build_app(loaded, chosen)
        server = draining_server(app, drain=app.state.middleware.drain, drain_seconds=chosen.timeout)
        thread = threading.Thread(target=server.run, args=([socket],), name="larvatus-serve", daemon=True)
        host, port = socket.getsockname()[:2]
        thread.start()
        try:
            while not server.started:
                thread.join(LOOK_S)
                if not thread.is_alive():
                    raise UsageError(f"the server on {host}:{port} could not start; its log has the reason")
            yield f"http://{f'[{host}]' if ':' in host else host}:{port}"
        finally:
            server.stop()
            thread.join()
