"""Row 85 of the list of faults, and what belongs to it: names a server answers to, idle connections, SIGTERM."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette

import larvatus as lv
from larvatus.core.errors import UsageError
from larvatus.interfaces.serve import listening
from larvatus.interfaces.serve.listening import listening_socket
from larvatus.interfaces.serve.middleware.stack import Drain
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.interfaces.serve.uvicorn_server import run_until_stopped
from larvatus.interfaces.studio.settings import StudioSettings
from tests.interfaces.serve.running import Running, reply_of
from tests.interfaces.serve.test_fault_server import KEYS, Started
from tests.patience import WATCHDOG_S

FOREIGN = ["evil", "ai", "xn--80ak6aa92e", "evil.example", "10.0.0.1", "0.0.0.0", "[::2]", "127.0.0.1.evil.example"]
ODD = ["localhost@evil", "localhost,evil", "localhost evil", "localhost/evil", "[::1", "localhost:80:80", "\xe9vil"]


@pytest.fixture(scope="module")
def server(tiny_directory: Path) -> Iterator[Running]:
    with Running([lv.load(tiny_directory)], host_allowed=("larvatus", "Lab.Example"), connections=6) as running:
        yield running


def asked(server: Running, *lines: str, version: str = "1.1") -> int:
    """Status of a GET with these header lines and no others."""
    head = "".join(f"{line}\r\n" for line in (f"GET /v1/models HTTP/{version}", *lines, "Connection: close", ""))
    with server.connect() as connection:
        connection.sendall(head.encode("latin-1"))
        return reply_of(connection)[0]


@pytest.mark.parametrize("host", [*FOREIGN, *ODD])
def test_85_a_host_that_is_not_ours_is_refused(server: Running, host: str) -> None:
    assert asked(server, f"Host: {host}") == 403


def test_85_a_request_that_names_no_host_is_refused(server: Running) -> None:
    assert asked(server) == 400
    assert asked(server, version="1.0") == 400
    assert asked(server, "Host:") == 400
    assert asked(server, "Host: localhost", "Host: evil") == 403


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:1", "localhost", "LOCALHOST:8311", "[::1]:80", "larvatus:80", "lab.example"]
)
def test_85_names_of_this_machine_and_allowed_ones_are_answered(server: Running, host: str) -> None:
    assert asked(server, f"Host: {host}") == 200
    assert asked(server, f"Host: {host}", f"Origin: http://{host}") == 200
    assert asked(server, f"Host: {host}", "Origin: http://evil") == 403


def test_85_with_keys_only_names_that_are_given_are_checked(tiny_directory: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text(KEYS[0])
    for allowed, status in (((), 200), (("larvatus",), 403)):
        with Running([lv.load(tiny_directory)], key_file=str(keys), host_allowed=allowed) as running:
            assert asked(running, "Host: server", f"Authorization: Bearer {KEYS[0]}") == status
            assert asked(running, "Host: larvatus", f"Authorization: Bearer {KEYS[0]}") == 200


@pytest.mark.parametrize("name", ["", "larvatus:80", "http://larvatus", "a b", "*", "a,b"])
def test_85_an_allowed_name_is_a_name(name: str) -> None:
    for settings in (ServeSettings, StudioSettings):
        with pytest.raises(UsageError, match="without a port"):
            settings(host_allowed=(name,))


# ------------------------------------------------------------------------------------------- idle connections


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is cut because its headers are late."""
    monkeypatch.setattr("larvatus.interfaces.serve.uvicorn_server.StrictHttpProtocol.header_seconds", 300.0)


@pytest.mark.usefixtures("patient")
def test_52_clients_that_only_connect_keep_nobody_out(server: Running) -> None:
    server.until(lambda: not server.server.server_state.connections)
    silent = [server.connect() for _ in range(6)]
    try:
        server.until(lambda: len(server.server.server_state.connections) == 6)
        assert server.get("/v1/models").status == 200
        with pytest.raises(ConnectionResetError):  # the one that was idle longest
            assert silent[0].recv(1) == b""
            raise ConnectionResetError
        silent[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            silent[-1].recv(1)
    finally:
        for connection in silent:
            connection.close()


@pytest.mark.usefixtures("patient")
def test_52_a_connection_at_work_is_not_cut_for_a_new_one(server: Running) -> None:
    server.until(lambda: not server.server.server_state.connections)
    with server.held():
        working = [server.send("/v1/embed", {"texts": "the river"}) for _ in range(6)]
        server.until(lambda: server.batcher.requests == 6)
        with server.connect() as late, pytest.raises(ConnectionResetError):
            assert late.recv(1) == b""
            raise ConnectionResetError
    for connection in working:
        with connection:
            assert reply_of(connection)[0] == 200


# --------------------------------------------------------------------------------------------------- SIGTERM


def test_57_when_the_address_is_told_sigterm_already_drains() -> None:
    drain, seen = Drain(), list[Any]()

    def started() -> None:
        seen.append(signal.getsignal(signal.SIGTERM))
        if callable(seen[0]):
            with socket.create_connection(address):
                os.kill(os.getpid(), signal.SIGTERM)

    with listening_socket("127.0.0.1", 0) as sock:
        address = sock.getsockname()
        run_until_stopped(Starlette(), sock, drain=drain, drain_seconds=5, started=started)
    assert drain.begun
    assert seen[0].__name__ == "handle_exit"


def test_57_the_address_is_told_when_the_server_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    served = SimpleNamespace(models={"tiny": None})
    app = SimpleNamespace(state=SimpleNamespace(server=SimpleNamespace(served=served)))
    monkeypatch.setattr("larvatus.interfaces.serve.app.build_app", lambda models, settings: app)

    def run_app(*given: Any, started: Any) -> None:
        assert told == []
        started()

    monkeypatch.setattr(listening, "run_app", run_app)
    listening.listen([], ServeSettings(), None, ready=told.append)  # type: ignore[arg-type]
    assert told == ["tiny"]


@pytest.mark.proof
def test_57_sigterm_with_50_idle_connections_exits_with_0(tiny_directory: Path) -> None:
    with Started(tiny_directory) as started:
        idle = [socket.create_connection(("127.0.0.1", started.port)) for _ in range(50)]
        for connection in idle[::2]:
            connection.sendall(b"GET /v1/models HT")
        started.process.send_signal(signal.SIGTERM)
        assert started.process.wait(WATCHDOG_S) == 0, started.said()
        for connection in idle:
            connection.close()
