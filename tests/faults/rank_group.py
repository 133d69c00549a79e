"""Runs of two processes in which one rank misbehaves: all at once, from one process that has imported torch.

    python -m tests.faults.rank_group FOLDER < CASES            writes FOLDER/NAME/results.json for each case

A case is JSON: `name`, `words` (of `larvatus`, for both), `rank_words` (for each rank besides), `act` (below) of rank
`of` at step `at`, `environment` (for each rank). Ranks are forked and meet at a port of this machine, as those of SLURM
would: there is no torchrun to end the others.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from larvatus.__main__ import main
from larvatus.core.errors import DataError
from larvatus.data.corpus import Corpus
from larvatus.models.network import Network
from larvatus.training.engine import ranks as rank_activity
from larvatus.training.engine import watchdog
from larvatus.training.engine.parallel import ReplicatedGradients
from larvatus.training.engine.step import MicrobatchLoss, Update
from larvatus.training.pretraining import loop
from larvatus.training.pretraining.loop import Pretraining
from tests import warm
from tests.patience import WATCHDOG_S

import_module("larvatus.interfaces.cli.commands.pretrain")  # what each rank would take seconds for
warm.import_later_modules()

LEFT_S = 2.0
"""After which a rank that was stopped, or hangs, is killed when the other has ended."""
ROOM = 150
"""Tokens of a pass for which there is memory."""


def _raise() -> None:
    raise DataError("shard 7 cannot be read; build it again")


ACTS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "hang": lambda: time.sleep(1000),
    "fail": _raise,
}


def misbehave(act: str, at: int) -> None:
    """From now on this rank does so: at a step, or whenever a pass is too large for it."""
    call, forward = Update.__call__, Network.forward

    def acting(update: Update, split: Any, share: Any, *, step: int, **more: Any) -> Any:
        def in_step(micro: Any) -> MicrobatchLoss:
            if step == at and act in ACTS:
                ACTS[act]()
            began = time.monotonic()
            result = share(micro)
            if step >= at and act == "slow":
                time.sleep(max(0.2, 4 * (time.monotonic() - began)))  # five times as slow, however busy the machine
            return _broken(result) if step == at and act == "nan" else result

        return call(update, split, in_step, step=step, **more)

    def limited(network: Network, batch: Any, **more: Any) -> Any:
        if act == "memory" and network.training and len(batch.tokens.ids) > ROOM:
            raise torch.OutOfMemoryError("out of memory")
        return forward(network, batch, **more)

    if act == "text":
        Corpus.fingerprint = "another"  # type: ignore[method-assign, assignment]
    if act == "spike":
        spoil(at)
    Update.__call__ = acting  # type: ignore[method-assign]
    Network.forward = limited  # type: ignore[method-assign]


def notice_soon(act: str, at: int) -> None:
    """From that step on this rank gives up a rank that is stopped, or hangs, after 3 s instead of 15 or 30.

    Before it nothing is hurried: on a busy machine ranks may take long to start, and this one long to compute.
    """
    call, finish, reached = Update.__call__, ReplicatedGradients.finish, set[int]()

    def closely(update: Update, split: Any, share: Any, *, step: int, **more: Any) -> Any:
        reached.add(step)
        watch = rank_activity._current
        if step == at and act == "stop" and watch is not None:
            watch.timeout_s /= 5
        return call(update, split, share, step=step, **more)

    def waiting(gradients: ReplicatedGradients, *, failed: bool) -> bool:
        if at in reached and act == "hang":
            watchdog.STUCK_FACTOR = 0.2  # type: ignore[assignment]
        return finish(gradients, failed=failed)

    Update.__call__ = closely  # type: ignore[method-assign]
    ReplicatedGradients.finish = waiting  # type: ignore[method-assign]


def spoil(at: int) -> None:
    """The text that is read at a step ruins the weights, whenever it is read."""
    step, ruinous = Pretraining.step, set()

    def ruined(training: Pretraining) -> None:
        step(training)
        if training.progress.step == at and not ruinous:
            ruinous.add(training.progress.cursor)
        if training.progress.cursor in ruinous:
            with torch.no_grad():
                for parameter in training.stepper.model.parameters():
                    parameter.mul_(300)

    Pretraining.step = ruined  # type: ignore[method-assign]


def _broken(share: MicrobatchLoss) -> MicrobatchLoss:
    return MicrobatchLoss(loss=share.loss * float("nan"), figures=share.figures * float("nan"))


def begin(case: dict[str, Any], rank: int, folder: Path, port: int) -> None:
    """In the child: what a launcher and the start of Python would have done."""
    os.chdir(folder)
    world = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in world.items()})
    for number in (1, 2):
        os.dup2(os.open(f"{number}-{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    watchdog.BEAT_S, watchdog.GRACE_S, watchdog.STUCK_FACTOR, watchdog.SMOOTHING = 0.2, 0.5, 2, 0.5
    rank_activity.EVERY_S, loop.MIN_STEPS = 0.0, 2
    if case.get("of") in (rank, "both"):
        misbehave(case["act"], case.get("at", 3))
    elif case.get("act") in ("stop", "hang"):
        notice_soon(case["act"], case.get("at", 3))
    more = case.get("rank_words", [[], []])[rank]
    sys.argv = ["larvatus", *case["words"], "--out", str(folder / "run"), *more]
    signal.alarm(int(WATCHDOG_S))


def start(case: dict[str, Any], folder: Path) -> list[int]:
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pids = []
    for rank in (0, 1):
        child = os.fork()
        if child == 0:
            begin(case, rank, folder, port)
            main()
        pids.append(child)
    return pids


def run_all(cases: list[dict[str, Any]], folder: Path) -> None:
    gc.freeze()
    groups = {case["name"]: start(case, folder / case["name"]) for case in cases}
    hopeless = [groups[case["name"]][case["of"]] for case in cases if case.get("act") in ("stop", "hang")]
    codes: dict[int, int] = {}
    ended: dict[int, float] = {}
    while any(pid not in codes for pids in groups.values() for pid in pids):
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            codes[pid] = os.waitstatus_to_exitcode(status)
        for each in hopeless:
            (other,) = (set(pids) - {each} for pids in groups.values() if each in pids)
            alone = other <= codes.keys() and each not in codes
            if alone and time.monotonic() - ended.setdefault(each, time.monotonic()) > LEFT_S:
                os.kill(each, signal.SIGKILL)
        time.sleep(0.01)
    for name, pids in groups.items():
        said = [(folder / name / f"2-{rank}.txt").read_text() for rank in (0, 1)]
        (folder / name / "results.json").write_text(json.dumps({"codes": [codes[pid] for pid in pids], "said": said}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_all(json.load(sys.stdin), Path(sys.argv[1]))
