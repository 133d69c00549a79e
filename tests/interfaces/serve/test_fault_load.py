"""Rows 52, 53, 55, 56 and 61 of the list of faults: many clients, slow ones, those that go, and faults in a pass."""

from __future__ import annotations

import json
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import larvatus as lv
from larvatus.interfaces.serve.batcher import Batcher
from larvatus.interfaces.serve.requests import ResponseRate
from tests.interfaces.serve.running import Reply, Running, reply_of

PORTION = 80
"""Requests between two looks at memory."""
POISON = "homework"
"""A word that the encoder of some tests fails at."""


@pytest.fixture(scope="module")
def server(tiny_directory: Path) -> Iterator[Running]:
    with Running([lv.load(tiny_directory)], queue=40) as running:
        yield running


@pytest.fixture(scope="module")
def hasty(tiny_directory: Path) -> Iterator[Running]:
    with Running([lv.load(tiny_directory)], timeout=0.7) as running:
        yield running


@contextmanager
def encoder_that(server: Running, fails_at: Callable[[Any], bool]) -> Iterator[None]:
    """The encoder raises at batches for which `fails_at(ids)`, with the ids in its message."""
    (encoder,) = server.app.state.server.served.encoders.values()
    forward = encoder.forward

    def failing(batch: Any, **settings: Any) -> Any:
        if fails_at(batch.ids):
            raise RuntimeError(f"a fault at {batch.ids.tolist()}")
        return forward(batch, **settings)

    encoder.forward = failing
    try:
        yield
    finally:
        del encoder.forward


# --------------------------------------------------------------------------- slow clients, and those that go


def test_52_a_slow_body_is_given_up(hasty: Running) -> None:
    with hasty.connect() as connection:
        head = "POST /v1/fill HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
        status, body = reply_of(connection)
    assert status == 408
    assert json.loads(body)["error"]["type"] == "TooSlow"


