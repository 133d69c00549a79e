"""Row 81 of the list of faults: a model, a server's queue and a client that were used before `fork`, in the child."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import larvatus as lv
from larvatus.interfaces.client.connections import Connections
from larvatus.interfaces.serve.operations import OPERATIONS
from larvatus.interfaces.serve.server import Server
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.models.network import Network
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.objectives import CausalLMConfig
from tests import warm
from tests.faults.model_in_child import CALLS, in_child
from tests.interfaces.serve.models import save_models

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, tiny_model: Any, save_tiny: Any, tiny_tokenizer: Any) -> Path:
    folder = tmp_path_factory.mktemp("models")

    def larger(**given: Any) -> Network:
        network: Network = tiny_model(hidden=64, max_positions=128, **given)
        return network

    save_models(folder, larger, save_tiny)
    config = CausalTransformerConfig(layers=2, hidden=64, heads=2, max_positions=32)
    network = Network.build(config, [CausalLMConfig()], tiny_tokenizer.size, seed=1).eval()
    save_tiny(folder / "writer", network, [CausalLMConfig()])
    return folder


def calls_in_child(models: Path, how: str = "") -> dict[str, str]:
    command = [sys.executable, "-m", "tests.faults.model_in_child", str(models), how]
    threads = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = warm.run(command, cwd=ROOT, env=threads, capture_output=True, text=True, timeout=1_500, check=False)
    assert done.returncode == 0, done.stderr
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def test_81_a_model_used_before_a_fork_works_in_the_child_with_two_threads(models: Path) -> None:
    assert calls_in_child(models) == dict.fromkeys([*CALLS, "int8"], "equal")


def test_81_where_openmp_cannot_end_its_threads_the_child_computes_with_one(models: Path) -> None:
    assert calls_in_child(models, "old") == dict.fromkeys([*CALLS, "int8"], "equal")


@pytest.mark.proof
def test_81_compiled_code_works_in_the_child(models: Path) -> None:
    assert calls_in_child(models, "compiled") == {"compiled": "equal"}


@pytest.mark.proof
def test_81_a_model_in_onnx_runtime_is_refused_in_the_child(models: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    assert "load it there" in calls_in_child(models, "onnx")["embed"]


def test_81_a_server_that_answered_before_a_fork_answers_in_the_child(models: Path) -> None:
    server = Server.of([lv.load(models / "plain", device="cpu")], ServeSettings(threads=2))
    fill = OPERATIONS["fill"]
    try:

        def ask() -> float:
            answer = server.answer_now(fill, fill.Body(texts="the [MASK] was wide"))  # type: ignore[call-arg]
            return float(answer["results"][0]["fills"][0]["probability"])

        assert in_child(ask) == "equal"
        with server.batcher._unit_ready:  # a lock that another thread holds at the fork
            assert _in_other_thread(lambda: in_child_without_asking(ask)) == "answered"
    finally:
        server.close()


def in_child_without_asking(ask: Callable[[], float]) -> str:
    """As `in_child`, where the parent could not answer."""
    parent = os.getpid()
    return in_child(lambda: 0.0 if os.getpid() == parent else 0.0 * ask()).replace("equal", "answered")


def _in_other_thread(work: Callable[[], str]) -> str:
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(work()))
    thread.start()
    thread.join()
    return said[0]


def test_81_a_child_does_not_use_its_parents_connections() -> None:
    connections = Connections("http://127.0.0.1:9", key=None, timeout=1, retries=0)
    kept: Any = object()
    connections._free.append(kept)
    with connections._lock:
        assert in_child_without_asking(lambda: len(connections._free) or connections._lock.locked()) == "answered"
    connections._free.clear()
