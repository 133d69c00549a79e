"""Whether the server works: /healthz runs a pass of each encoder by the same way as every request.

    health = Health(probe, is_red=lambda: passes.last_fault is not None)
    await health.check()                # True: the last pass succeeded, and so does one now

A server is red from a pass that failed until one succeeds. A check that meets a red server says so even if its own
pass succeeds, so that a fault is seen by whoever looks next; that pass turns it green. Checks that come at once share a
pass: anybody may ask without a key, and it costs little.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from larvatus.interfaces.serve.observed import logger, place_of

FRESH_S = 0.5
"""How long a pass that succeeded answers for the next checks."""


class Health:
    """Looks at the last pass, and makes one."""

    def __init__(
        self, probe: Callable[[], Awaitable[None]], *, is_red: Callable[[], bool], seconds: float = 10.0
    ) -> None:
        """`probe` makes a pass by the way of all requests, which must succeed within `seconds`."""
        self._probe = probe
        self._seconds = seconds
        self._running: asyncio.Task[None] | None = None
        self._succeeded = float("-inf")
        self.is_red = is_red

    async def check(self) -> bool:
        """Whether all is well: no fault since the last pass that succeeded, and a pass succeeds now."""
        if self.is_red():
            await self._succeeds()
            return False
        return time.monotonic() - self._succeeded < FRESH_S or await self._succeeds()

    async def _succeeds(self) -> bool:
        """The pass of all who check at this moment."""
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(self._pass())
        try:
            async with asyncio.timeout(self._seconds):
                await asyncio.shield(self._running)
        except Exception as fault:  # whatever it was, the pass did not succeed
            logger.error("%s in the pass of a health check", place_of(fault))
            return False
        return True

    async def _pass(self) -> None:
        await self._probe()
        self._succeeded = time.monotonic()
