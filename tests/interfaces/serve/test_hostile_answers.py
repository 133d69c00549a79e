"""The client against a server that means harm: each answer is a result, or one `ServerError` with the address."""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from larvatus.interfaces.client import Client, ServerError
from larvatus.interfaces.client.connections import MOST_BYTES
from tests.patience import WATCHDOG_S

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CALLS: dict[str, Callable[[Client], Any]] = {
    "models": lambda client: client.models(),
    "fill": lambda client: client.fill("a [MASK]"),
    "embed": lambda client: client.embed("a"),
    "embed words": lambda client: client.embed(["a", "b"], unit="word"),
    "similar": lambda client: client.similar(["*a*", "*b*"]),
    "senses": lambda client: client.senses(["*a*", "*b*"]),
    "attention": lambda client: client.attention("a"),
    "answer": lambda client: client.answer(("a?", "b")),
    "classify": lambda client: client.classify(["a", "b"]),
    "rerank": lambda client: client.rerank("a?", ["a", "b"]),
}


class Hostile:
    """Sends the same bytes, or what an iterator gives for as long as it is read, to every client."""

    def __init__(self) -> None:
        self.sends: Callable[[], Iterator[bytes]] = lambda: iter(())
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.settimeout(WATCHDOG_S)
                connection.recv(2**16)
                for part in self.sends():
                    connection.sendall(part)
                    if self._ending.is_set():
                        return
            except OSError:
                return  # the client has had enough

    def close(self) -> None:
        self._ending.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join(WATCHDOG_S)


@pytest.fixture(scope="module")
def hostile() -> Iterator[Hostile]:
    server = Hostile()
    yield server
    server.close()


def answers(body: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: iter([HEAD + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body])


def refused(hostile: Hostile, call: Callable[[Client], Any], **settings: Any) -> str:
    with Client(hostile.address, retries=0, **{"timeout": 60, **settings}) as client, pytest.raises(ServerError) as why:
        call(client)
    assert hostile.address in str(why.value)
    assert len(str(why.value)) < 1_000
    assert "\n" not in str(why.value)
    return str(why.value)


VALUES: list[Any] = [None, 3, "text", [], [[]], {}, {"x": 1}, True, [None], [3], 1e308]
SHAPES = [
    *VALUES,
    *({"results": value} for value in VALUES),
    *({"models": value} for value in (None, 3, {}, [3], [[]])),
    *({"instances": value, "cosines": value, "clusters": value, "nearest": value} for value in (None, 3, {}, [3])),
    *({"tokens": value, "weights": value} for value in (None, 3, {}, [3], [[[["a"]]]])),
    *({"results": [{"units": value}]} for value in (None, 3, {}, [3], [{}], [{"vector": 3}], [{"vector": ["a"]}])),
    {"results": [{"units": [{"vector": [1.0, 2.0]}, {"vector": [1.0]}]}]},
    {"results": [{"units": [{"vector": [[[1.0]]]}]}]},
    {"results": [{"units": [{"vector": [{}]}]}]},
    *({"results": [{"index": value, "relevance_score": 0.5}]} for value in (None, -1, 2, "a")),
    {"results": [{"units": [{"vector": [1e39]}]}]},  # no number in float32
]


@pytest.mark.parametrize("name", CALLS)
def test_22_other_shapes_of_json_are_one_error_that_names_the_address(hostile: Hostile, name: str) -> None:
    faults: list[str] = []
    for shape in SHAPES:
        hostile.sends = answers(json.dumps(shape).encode())
        with Client(hostile.address, retries=0) as client:
            try:
                CALLS[name](client)
            except ServerError as fault:
                faults.append(str(fault))
    assert all(hostile.address in fault for fault in faults)
    assert len(faults) >= len(SHAPES) // 2  # the others have the shape of this call's answers


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"results":' * 5_000,
        b'{"results": [{"units": [{"vector": [NaN]}]}]}',
        b'{"results": [{"units": [{"vector": [1e999]}]}]}',
        b'{"results": [{"units": [{"vector": [' + b"9" * 5_000 + b"]}]}]}",
        b'{"results": [{"units": [{"vector": [1' + b"0" * 50 + b"]}]}]}",
        b"\xff\xfe",
        b"",
        b'"\\ud800"',
    ],
    ids=["deep", "objects", "nan", "inf", "digits", "large", "bytes", "nothing", "half a pair"],
)
def test_22_what_no_decoder_likes_is_one_error(hostile: Hostile, body: bytes) -> None:
    hostile.sends = answers(body)
    refused(hostile, CALLS["embed"])


