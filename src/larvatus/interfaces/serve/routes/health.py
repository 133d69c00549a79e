"""GET /healthz: whether a forward pass of every encoder works, through the same queue as every request.

    health = Health(probe, is_red=lambda: batcher.last_error is not None)
    await health.check()                # True: the last pass succeeded, and one succeeds now

The server is red from a failed pass until one succeeds. A check of a red server reports the failure even if its own
pass succeeds, so that the next reader sees it; that pass turns the server green. Checks at the same time share a pass:
anyone may send them without a key, and they must cost little.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import torch
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from larvatus.core.batch import TokenBatch
from larvatus.interfaces.serve.logs import error_location, logger
from larvatus.interfaces.serve.responses import json_response
from larvatus.interfaces.serve.server import Server
from larvatus.models.nn.device import on_device

FRESH_S = 0.5
"""Seconds for which the result of a successful pass is reused."""


class Health:
    """Checks the last pass, and runs one."""

    def __init__(
        self, probe: Callable[[], Awaitable[None]], *, is_red: Callable[[], bool], seconds: float = 10.0
    ) -> None:
        """`probe` runs a pass through the batcher; it must succeed within `seconds`."""
        self._probe = probe
        self._seconds = seconds
        self._running: asyncio.Task[None] | None = None
        self._succeeded = float("-inf")
        self.is_red = is_red

    async def check(self) -> bool:
        """Whether the last pass succeeded, and one succeeds now."""
        if self.is_red():
            await self._succeeds()
            return False
        return time.monotonic() - self._succeeded < FRESH_S or await self._succeeds()

    async def _succeeds(self) -> bool:
        """Whether a pass succeeds; simultaneous checks share it."""
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(self._pass())
        try:
            async with asyncio.timeout(self._seconds):
                await asyncio.shield(self._running)
        except Exception as fault:  # whatever it was, the pass did not succeed
            logger.error("%s in the pass of a health check", error_location(fault))
            return False
        return True

    async def _pass(self) -> None:
        await self._probe()
        self._succeeded = time.monotonic()


def add_health(app: FastAPI, server: Server) -> None:
    checked = Health(
        lambda: asyncio.to_thread(run_all, server),
        is_red=lambda: server.batcher.last_error is not None,
        seconds=server.settings.timeout,
    )

    async def health(request: Request) -> Response:
        well = await checked.check()
        return json_response({"status": "ok" if well else "failing"}, 200 if well else 503)

    app.add_route("/healthz", health, methods=["GET"])


def run_all(server: Server) -> None:
    """Run a pass of two tokens with each encoder. Raises if one fails, or gives numbers that are not finite."""
    for encoder in server.served.encoders.values():
        states = server.batcher.forward(encoder, on_device(TokenBatch.of([[0, 0]]), encoder.device))
        assert isinstance(states, torch.Tensor), "no layers are requested"
        if not bool(torch.isfinite(states).all()):
            raise ArithmeticError("the encoder's states are not finite")
