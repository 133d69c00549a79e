"""The deployment on Ray: two replicas of the same application behind one address, on a cluster of this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_allclose

from larvatus.core.errors import UsageError
from larvatus.inference.model import load
from larvatus.interfaces.client import Client, ServerError
from tests.patience import WATCHDOG_S

PROGRAM = Path(__file__).with_name("ray_program.py")


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def started(port: int, directory: Path, log: Path) -> subprocess.Popen[bytes]:
    """Once it serves. Ray gives its own processes 30 seconds to start, which a busy machine may need again."""
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, str(PROGRAM), str(port), str(directory)]
    until = time.monotonic() + WATCHDOG_S
    while True:
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
        while process.poll() is None and "RUNNING {" not in log.read_text(errors="replace"):
            if time.monotonic() > until:
                process.kill()
            time.sleep(0.5)
        said = log.read_text(errors="replace")
        if process.poll() is None:
            return process
        assert "timed out during startup" in said, said
        assert time.monotonic() < until, said


@pytest.mark.proof
def test_two_replicas_answer_behind_one_address(tmp_path: Path, tiny_model: Any, save_tiny: Any) -> None:
    pytest.importorskip("ray.serve")
    directory = save_tiny(tmp_path / "mine", tiny_model(seed=3))
    port, log = free_port(), tmp_path / "log.txt"
    process = started(port, directory, log)
    try:
        texts = [f"the {word} was wide" for word in ("river", "bank", "town")] * 8
        with Client(f"http://127.0.0.1:{port}") as client, ThreadPoolExecutor(8) as pool:
            vectors = list(pool.map(client.embed, texts))
            with pytest.raises(ServerError, match="there is no model"):
                client.fill("the [MASK]", model="law")
        assert_allclose(vectors, load(directory, device="cpu").embed(texts), atol=1e-5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WATCHDOG_S) == 0, log.read_text(errors="replace")
    finally:
        process.kill()
        process.wait()
    said = log.read_text(errors="replace")
    assert "{'larvatus': {'RUNNING': 2}}" in said.replace("<ReplicaState.RUNNING: 'RUNNING'>", "'RUNNING'")
    assert said.endswith("ended\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"models": ""}, "no model to serve"),
        ({"models": "a", "replicas": "0"}, "would serve nothing"),
        ({"models": "a", "replicas": "two"}, "is not a number"),
        ({"models": "a", "max_item": "3"}, "did you mean max_items?"),
        ({"models": "a", "max_items": "-3"}, "max_items"),
        ({"models": "a", "port": "80"}, "port is not a setting"),
    ],
)
def test_what_makes_no_sense_is_refused_before_a_replica_starts(arguments: dict[str, str], said: str) -> None:
    pytest.importorskip("ray.serve")
    from larvatus.interfaces.serve.on_ray import application

    with pytest.raises(UsageError, match=said.replace("?", r"\?")):
        application(arguments)
