"""How ranks find each other: an impossible address is refused at once, waiting is reported, old greetings are ignored.

    check_address(launch())                # an address or a port at which ranks can never meet: one line, at once
    with reporting_wait(launched, 600.0):  # after a few seconds: who waits for whom, where, and for how long
        store, restarted = join_store(store, rank=rank, count=count, restarts=restarts, limit_s=600.0)

In a pod of Kubernetes names and service addresses come up late and belong to no interface: there, ranks wait for them.

torchrun keeps its store when it starts all ranks again, and with it the addresses that the dead left there; nor do its
agents agree on how often that was. So each rank greets with its own name, rank 0 answers to that name with the name of
the rendezvous, and everything afterwards is written under it.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

from torch.distributed.distributed_c10d import PrefixStore, Store

from larvatus.core.errors import UsageError, printable
from larvatus.training.engine.launch import Launch

FIRST_WORD_S, NEXT_WORD_S = 5.0, 60.0
"""Seconds of waiting before the first word, and between words."""

_Address = tuple[socket.AddressFamily, tuple[object, ...]]


def check_address(launched: Launch, environment: Mapping[str, str] | None = None) -> None:
    """Refuse an address or a port at which the ranks can never meet."""
    environment = os.environ if environment is None else environment
    if launched.port == 0:
        raise UsageError("MASTER_PORT=0 is no port that the other ranks could find; set the same free port for all")
    in_pod = "KUBERNETES_SERVICE_HOST" in environment
    addresses = _resolved(launched, wait=in_pod)
    hosts = launched.rank == 0 and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"  # else torchrun listens
    if not hosts:
        return
    if addresses and not in_pod and not any(map(_is_here, addresses)):
        raise UsageError(
            f"MASTER_ADDR={printable(launched.address)} is no address of this machine, where rank 0 runs; "
            "set it to one of this machine's for all ranks"
        )
    _refuse_taken(launched.port)


def _resolved(launched: Launch, *, wait: bool) -> list[_Address]:
    """The addresses of rank 0's machine; none where its name may become known later."""
    try:
        resolved = socket.getaddrinfo(launched.address, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as fault:  # UnicodeError: labels of more than 63 characters
        if wait:
            return []
        raise UsageError(
            f"MASTER_ADDR={printable(launched.address)} cannot be resolved ({printable(str(fault))}); set it to the "
            "name or address of the machine of rank 0"
        ) from fault
    return [(family, address) for family, _, _, _, address in resolved]


def _is_here(address: _Address) -> bool:
    """Whether an interface of this machine has the address: only then can a socket be bound to it."""
    family, (host, _, *more) = address
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0, *more))
    except OSError as fault:
        return fault.errno != errno.EADDRNOTAVAIL
    return True


def _refuse_taken(port: int) -> None:
    """The store listens on all interfaces; as it does, an old connection that is being closed is no hindrance."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
            probe.listen(1)
        except OSError as fault:
            if fault.errno == errno.EADDRINUSE:
                raise UsageError(
                    f"MASTER_PORT={port} is taken by another program on this machine; set another for all ranks"
                ) from fault
            if fault.errno in (errno.EACCES, errno.EPERM):
                raise UsageError(
                    f"MASTER_PORT={port} may not be opened here ({fault.strerror}); set one above 1023 for all ranks"
                ) from fault
            raise


@contextmanager
def reporting_wait(launched: Launch, limit_s: float) -> Iterator[None]:
    """Say on stderr what this rank waits for, once it has waited for some seconds and every minute from then on."""
    over = threading.Event()
    thread = threading.Thread(target=_say, args=(launched, limit_s, over), name="rendezvous", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _say(launched: Launch, limit_s: float, over: threading.Event) -> None:
    silent = FIRST_WORD_S
    while not over.wait(silent):
        print(f"larvatus: {describe_wait(launched, limit_s)}", file=sys.stderr, flush=True)
        silent = NEXT_WORD_S


def describe_wait(launched: Launch, limit_s: float) -> str:
    """Who waits for whom, and where.

    >>> describe_wait(Launch(rank=1, count=2, address="gpu07", port=20017), 600.0)
    'rank 1 of 2 waits for rank 0 at gpu07:20017 (MASTER_ADDR, MASTER_PORT), 600 seconds at most'
    """
    others = "rank 0" if launched.rank else f"ranks 1 to {launched.count - 1}" if launched.count > 2 else "rank 1"
    where = f"{printable(launched.address)}:{launched.port} (MASTER_ADDR, MASTER_PORT)"
    return f"rank {launched.rank} of {launched.count} waits for {others} at {where}, {limit_s:g} seconds at most"


LOOK_S = 0.02
_BEGUN = "larvatus/begun"


class Rendezvous(NamedTuple):
    store: Store
    """Nobody but the ranks of this meeting has ever written to it."""
    restarted: bool
    """Whether ranks of the same launch met before: they are started again."""


def join_store(store: Store, *, rank: int, count: int, restarts: int, limit_s: float) -> Rendezvous:
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
    return Rendezvous(PrefixStore(name, store), restarted)


def _welcome(store: Store, other: int, name: str, deadline: float) -> bool:
    """Have a rank join the meeting; whether it was started again. Its first greeting may be that of one that died."""
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