def test_52_a_connection_that_says_nothing_is_closed(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("larvatus.interfaces.serve.uvicorn_server.StrictHttpProtocol.header_seconds", 0.2)
    with server.connect() as silent, server.connect() as begun:
        begun.sendall(b"POST /v1/fill HT")
        for connection in (silent, begun):
            with pytest.raises(ConnectionResetError):
                assert connection.recv(1) == b""
                raise ConnectionResetError


def test_52_who_does_not_read_its_answer_is_cut_and_who_reads_slowly_is_not(tiny_directory: Path) -> None:
    body = {"texts": ["the river bank was wide and deep and wide " * 3] * 24, "unit": "token", "layers": "all"}
    with Running([lv.load(tiny_directory)]) as server:
        whole_answer = len(server.post("/v1/embed", body).body)
        server.server.config.timeout_keep_alive = 1.5  # longer than a busy machine holds up the one that reads slowly
        server.buffer = 4_096
        server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        connections = server.server.server_state.connections
        server.until(lambda: not connections)
        with server.send("/v1/embed", body) as slow, server.send("/v1/embed", body) as stuck:
            server.until(lambda: len(connections) == 2)
            read = 0
            while len(connections) == 2:  # until the one that does not read is cut
                read += len(slow.recv(4_096))
                time.sleep(0.05)
            assert {connection.client[1] for connection in connections} == {slow.getsockname()[1]}
            assert stuck.fileno() >= 0  # it never closed by itself
            while chunk := slow.recv(2**20):
                read += len(chunk)
            assert read > whole_answer


def test_52_who_goes_while_queued_is_never_computed(server: Running) -> None:
    gone_before = server.metric("larvatus_clients_gone_total")
    with server.held():
        before = server.batcher.counts.passes
        connections = [server.send("/v1/fill", {"texts": "the [MASK]"}) for _ in range(3)]
        stays = server.meanwhile("/v1/embed", {"texts": "the river"})
        server.until(lambda: server.batcher.requests == 4)
        for connection in connections:
            connection.close()
        server.until(lambda: server.batcher.requests == 1)
    assert stays.reply.status == 200
    server.until(lambda: server.batcher.waiting_batches == 0)
    assert server.batcher.counts.passes == before + 2  # what held the thread, and the one who stayed
    assert server.metric("larvatus_clients_gone_total") == gone_before + 3


def test_52_what_takes_longer_than_the_timeout_is_given_up_and_never_computed(hasty: Running) -> None:
    with hasty.held():
        before = hasty.batcher.counts.passes
        reply = hasty.post("/v1/fill", {"texts": "the [MASK]"})
        assert reply.status == 503
        assert reply.error["type"] == "TimedOut"
    hasty.until(lambda: hasty.batcher.waiting_batches == 0)
    assert hasty.batcher.counts.passes == before + 1


# ------------------------------------------------------------------------------------------------ overload


def test_53_a_full_queue_is_429_with_an_estimate(server: Running) -> None:
    with server.held():
        waiting = [server.meanwhile("/v1/embed", {"texts": "the river"}) for _ in range(40)]
        server.until(lambda: server.batcher.requests == 40)
        refused = server.post("/v1/embed", {"texts": "the bank"})
        assert refused.status == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 120
        assert refused.error["type"] == "QueueFull"
        assert server.get("/v1/models").status == 200  # what asks for no work is answered
    assert {answer.reply.status for answer in waiting} == {200}
    assert server.post("/v1/embed", {"texts": "the bank"}).status == 200


def test_53_the_estimate_follows_the_pace_of_answers() -> None:
    times = iter([0.0, 2.0, 4.0, 500.0, 502.0])  # a pause says nothing
    rate = ResponseRate(clock=lambda: next(times))
    assert rate.seconds_for(1_000) == 1  # nothing is known yet
    for _ in range(5):
        rate.response_sent()
    assert rate.seconds_for(7) == 14
    assert rate.seconds_for(10_000) == 120


@pytest.mark.proof
def test_53_ten_times_overload_leaves_the_accepted_in_bounded_time(
    tiny_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten times as many clients as may wait ask without pause: who is let in waits for what was before, no longer.

    That is counted in answers of others between the moment a request is let in and its own answer.
    """
    body = {"texts": ["the river bank was wide and deep and wide"] * 8, "unit": "word"}
    with Running([lv.load(tiny_directory)], queue=8) as server:
        depths, overtaken = _watched(server.batcher, monkeypatch)
        assert set(_flood(server, body, clients=8, requests=20)) == {200}
        flood = _flood(server, body, clients=80, requests=20)
        assert set(flood) == {200, 429}
        server.until(lambda: len(overtaken) == len(depths) == 8 * 20 + flood.count(200))
        assert max(depths) <= 8
        assert max(overtaken) <= 4 * 8, sorted(overtaken)[-20:]  # small ones first, but none is passed over for ever
        assert server.get("/healthz").status == 200


def _watched(batcher: Batcher, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[int]]:
    """For each request that is let in: how many there are then, and how many others are answered before it."""
    depths: list[int] = []
    overtaken: list[int] = []
    submit = batcher.submit

    def counted(call: Any) -> Any:
        ticket = submit(call)
        depths.append(batcher.requests)
        before = len(overtaken)
        ticket.add_done_callback(lambda done: overtaken.append(len(overtaken) - before))
        return ticket

    monkeypatch.setattr(batcher, "submit", counted)
    return depths, overtaken


def _flood(server: Running, body: Any, *, clients: int, requests: int) -> list[int]:
    """Statuses of requests that each client sends one after the other, without a pause."""
    statuses: list[int] = []

    def ask() -> None:
        for _ in range(requests):
            statuses.append(server.post("/v1/embed", body).status)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


# ------------------------------------------------------------------------------------------- faults in a pass


def test_55_a_fault_fails_its_batch_and_turns_health_red_until_a_pass_succeeds(
    server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    assert server.get("/healthz").status == 200
    faults = server.metric("larvatus_pass_faults_total")
    with encoder_that(server, lambda ids: True):
        reply = server.post("/v1/embed", {"texts": "the river"})
        assert reply.status == 500
        assert reply.error["type"] == "InternalError"
        assert server.metric("larvatus_pass_faults_total") > faults
        assert server.metric("larvatus_failing") == 1
        assert server.get("/healthz").status == 503
        assert server.get("/healthz").status == 503  # its own pass fails, too
    assert server.get("/healthz").status == 503  # the fault is told once more; this pass succeeds
    assert server.get("/healthz").status == 200
    assert server.metric("larvatus_failing") == 0
    assert server.post("/v1/embed", {"texts": "the river"}).status == 200
    assert "RuntimeError" in caplog.text
    assert "a fault at" not in caplog.text


def test_56_of_32_clients_only_the_poisoned_fails(server: Running, tiny_tokenizer: Any) -> None:
    poison = tiny_tokenizer.id(POISON)
    texts = [f"the river {'was ' * n}wide" for n in range(1, 32)] + [f"turn in your {POISON}"]
    with encoder_that(server, lambda ids: bool((ids == poison).any())):
        with server.held():
            answers = [server.meanwhile("/v1/embed", {"texts": text}) for text in texts]
            server.until(lambda: server.batcher.requests == 32)
        replies: list[Reply] = [answer.reply for answer in answers]
    assert [reply.status for reply in replies] == [200] * 31 + [500]
    for text, reply in zip(texts[:31], replies, strict=False):
        assert reply.json["results"][0]["text"] == text
    assert POISON not in replies[-1].body.decode()


def test_56_of_32_items_of_a_client_only_the_poisoned_fails(server: Running, tiny_tokenizer: Any) -> None:
    poison = tiny_tokenizer.id(POISON)
    texts = [f"the river {'was ' * n}wide" for n in range(1, 32)] + [f"turn in your {POISON}"]
    with encoder_that(server, lambda ids: bool((ids == poison).any())):
        reply = server.post("/v1/embed", {"texts": texts})
    assert reply.status == 200
    assert ["error" in result for result in reply.json["results"]] == [False] * 31 + [True]
    server.post("/v1/embed", {"texts": "the river"})  # leaves the server green


# -------------------------------------------------------------------------------------------------- a soak


@pytest.mark.proof
def test_61_memory_stays_flat_under_mixed_traffic(tiny_directory: Path) -> None:
    """Thousands of requests of all kinds, good and bad, and of clients that go: no fault, and no growth."""
    page = os.sysconf("SC_PAGE_SIZE")

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    kinds: list[Callable[[Running, int], int]] = [
        lambda s, n: s.post("/v1/embed", {"texts": ["the river " * (1 + n % 40)]}).status,
        lambda s, n: s.post("/v1/fill", {"texts": "the [MASK] was wide", "top": 1 + n % 10}).status,
        lambda s, n: s.post("/v1/score", {"texts": "the river was wide"}).status,
        lambda s, n: s.post("/v1/fill", b"{" * (n % 100)).status,
        lambda s, n: s.get(f"/nowhere/{n}").status,
        lambda s, n: s.get("/metrics").status,
        lambda s, n: s.get("/healthz").status,
        lambda s, n: s.send("/v1/embed", {"texts": "the bank"}).close() or 0,
    ]
    with Running([lv.load(tiny_directory)]) as server:
        statuses: set[int] = set()
        sizes: list[int] = []

        def ask(number: int) -> None:
            statuses.add(kinds[number % len(kinds)](server, number))

        with ThreadPoolExecutor(4) as pool:
            for portion in range(60):
                list(pool.map(ask, range(PORTION * portion, PORTION * (portion + 1))))
                sizes.append(resident())
        assert statuses == {0, 200, 400, 404}
        assert server.metric("larvatus_pass_faults_total") == 0
    early, late = statistics.median(sizes[15:25]), statistics.median(sizes[-10:])
    assert late - early < 4 * 2**20, [size // 2**20 for size in sizes]


def test_61_what_is_counted_does_not_grow_with_what_clients_make_up(server: Running) -> None:
    server.get("/nowhere")
    lines = len(server.get("/metrics").body.splitlines())
    for number in range(20):
        server.get(f"/nowhere/{number}?secret={number}")
        server.ask("BREW", f"/v1/{number}")
    shown = server.get("/metrics").body.decode()
    assert len(shown.splitlines()) <= lines + 30  # routes and methods are those of the server, whatever is asked for
    assert "secret" not in shown
    assert "BREW" not in shown
