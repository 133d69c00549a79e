"""How a server behaves towards many clients: what stands around the routes.

    add_manners(app, server)          # `build_app` calls it last

A request meets these from outside in; each is a file of its own and knows nothing of the others:

    Observed      counted and timed; headers that protect; a fault is one line     observed.py, metrics.py
    Draining      503 once the server is asked to stop                             drain.py
    Keys, Hosts   401, 403, and 400 without a Host                                 keys.py, hosts.py
    BodyLimit     413, 415 and 408, before the body is read whole                  body_limit.py
    Disconnects   cancelled when the client goes                                   disconnects.py

What a body may hold, how much of it, and the queue (429) are the routes' own: `bodies.py`, `server.py`, `work.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from larvatus.interfaces.serve.body_limit import BodyLimit
from larvatus.interfaces.serve.disconnects import Disconnects
from larvatus.interfaces.serve.drain import Drain, Draining
from larvatus.interfaces.serve.hosts import Hosts
from larvatus.interfaces.serve.keys import KeyRing, Keys
from larvatus.interfaces.serve.metrics import Metrics
from larvatus.interfaces.serve.observed import Observed
from larvatus.interfaces.serve.server import Server

BODY_S = 20.0
"""Within which a body must have arrived, or within --timeout, where that is less."""


@dataclass(frozen=True, eq=False)
class Manners:
    """What the layers count and decide by: `app.state.manners`."""

    drain: Drain
    metrics: Metrics


def add_manners(app: FastAPI, server: Server) -> None:
    """Wrap the application in what holds for all routes, the outermost last."""
    settings = server.settings
    manners = app.state.manners = Manners(Drain(), Metrics())
    manners.metrics.follow(server)

    async def metrics(request: Request) -> Response:
        """Counters for Prometheus."""
        return Response(manners.metrics.shown(), media_type=manners.metrics.content_type)

    app.add_route("/metrics", metrics, methods=["GET"])
    app.add_middleware(Disconnects, on_gone=manners.metrics.gone.inc)
    app.add_middleware(BodyLimit, most=settings.max_body, seconds=min(BODY_S, settings.timeout))
    if settings.key_file is None or settings.host_allowed:  # a page of another site has no key
        app.add_middleware(Hosts, names=(settings.host, *settings.host_allowed))
    if settings.key_file is not None:
        app.add_middleware(Keys, ring=KeyRing.read(Path(settings.key_file)))
    app.add_middleware(Draining, drain=manners.drain)
    app.add_middleware(Observed, metrics=manners.metrics)
