"""Which of how many processes this is, as torchrun, SLURM or Kubernetes set it, and how the ranks find each other.

    torchrun --nproc-per-node 2 -m larvatus pretrain …       RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT
    srun --ntasks 16 larvatus pretrain …                     SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID; the
                                                             first host of the list, a port made of the job's number
    a PyTorchJob of Kubeflow                                 torchrun's names, one process a pod
    an Indexed Job of Kubernetes                             JOB_COMPLETION_INDEX; WORLD_SIZE and MASTER_* in its file

torchrun's own names win. Without any of them, or in the batch script of SLURM itself, there is one process.

>>> step = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NODELIST": "gpu[07-08]", "SLURM_JOB_ID": "17"}
>>> launch({**step, "SLURM_PROCID": "3"})
Launch(rank=3, count=4, local=0, address='gpu07', port=20017, by='SLURM', restarts=0)

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
import re
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from torch.distributed.distributed_c10d import PrefixStore, Store

from larvatus.core.errors import UsageError, printable
from larvatus.core.ranges import whole

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
VARIABLES = (*NEEDED, "LOCAL_RANK")
TORCHRUN = "start several processes with torchrun, which sets them all, or unset them: unset RANK WORLD_SIZE"
PORTS = 20_000, 10_000
"""The first, and how many, that SLURM's jobs share; programs are given others by the system (32,768 and above)."""
FIRST_WORD_S, NEXT_WORD_S = 5.0, 60.0
"""Seconds of waiting before the first word, and between words."""
LOOK_S = 0.02
_BEGUN = "larvatus/begun"
_Address = tuple[socket.AddressFamily, tuple[object, ...]]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A process as its launcher describes it."""

    rank: int = 0
    count: int = 1
    local: int = 0
    """Its number among those of its machine."""
    address: str = ""
    port: int = 0
    by: str = ""
    """The launcher, in words; empty for a single process."""
    restarts: int = 0
    """How often torchrun has started all ranks again after one failed."""

    @property
    def main(self) -> bool:
        """The process that writes and speaks."""
        return self.rank == 0

    def export(self) -> None:
        """Set torchrun's variables, which torch reads."""
        said = {"RANK": self.rank, "WORLD_SIZE": self.count, "LOCAL_RANK": self.local}
        os.environ.update({name: str(number) for name, number in said.items()})
        os.environ.update({"MASTER_ADDR": self.address, "MASTER_PORT": str(self.port)})


def launch(environment: Mapping[str, str] | None = None) -> Launch:
    """Which process this is; a single one where no variable is set.

    Half a set of variables, left over from another program, would have a run wait for processes that do not exist.
    """
    environment = os.environ if environment is None else environment
    given = {name: environment[name] for name in VARIABLES if name in environment}
    by = "torchrun"
    if "RANK" not in given:  # torchrun always sets it
        given, by = _completed(given, environment)
    if not given.keys() & {"RANK", "WORLD_SIZE"}:  # clusters set the others for programs of all kinds
        _refuse_what_torchrun_reads(environment)
        return Launch()
    numbers = _numbers(given)
    if numbers.get("WORLD_SIZE") == 1 and numbers.get("RANK", 0) == 0:
        return Launch(restarts=_restarts(environment))
    if missing := [name for name in NEEDED if name not in given]:
        raise UsageError(f"{', '.join(given)} set, but not {', '.join(missing)}; {TORCHRUN}")
    return Launch(
        rank=numbers["RANK"],
        count=numbers["WORLD_SIZE"],
        local=numbers.get("LOCAL_RANK", 0),
        address=given["MASTER_ADDR"],
        port=numbers["MASTER_PORT"],
        by=by,
        restarts=_restarts(environment),
    )


def _numbers(given: Mapping[str, str]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_PORT"):
        if name in given:
            most = 65_535 if name == "MASTER_PORT" else numbers.get("WORLD_SIZE", 100_001) - 1
            limits = whole(1, 100_000) if name == "WORLD_SIZE" else whole(0, most)
            try:
                numbers[name] = limits.read(given[name])
            except ValueError as fault:
                raise UsageError(f"{name}={fault}; {TORCHRUN}") from None
    return numbers


def _restarts(environment: Mapping[str, str]) -> int:
    said = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return int(said) if said.isdecimal() else 0


def _completed(given: dict[str, str], environment: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """The variables that a scheduler sets where torchrun sets none, and its name; given ones are kept."""
    tasks = environment.get("SLURM_STEP_NUM_TASKS", "1")  # srun's: a batch script itself has none
    if tasks != "1":
        if "SLURM_PROCID" not in environment:
            raise UsageError("SLURM_STEP_NUM_TASKS set, but not SLURM_PROCID; start it with srun, or unset both")
        if given.get("WORLD_SIZE", tasks) != tasks:
            raise UsageError(f"WORLD_SIZE={given['WORLD_SIZE']}, but srun started {tasks} tasks; unset WORLD_SIZE")
        return {**_said_by_slurm(environment, tasks), **given}, "SLURM"
    if "JOB_COMPLETION_INDEX" in environment and "WORLD_SIZE" in given:
        return {"RANK": environment["JOB_COMPLETION_INDEX"], **given}, "Kubernetes"
    return given, "torchrun"


def _said_by_slurm(environment: Mapping[str, str], tasks: str) -> dict[str, str]:
    """SLURM's variables under torchrun's names."""
    said = {
        "RANK": environment["SLURM_PROCID"],
        "WORLD_SIZE": tasks,
        "LOCAL_RANK": environment.get("SLURM_LOCALID", "0"),
    }
    hosts = next((environment[n] for n in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST") if n in environment), "")
    if hosts:
        said["MASTER_ADDR"] = first_host(hosts)
    job, step = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_STEP_ID", "0")
    if job.isdecimal():
        first, count = PORTS
        said["MASTER_PORT"] = str(first + (int(job) + 101 * (int(step) if step.isdecimal() else 0)) % count)
    return said


def first_host(hosts: str) -> str:
    """The first of a list as SLURM writes it.

    >>> first_host("gpu[003-005,7],login1"), first_host("rack[2-3]n[10,12]"), first_host("alone")
    ('gpu003', 'rack2n10', 'alone')
    """
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", hosts)
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first[0] if first else hosts)


def _refuse_what_torchrun_reads(environment: Mapping[str, str]) -> None:
    """Operators of Kubernetes set torchrun's options for whatever a pod starts."""
    for name in ("PET_NNODES", "PET_NPROC_PER_NODE"):
        if environment.get(name, "1") not in ("", "1", "1:1"):
            raise UsageError(
                f"{name}={environment[name]} is for torchrun; start it as torchrun -m larvatus …, or unset {name}"
            )


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
    """Report on stderr what this rank waits for, once it has waited for some seconds and every minute from then on."""
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
