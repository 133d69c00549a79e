"""Row 35: torchrun starts all ranks again when one was killed, and they continue from the last checkpoint."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import warm
from tests.faults.test_hangs import alive, children
from tests.faults.test_runs import assert_bit_equal, command, environment, final_weights
from tests.patience import WATCHDOG_S, watchdog

KILLS = 2
ROOT = Path(__file__).parents[2]


def torchrun(run: list[str], *options: str) -> list[str]:
    """The same command in several processes."""
    return [sys.executable, "-m", "torch.distributed.run", *options, *run[1:]]


@contextlib.contextmanager
def started(words: list[str], out: Path) -> Iterator[subprocess.Popen[bytes]]:
    with out.with_suffix(".txt").open("ab") as said:
        process = warm.Popen(
            words,
            env=environment(**{warm.NESTED: "all"}),
            stdout=said,
            stderr=said,
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def waited_for(path: Path, size: int, process: subprocess.Popen[bytes], limit_s: float = WATCHDOG_S) -> int:
    """Until a file has grown beyond that size; what it is now."""
    until = time.monotonic() + limit_s
    while not (path.exists() and path.stat().st_size > size):
        assert process.poll() is None, path.parent.with_suffix(".txt").read_text()
        assert time.monotonic() < until, path.parent.with_suffix(".txt").read_text()
        time.sleep(0.01)
    return path.stat().st_size


def listening(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until somebody listens at a port of this machine."""
    with watchdog():
        while process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=WATCHDOG_S):
                return
            time.sleep(0.05)
    pytest.fail("it ended")


@pytest.mark.proof
def test_row_35_ranks_killed_at_random_moments_end_with_the_weights_of_an_unbroken_run(
    prepared: Any, tmp_path: Path
) -> None:
    two = ("--standalone", "--nproc-per-node", "2", "--max-restarts", str(KILLS))

    def run(name: str) -> list[str]:
        return torchrun(command(prepared, tmp_path / name, steps=120, extra=["--microbatch", "128"]), *two)

    with started(run("whole"), tmp_path / "whole") as process:
        assert process.wait(WATCHDOG_S) == 0, (tmp_path / "whole.txt").read_text()
    draw, out = random.Random(16), tmp_path / "killed"
    with started(run("killed"), out) as process:
        size = 0
        for _ in range(KILLS):
            waited_for(out / "metrics.jsonl", size, process)
            time.sleep(draw.uniform(0, 0.5))
            ranks = sorted(child for child in children(process.pid) if alive(child))
            assert len(ranks) == 2
            os.kill(draw.choice(ranks), signal.SIGKILL)
            while any(map(alive, ranks)):
                time.sleep(0.05)
            size = (out / "metrics.jsonl").stat().st_size
        assert process.wait(WATCHDOG_S) == 0, (tmp_path / "killed.txt").read_text()
    said = (tmp_path / "killed.txt").read_text()
    assert said.count("resumed from step") == KILLS
    assert said.count("died (process ") == KILLS
    assert_bit_equal(final_weights(tmp_path / "whole"), final_weights(out))


@pytest.mark.proof
def test_row_35_with_a_machine_less_the_run_goes_on_with_fewer_ranks(prepared: Any, tmp_path: Path) -> None:
    """Two agents of torchrun, each with a rank, as on two machines; one is killed with its rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meet = ("--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "2", "--rdzv-backend", "c10d")
    meet += ("--rdzv-id", "16", "--rdzv-endpoint", f"127.0.0.1:{port}")
    meet += ("--rdzv-conf", "last_call_timeout=3,keep_alive_interval=2,keep_alive_max_attempt=5")
    extra = ["--microbatch", "128", "--rank-timeout", "15", "--set", "model.dropout=0.0"]
    extra += ["--set", "model.attention_dropout=0.0"]
    alone = command(prepared, tmp_path / "alone", steps=100, extra=extra)
    assert warm.run(alone, env=environment(), cwd=ROOT, stdout=subprocess.DEVNULL).returncode == 0
    out = tmp_path / "two"
    words = torchrun(command(prepared, out, steps=100, extra=extra), *meet)
    with started(words, out) as first:
        listening(port, first)  # so that the store is this one's
        with started(words, tmp_path / "second") as second:
            waited_for(out / "metrics.jsonl", 0, first)
            time.sleep(0.5)
            os.killpg(second.pid, signal.SIGKILL)
            for rank in children(second.pid):
                os.kill(rank, signal.SIGKILL)
        assert first.wait(WATCHDOG_S) == 0, (tmp_path / "two.txt").read_text()
    said = (tmp_path / "two.txt").read_text()
    assert "processes 2 (now 1)" in said or "no checkpoint yet" in said, said
    weights = final_weights(tmp_path / "alone")
    for name, tensor in final_weights(out).items():
        torch.testing.assert_close(tensor, weights[name], rtol=1e-3, atol=1e-4)
