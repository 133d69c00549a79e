"""What a server does around its routes: counts, headers, health checks, bounds of headers and bodies."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import larvatus as lv
from larvatus.interfaces.serve.app import Health
from larvatus.interfaces.serve.middleware.access import BodyLimitMiddleware
from tests.interfaces.serve.running import Running


@pytest.fixture(scope="module")
def server(tiny_directory: Path) -> Iterator[Running]:
    with Running([lv.load(tiny_directory)]) as running:
        yield running


def test_requests_are_counted_by_route_and_status_and_passes_by_size(server: Running) -> None:
    with server.held():
        answers = [server.meanwhile("/v1/embed", {"texts": "the river"}) for _ in range(3)]
        server.until(lambda: server.batcher.requests == 3)
        assert server.metric("larvatus_queue_depth") == 3
    assert {answer.reply.status for answer in answers} == {200}
    server.post("/v1/fill", b"{")
    server.get("/v1/nowhere")
    assert server.metric('larvatus_requests_total{method="POST",route="/v1/embed",status="200"}') == 3
    assert server.metric('larvatus_requests_total{method="POST",route="/v1/fill",status="400"}') == 1
    assert server.metric('larvatus_requests_total{method="GET",route="elsewhere",status="404"}') == 1
    assert server.metric('larvatus_request_seconds_count{route="/v1/embed"}') == 3
    assert server.metric("larvatus_passes_total") == server.batcher.counts.passes
    assert server.metric("larvatus_tokens_total") == server.batcher.counts.tokens == 12  # [CLS] the river [SEP], thrice
    assert server.metric("larvatus_batch_tokens_sum") == 12
    assert server.metric("larvatus_batch_sequences_sum") == 3
    assert server.metric("larvatus_queue_depth") == 0


@pytest.mark.parametrize("path", ["/healthz", "/nowhere", "/metrics", "/v1/models"])
def test_every_answer_has_headers_that_protect(server: Running, path: str) -> None:
    headers = server.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["content-security-policy"].startswith("default-src 'self';")
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


def test_headers_without_end_cut_the_connection(server: Running) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for number in range(10_000):
                connection.sendall(f"X-{number}: {'x' * 1000}\r\n".encode())
            connection.recv(1)
            raise ConnectionResetError
        assert number < 9_999


def test_bodies_of_all_requests_together_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("larvatus.interfaces.serve.middleware.access.HELD", 2)
    statuses: list[int] = []

    async def fill() -> None:
        release = asyncio.Event()

        async def app(scope: object, receive: object, send: object) -> None:
            await release.wait()

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": b" " * 100, "more_body": False}

        async def send(message: dict[str, object]) -> None:
            if "status" in message:
                statuses.append(int(str(message["status"])))

        headers = [(b"content-type", b"application/json"), (b"content-length", b"100")]
        scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
        limit = BodyLimitMiddleware(app, most=100, seconds=1)  # type: ignore[arg-type]
        tasks = [asyncio.create_task(limit(scope, receive, send)) for _ in range(3)]  # type: ignore[arg-type]
        await asyncio.wait([tasks[2]])
        assert limit.held == 200
        release.set()
        await asyncio.gather(*tasks)
        assert limit.held == 0

    asyncio.run(fill())
    assert statuses == [429]


def test_health_checks_that_come_at_once_share_a_pass() -> None:
    passes = 0

    async def probe() -> None:
        nonlocal passes
        passes += 1
        await asyncio.sleep(0.01)

    async def check() -> None:
        health = Health(probe, is_red=lambda: False)
        assert await asyncio.gather(*(health.check() for _ in range(20))) == [True] * 20
        assert await health.check()

    asyncio.run(check())
    assert passes == 1


def test_a_health_check_that_hangs_is_red() -> None:
    async def check() -> bool:
        health = Health(lambda: asyncio.sleep(60), is_red=lambda: False, seconds=0.05)
        return await health.check()

    assert asyncio.run(check()) is False


def test_a_get_takes_no_body(server: Running) -> None:
    assert server.ask("GET", "/healthz", b"{}", Content_Type="application/json").status == 400
    assert server.post("/v1/fill", b"", Content_Encoding="gzip").status == 400
    assert server.post("/v1/fill", b"{}", Content_Encoding="gzip").status == 415


def test_the_list_of_faults_names_tests_that_exist() -> None:
    root = Path(__file__).parents[3]
    listed = (root / "docs" / "serve_operations.md").read_text(encoding="utf-8")
    written = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_fault_*.py"))
    names = re.findall(r"`(test_\w+)`", listed)
    assert [name for name in names if f"def {name}(" not in written] == []
    assert [row for row in range(47, 63) if f"\n| {row} |" not in listed or f"def test_{row}_" not in written] == []