def test_22_a_result_for_each_input_or_none(hostile: Hostile) -> None:
    hostile.sends = answers(json.dumps({"results": [{"label": "x"}] * 3}).encode())
    assert "3 results for 2 inputs" in refused(hostile, CALLS["classify"])
    units = {"units": [{"vector": [1.0]}, {"vector": [2.0]}]}
    hostile.sends = answers(json.dumps({"results": [units]}).encode())
    assert "2 vectors of a sentence" in refused(hostile, CALLS["embed"])
    different = [{"units": [{"vector": [1.0]}]}, {"units": [{"vector": [1.0, 2.0]}]}]
    hostile.sends = answers(json.dumps({"results": different}).encode())
    refused(hostile, lambda client: client.embed(["a", "b"]))
    hostile.sends = answers(json.dumps({"results": [{"units": [{"vector": None}]}]}).encode())
    with Client(hostile.address) as client:
        assert np.isnan(client.embed("a")).all()  # a unit that the vocabulary deletes


@pytest.mark.parametrize(
    "head",
    [
        HEAD + b"Content-Length: 99999999999999\r\n\r\n{",
        HEAD + b"\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
    ],
    ids=["announced", "until it closes", "chunked"],
)
def test_22_an_endless_answer_is_left_at_a_limit_of_bytes(hostile: Hostile, head: bytes) -> None:
    part = b" " * 2**20
    framed = b"100000\r\n" + part + b"\r\n" if b"chunked" in head else part
    sent = [0]

    def sends() -> Iterator[bytes]:
        yield head
        for _ in itertools.count():
            sent[0] += 2**20
            yield framed

    hostile.sends = sends
    assert "bytes" in refused(hostile, CALLS["fill"])
    assert sent[0] < MOST_BYTES + 2**26  # and what the system holds between the two


@pytest.mark.parametrize("head", [b"HTTP/1.1 2", HEAD, HEAD + b"\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_22_a_dripping_answer_ends_with_the_time_of_the_call(hostile: Hostile, head: bytes) -> None:
    """A byte every twentieth of a second, for ever: no single read is late, the call is."""
    drip = b"HTTP/1.1 100 Continue\r\n\r\n" if b"Continue" in head else b" " if head.endswith(b"\r\n\r\n") else b"x"

    def sends() -> Iterator[bytes]:
        yield head
        while not threading.Event().wait(0.05):
            yield drip

    hostile.sends = sends
    assert "did not answer in 0.4 seconds" in refused(hostile, CALLS["fill"], timeout=0.4)


def test_22_waits_that_a_full_server_asks_for_count_as_time_of_the_call(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: list[float] = []
    monkeypatch.setattr("larvatus.interfaces.client.connections.time.sleep", naps.append)
    body = b'{"error": {"type": "QueueFull", "message": "full"}}'
    for wait in (b"9" * 400, b"-1", b"abc", "²".encode("latin-1"), b"61"):
        head = b"HTTP/1.1 429 Full\r\nConnection: close\r\nRetry-After: " + wait + b"\r\nContent-Length: %d\r\n\r\n"
        hostile.sends = lambda head=head: iter([head % len(body) + body])
        with Client(hostile.address, retries=2) as client, pytest.raises(ServerError, match="full"):
            client.models()
    assert all(0 <= nap <= 60 for nap in naps)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n{}",
        b"HTTP/1.1 200 " + b"x" * 100_000 + b"\r\n\r\n",
        HEAD + b"Content-Length: -5\r\n\r\n",
        HEAD + b"Content-Length: abc\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"Content-Length: 10\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n\x00\x00\x00",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    ],
)
def test_22_what_is_no_http_is_one_error(hostile: Hostile, raw: bytes) -> None:
    hostile.sends = lambda: iter([raw])
    refused(hostile, CALLS["models"])
