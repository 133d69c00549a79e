"""How a server behaves towards many clients: what stands around the routes.

add_manners(app, server)          # `build_app` calls it last
"""

from __future__ import annotations

from fastapi import FastAPI

from larvatus.serve.server import Server


def add_manners(app: FastAPI, server: Server) -> None:
    """Wrap the application in what holds for all routes, the outermost last."""
