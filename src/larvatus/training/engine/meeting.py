"""How ranks meet at a store that may remember an earlier meeting.

    meeting = meet(store, rank=rank, count=count, restarts=restarts, limit_s=600.0)
    meeting.store, meeting.restarted

torchrun keeps its store when it starts all ranks anew, and with it the addresses that the dead left there; nor do its
agents agree on how often that was. So each rank greets with a name of its own, rank 0 answers to that name with the
name of the meeting, and all that is said afterwards is said under it.
"""

from __future__ import annotations

import time
import uuid
from datetime import timedelta
from typing import NamedTuple

from torch.distributed.distributed_c10d import PrefixStore, Store

LOOK_S = 0.02
_BEGUN = "larvatus/begun"


class Meeting(NamedTuple):
    store: Store
    """Nobody but the ranks of this meeting has ever written to it."""
    restarted: bool
    """Whether ranks of the same launch met before: they are started anew."""


def meet(store: Store, *, rank: int, count: int, restarts: int, limit_s: float) -> Meeting:
    """Wait for all ranks; `TimeoutError` names the first that did not come. `restarts` is what torchrun says."""
    deadline = time.monotonic() + limit_s
    if rank == 0:
        name = uuid.uuid4().hex
        again = [_welcome(store, other, name, deadline) for other in range(1, count)]
        restarted = restarts > 0 or any(again) or store.check([_BEGUN])
        store.set(_BEGUN, "1")
        store.set(f"{name}/restarted", str(int(restarted)))
    else:
        mine = uuid.uuid4().hex
        store.set(f"larvatus/hello/{rank}", f"{mine} {restarts}")
        name = _read(store, f"larvatus/welcome/{mine}", deadline, "rank 0 did not answer")
        store.set(f"{name}/here/{rank}", "1")
        restarted = _read(store, f"{name}/restarted", deadline, "not all ranks came") == "1"
    return Meeting(PrefixStore(name, store), restarted)


def _welcome(store: Store, other: int, name: str, deadline: float) -> bool:
    """Have a rank join the meeting; whether it was started anew. Its greeting may at first be that of one that died."""
    hello, here, welcomed = f"larvatus/hello/{other}", f"{name}/here/{other}", ""
    while not store.check([here]):
        greeting = store.get(hello).decode() if store.check([hello]) else ""
        if greeting != welcomed:
            store.set(f"larvatus/welcome/{greeting.split()[0]}", name)
            welcomed = greeting
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank {other} did not come")
        time.sleep(LOOK_S)
    return welcomed.split()[1] != "0"


def _read(store: Store, key: str, deadline: float, otherwise: str) -> str:
    try:
        store.wait([key], timedelta(seconds=max(LOOK_S, deadline - time.monotonic())))
    except RuntimeError as fault:
        raise TimeoutError(otherwise) from fault
    return store.get(key).decode()
