"""Which process this is, as torchrun, SLURM and Kubernetes say it; what is half said is refused in one line."""

from __future__ import annotations

import os

import pytest

from larvatus.core.errors import UsageError
from larvatus.training.engine.launch import Launch, first_host, launch

MASTER = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", **MASTER}
BATCH = {"SLURM_JOB_ID": "123456", "SLURM_PROCID": "0", "SLURM_NTASKS": "16", "SLURM_JOB_NODELIST": "gpu[003-004,9]"}
"""A batch script itself, before srun."""
STEP = {**BATCH, "SLURM_PROCID": "9", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "16", "SLURM_STEP_ID": "0"}
STEP |= {"SLURM_STEP_NODELIST": "gpu[003-004]"}


def test_nobody_says_anything() -> None:
    assert launch({}) == Launch() == launch({"MASTER_ADDR": "10.0.0.1", "LOCAL_RANK": "0", "JOB_COMPLETION_INDEX": "2"})
    assert Launch().main


def test_torchrun() -> None:
    told = Launch(rank=3, count=4, local=1, address="10.0.0.1", port=29_500, by="torchrun")
    assert launch(TORCHRUN) == told
    assert launch({**STEP, **TORCHRUN}) == told  # torchrun started by srun, one for each node
    assert launch({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "2"}).restarts == 2
    assert launch({"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RESTART_COUNT": "2"}) == Launch(restarts=2)


def test_slurm() -> None:
    told = launch(STEP)
    assert told == Launch(rank=9, count=16, local=1, address="gpu003", port=23_456, by="SLURM")
    assert launch({**STEP, **MASTER}).address == "10.0.0.1"
    assert launch({**STEP, "WORLD_SIZE": "16"}) == told
    assert launch({**STEP, "SLURM_STEP_ID": "1"}).port != told.port  # two steps of one job at once
    assert launch(BATCH) == Launch()  # one process, whatever was allocated
    assert launch({**BATCH, "SLURM_STEP_NUM_TASKS": "1"}) == Launch()


def test_kubernetes() -> None:
    """A PyTorchJob says it in torchrun's words, an Indexed Job gives each pod its number."""
    assert launch({"RANK": "1", "WORLD_SIZE": "2", **MASTER}).local == 0
    pod = launch({"JOB_COMPLETION_INDEX": "5", "WORLD_SIZE": "8", **MASTER})
    assert (pod.rank, pod.count, pod.by) == (5, 8, "Kubernetes")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"RANK": "0"}, "RANK set, but not WORLD_SIZE"),
        ({**STEP, "RANK": "0"}, "RANK set, but not WORLD_SIZE"),
        ({"SLURM_STEP_NUM_TASKS": "2"}, "SLURM_STEP_NUM_TASKS set, but not SLURM_PROCID"),
        ({**STEP, "WORLD_SIZE": "8"}, "WORLD_SIZE=8, but srun started 16 tasks"),
        ({**STEP, "SLURM_PROCID": "16"}, "RANK='16' must"),
        ({"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0", "SLURM_JOB_ID": "1"}, "not MASTER_ADDR"),
        ({"JOB_COMPLETION_INDEX": "8", "WORLD_SIZE": "8", **MASTER}, "RANK='8' must"),
        ({"JOB_COMPLETION_INDEX": "0", "WORLD_SIZE": "8"}, "not MASTER_ADDR, MASTER_PORT"),
        ({"PET_NNODES": "2", "PET_NPROC_PER_NODE": "8"}, "PET_NNODES=2 is for torchrun"),
    ],
)
def test_half_said(given: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        launch(given)


def test_hosts_of_slurm() -> None:
    lists = {"n1": "n1", "n1,n2": "n1", "a[1-4]": "a1", "a[08,10-12]-ib,b3": "a08-ib", "r[2-3]n[10,12]": "r2n10"}
    assert {hosts: first_host(hosts) for hosts in lists} == lists


def test_it_is_said_in_the_words_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TORCHRUN:
        monkeypatch.setenv(name, "")
    launch(STEP).export()
    assert launch() == Launch(rank=9, count=16, local=1, address="gpu003", port=23_456, by="torchrun")
    assert os.environ["MASTER_ADDR"] == "gpu003"
