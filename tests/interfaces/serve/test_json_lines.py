"""Requests as lines of JSON: in order, put together, a bad line alone is refused, and nothing is lost at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_allclose

from larvatus.inference.model import Model, load
from larvatus.interfaces.serve.json_lines import serve_lines
from larvatus.interfaces.serve.server import Server
from larvatus.interfaces.serve.settings import ServeSettings
from tests import warm
from tests.patience import WATCHDOG_S, waiting, watchdog


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, tiny_model: Any, save_tiny: Any) -> Path:
    return save_tiny(tmp_path_factory.mktemp("lines") / "mine", tiny_model(seed=3))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def model(directory: Path) -> Model:
    return load(directory, device="cpu")


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[Server]:
    server = Server.of([load(directory, device="cpu")], ServeSettings(max_body=4_000, threads=4))
    yield server
    server.close()


def answers(server: Server, *lines: Any) -> list[dict[str, Any]]:
    raw = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    sink = BytesIO()
    serve_lines(server, BytesIO(raw).read, sink)
    return [json.loads(line) for line in sink.getvalue().splitlines()]


def test_answers_are_those_of_the_model_in_the_order_of_the_lines(server: Server, model: Model) -> None:
    texts = [f"the {word} was wide" for word in ("river", "bank", "town")] * 30
    asked = [{"route": "embed", "texts": [text], "id": number} for number, text in enumerate(texts)]
    given = answers(server, *asked)
    assert [answer["id"] for answer in given] == list(range(90))
    vectors = [answer["results"][0]["units"][0]["vector"] for answer in given]
    assert_allclose(vectors, model.embed(texts), atol=1e-5)
    assert answers(server, {"route": "fill", "texts": "the [MASK]"})[0]["results"][0]["fills"][0]["token"] == (
        model.fill("the [MASK]")[0].token  # type: ignore[union-attr]
    )


def test_lines_are_put_together_in_passes(server: Server) -> None:
    before = server.batcher.counts.passes
    lines = [{"route": "embed", "texts": "the river"}] * 60
    assert all("results" in answer for answer in answers(server, *lines))
    assert server.batcher.counts.passes - before < 40


def test_bad_lines_are_answered_with_an_error_and_the_next_is_read(server: Server) -> None:
    good = {"route": "embed", "texts": "the river", "id": "good"}
    bad: list[Any] = [
        b"{",
        b'{"route": "embed", "texts": "\xff"}',
        b"[1]",
        b"[" * 3_000,
        b'{"route": "embed", "texts": NaN}',
        {"texts": "the river"},
        {"route": "embde", "texts": "the river"},
        {"route": "embed", "texts": "", "id": 7},
        {"route": "embed", "texts": "the river", "unit": "wrod"},
        {"route": "embed", "texts": "the river", "id": []},
        {"route": "embed", "texts": "river " * 1_000},
        {"route": "classify", "texts": "the river"},
    ]
    lines = [line for each in bad for line in (each, b"", good)]
    given = answers(server, *lines)
    assert [answer.get("id") for answer in given[1::2]] == ["good"] * len(bad)
    assert all("results" in answer for answer in given[1::2])
    refused = given[::2]
    assert [answer["line"] for answer in refused] == list(range(1, 3 * len(bad), 3))
    assert all(400 <= answer["status"] < 500 and answer["error"]["message"] for answer in refused)
    assert refused[7]["id"] == 7
    assert "did you mean embed?" in refused[6]["error"]["message"]
    assert "--max-body" in refused[10]["error"]["message"]


def test_models_are_listed_and_an_empty_input_ends_it(server: Server) -> None:
    assert answers(server, {"route": "models"})[0]["models"][0]["name"] == "mine"
    assert answers(server) == []


def test_an_answer_comes_before_the_next_line_is_written(server: Server) -> None:
    """A program may write a line and wait for its answer."""
    incoming, outgoing = os.pipe(), os.pipe()
    with open(outgoing[1], "wb") as sink, open(outgoing[0], "rb") as source:
        thread = threading.Thread(target=serve_lines, args=(server, lambda most: os.read(incoming[0], most), sink))
        thread.start()
        for number in range(3):
            os.write(incoming[1], json.dumps({"route": "models", "id": number}).encode() + b"\n")
            assert json.loads(source.readline())["id"] == number
        os.close(incoming[1])
        thread.join(WATCHDOG_S)
    assert not thread.is_alive()
    os.close(incoming[0])


@pytest.mark.proof
def test_the_command_answers_what_it_has_read_when_it_is_told_to_stop(directory: Path) -> None:
    command = [sys.executable, "-m", "larvatus", "serve", str(directory), "--json", "--device", "cpu"]
    process = warm.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(b'{"route": "embed", "texts": "the river", "id": 1}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.stdin.write(b'{"route": "embed", "texts": "the town", "id": 2}\n')
        process.stdin.flush()
        with watchdog():
            while waiting(process.stdin):  # until it has read the line
                time.sleep(0.02)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)  # while standard input stays open
        out, err = process.communicate(timeout=WATCHDOG_S)
    finally:
        process.kill()
    assert json.loads(out)["id"] == 2
    assert process.returncode == 143
    assert b"Traceback" not in err
    done = warm.run(command, input=b'{"route": "models"}\n', capture_output=True, timeout=WATCHDOG_S)
    assert done.returncode == 0
    assert json.loads(done.stdout)["models"][0]["name"] == "mine"
    assert done.stderr == b""
