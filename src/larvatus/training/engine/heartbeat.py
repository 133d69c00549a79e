"""The heartbeat of a rank (`watchdog.py`), and the state of its process as seen from the same machine.

here = ProcessLocation.here()               # host and process
there.seen_from(here)                       # of another process: gone, stopped, or ""
state = Heartbeat(where=there, step=11, doing="waiting")
state.name(1)                               # rank 1 on node07
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

STEP, WAITING = "step", "waiting"
"""What a rank does in a step: compute, or wait for what the others compute. All else may take as long as it likes."""


class ProcessLocation(Struct, frozen=True, kw_only=True):
    """A process, by its number on a machine that knows it by that number."""

    host: str
    machine: str
    pid: int

    @classmethod
    def here(cls) -> ProcessLocation:
        names = []
        with suppress(OSError):
            names = [Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.readlink("/proc/self/ns/pid")]
        return cls(host=platform.node() or "this machine", machine=" ".join(names), pid=os.getpid())

    def seen_from(self, other: ProcessLocation) -> str:
        """`gone`, `stopped`, or nothing where it lives or cannot be seen from the other's machine."""
        if not self.machine or self.machine != other.machine:
            return ""
        try:
            kind = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return "gone"
        return "gone" if kind in "ZX" else "stopped" if kind in "Tt" else ""


class RankFault(Struct, frozen=True, kw_only=True):
    """Why a rank left, or has to."""

    line: str
    code: int
    on_all_ranks: bool = False
    """Whether all ranks have it by themselves, so that none needs to be informed."""
    rank: int
    """The rank that has it; -1 for none."""
    reported: bool = False
    """Whether that rank has printed it itself."""


class Heartbeat(Struct, frozen=True, kw_only=True):
    """Heartbeat of a rank: its activity and its process."""

    where: ProcessLocation
    beat: int = 0
    step: int = -1
    """The step that is under way, from 0; before the first, -1."""
    doing: str = "starting"
    still: float = 0.0
    """Seconds since it began to do that."""
    busy: float = 0.0
    """Seconds that it computes in a step, on average; waiting for others is not counted."""
    left: bool = False
    """Whether it is done, and needs no watching."""
    fault: RankFault | None = None

    def name(self, rank: int) -> str:
        return f"rank {rank} on {self.where.host}"

    @property
    def when(self) -> str:
        return f"in step {self.step + 1:,}" if self.step >= 0 else "before the first step"

    @property
    def in_step(self) -> bool:
        return self.doing in (STEP, WAITING)


def blocking_ranks(states: Mapping[int, Heartbeat], limit_s: float) -> dict[int, Heartbeat]:
    """The ranks that the others wait for, where none has got on for so long; nobody where any has, or may take longer.

    >>> here = ProcessLocation(host="a", machine="", pid=1)
    >>> waits = Heartbeat(where=here, step=3, doing=WAITING, still=9.0)
    >>> hangs = Heartbeat(where=here, step=3, doing=STEP, still=9.0)
    >>> sorted(blocking_ranks({0: waits, 1: hangs}, 5.0)), sorted(blocking_ranks({0: waits, 1: hangs}, 10.0))
    ([1], [])
    """
    there = {rank: state for rank, state in states.items() if not state.left}
    if len(there) < 2 or any(not state.in_step or state.still < limit_s for state in there.values()):
        return {}
    behind = min(state.step for state in there.values())
    last = {rank: state for rank, state in there.items() if state.step == behind}
    return {rank: state for rank, state in last.items() if state.doing == STEP} or last
