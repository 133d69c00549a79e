"""Which of how many processes this is, and where they meet: as torchrun, SLURM or Kubernetes say it.

    torchrun --nproc-per-node 2 -m larvatus pretrain …       RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT
    srun --ntasks 16 larvatus pretrain …                     SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID; the
                                                             first host of the list, a port made of the job's number
    a PyTorchJob of Kubeflow                                 torchrun's names, one process a pod
    an Indexed Job of Kubernetes                             JOB_COMPLETION_INDEX; WORLD_SIZE and MASTER_* in its file

torchrun's own names win. Without any of them, or in the batch script of SLURM itself, a process is alone.

>>> step = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NODELIST": "gpu[07-08]", "SLURM_JOB_ID": "17"}
>>> launch({**step, "SLURM_PROCID": "3"})
Launch(rank=3, count=4, local=0, address='gpu07', port=20017, by='SLURM', restarts=0)
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from larvatus.core.errors import UsageError
from larvatus.core.ranges import whole

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
VARIABLES = (*NEEDED, "LOCAL_RANK")
TORCHRUN = "start several processes with torchrun, which sets them all, or unset them: unset RANK WORLD_SIZE"
PORTS = 20_000, 10_000
"""The first, and how many, that SLURM's jobs share; programs are given others by the system (32,768 and above)."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What a launcher says of a process."""

    rank: int = 0
    count: int = 1
    local: int = 0
    """Its number among those of its machine."""
    address: str = ""
    port: int = 0
    by: str = ""
    """Who started it, in words; nobody where it is alone."""
    restarts: int = 0
    """How often torchrun has started all ranks again after one failed."""

    @property
    def main(self) -> bool:
        """The process that writes and speaks."""
        return self.rank == 0

    def export(self) -> None:
        """Say it in torchrun's words, which torch reads."""
        said = {"RANK": self.rank, "WORLD_SIZE": self.count, "LOCAL_RANK": self.local}
        os.environ.update({name: str(number) for name, number in said.items()})
        os.environ.update({"MASTER_ADDR": self.address, "MASTER_PORT": str(self.port)})


def launch(environment: Mapping[str, str] | None = None) -> Launch:
    """Which process this is; alone where nobody says anything.

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
    """What a scheduler says where torchrun says nothing, and who that is; what is given stands."""
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
    """SLURM's names in torchrun's words."""
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
