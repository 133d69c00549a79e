"""GET /healthz: whether a forward pass of every encoder works now, and none has failed since (`health.py`)."""

from __future__ import annotations

import asyncio

import torch
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from larvatus.core.batch import TokenBatch
from larvatus.interfaces.serve.health import Health
from larvatus.interfaces.serve.responses import json_response
from larvatus.interfaces.serve.server import Server
from larvatus.models.nn.device import on_device


def add_health(app: FastAPI, server: Server) -> None:
    passes = server.served.passes
    checked = Health(
        lambda: asyncio.to_thread(run_all, server),
        is_red=lambda: passes.last_fault is not None,
        seconds=server.settings.timeout,
    )

    async def health(request: Request) -> Response:
        well = await checked.check()
        return json_response({"status": "ok" if well else "failing"}, 200 if well else 503)

    app.add_route("/healthz", health, methods=["GET"])


def run_all(server: Server) -> None:
    """A pass of two tokens for each encoder; raises where one fails, or gives what is no number."""
    for encoder in server.served.encoders.values():
        states = encoder(on_device(TokenBatch.of([[0, 0]]), encoder.device))
        if not bool(torch.isfinite(states).all()):
            raise ArithmeticError("the encoder gives what is no number")
