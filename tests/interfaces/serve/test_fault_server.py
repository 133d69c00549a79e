"""Rows 57, 58 and 60 of the list of faults: stopping, keys, and what stands in the log."""

from __future__ import annotations

import hmac
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import larvatus as lv
from larvatus.core.errors import OtherLanguageWarning, UsageError
from larvatus.interfaces.serve.middleware.access import KeyRing
from larvatus.interfaces.serve.settings import check_binding
from tests import warm
from tests.interfaces.serve.running import Running
from tests.patience import WATCHDOG_S

KEYS = ["the first key of this file", "the second key of this file"]
SECRET = "sesquipedalian"
"""A word that no log may hold."""


@pytest.fixture(scope="module")
def server(tiny_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text(f"# of tests\n{KEYS[0]}\n\n{KEYS[1]}\n")
    with Running([lv.load(tiny_directory)], key_file=str(keys)) as running:
        yield running


# -------------------------------------------------------------------------------------------------- stopping


def test_57_what_is_in_flight_is_finished_and_new_requests_are_503(tiny_directory: Path) -> None:
    with Running([lv.load(tiny_directory)]) as server:
        with server.held():
            flying = server.meanwhile("/v1/embed", {"texts": "the river"})
            server.until(lambda: server.batcher.requests == 1)
            server.server.stop()
            late = server.post("/v1/embed", {"texts": "the bank"})
            assert late.status == 503
            assert late.error["type"] == "Closing"
            assert server.get("/healthz").status == 503
            assert server.get("/metrics").status == 200
            time.sleep(0.3)
            assert server.thread.is_alive()
        assert flying.reply.status == 200
        server.thread.join(WATCHDOG_S)
        assert not server.thread.is_alive()
        with pytest.raises(ConnectionRefusedError):
            server.connect()


def test_57_what_hangs_does_not_keep_the_server_from_ending(tiny_directory: Path) -> None:
    with Running([lv.load(tiny_directory)], drain_seconds=0.3) as server, server.held():
        flying = server.meanwhile("/v1/embed", {"texts": "the river"})
        server.until(lambda: server.batcher.requests == 1)
        server.server.stop()
        assert flying.reply.status == 503
        assert flying.reply.error["type"] == "Closing"


def test_57_a_second_signal_ends_it_at_once(tiny_directory: Path) -> None:
    with Running([lv.load(tiny_directory)]) as server, server.held(), server.send("/v1/embed", {"texts": "the river"}):
        server.until(lambda: server.batcher.requests == 1)
        server.server.handle_exit(signal.SIGINT, None)
        time.sleep(0.3)
        assert server.thread.is_alive()  # it waits for the one in flight
        server.server.handle_exit(signal.SIGINT, None)
        server.thread.join(WATCHDOG_S)
        assert not server.thread.is_alive()


@pytest.mark.proof
def test_57_60_sigterm_drains_the_command_exits_with_0_and_its_log_holds_no_input(tiny_directory: Path) -> None:
    with Started(tiny_directory) as started:
        secret_requests(started.post)
        flying = started.meanwhile("/v1/fill", {"texts": ["the [MASK] [MASK] [MASK] was"] * 200, "beam": 20})
        started.until(lambda: started.metric("larvatus_queue_depth") >= 1)
        started.process.send_signal(signal.SIGTERM)
        assert flying.reply.status == 200
        assert started.process.wait(WATCHDOG_S) == 0
        assert SECRET not in started.said()


# ------------------------------------------------------------------------------------------------------ keys


def test_58_every_route_but_healthz_wants_a_key(server: Running) -> None:
    paths = {route.path for route in server.app.routes} | {"/", "/nowhere", "/healthz/", "/healthz/../v1/models", "//"}
    assert {"/v1/fill", "/v1/models", "/metrics", "/healthz", "/openapi.json"} <= paths
    for path in sorted(paths - {"/healthz"}):
        for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
            assert server.ask(method, path).status == 401, (method, path)
    assert server.get("/healthz").status == 200
    assert server.get("/nowhere", Authorization=f"Bearer {KEYS[0]}").status == 404


@pytest.mark.parametrize("key", KEYS)
def test_58_each_key_of_the_file_opens(server: Running, key: str) -> None:
    reply = server.post("/v1/fill", {"texts": "the [MASK]"}, Authorization=f"Bearer {key}")
    assert reply.status == 200, reply.body
    assert server.get("/v1/models", Authorization=f"bearer  {key} ").status == 200


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer ", "Basic abc", KEYS[0], f"Token {KEYS[0]}"])
def test_58_no_key_is_401(server: Running, given: str) -> None:
    reply = server.get("/v1/models", Authorization=given)
    assert reply.status == 401
    assert reply.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("key", ["x", KEYS[0][:-1], KEYS[0] + "x", KEYS[0].upper(), "# of tests", "\xe9" * 20])
def test_58_a_wrong_key_is_403(server: Running, key: str) -> None:
    reply = server.get("/v1/models", Authorization=f"Bearer {key}")
    assert reply.status == 403
    assert reply.error["type"] == "WrongKey"


def test_58_keys_are_compared_in_constant_time_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []
    true_compare = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return true_compare(a, b)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    ring = KeyRing(KEYS)
    for key, opens in ((KEYS[0], True), (KEYS[1], True), ("x", False), ("x" * 9_999, False)):
        compared.clear()
        assert ring.opens(key) is opens
        assert compared == [(32, 32)] * 2  # all keys, as hashes of one length, whichever was right


def test_58_without_keys_only_this_machine_is_served(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "localhost", "::1"):
        check_binding(host, None)
    for host in ("0.0.0.0", "::", "192.168.0.7", "example.com"):
        with pytest.raises(UsageError, match=r"--key-file FILE .*127\.0\.0\.1"):
            check_binding(host, None)
        check_binding(host, str(tmp_path / "keys"))


def test_58_the_command_refuses_to_be_open(larvatus, tiny_directory: Path) -> None:
    code, _, said = larvatus("serve", tiny_directory, "--host", "0.0.0.0")
    assert code == 2
    assert "--key-file" in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no key"),
        ("# none\n\n", "holds no key"),
        ("long enough to be a key\nshort\n", "line 2.*can be guessed"),
    ],
)
def test_58_a_key_file_without_good_keys_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(UsageError, match=message) as refused:
        KeyRing.read(path)
    assert "short" not in str(refused.value)  # no error quotes a key


@pytest.fixture(scope="module")
def keyless(tiny_directory: Path) -> Iterator[Running]:
    with Running([lv.load(tiny_directory)]) as running:
        yield running


def test_58_pages_of_other_sites_may_not_ask_a_server_without_keys(keyless: Running) -> None:
    body = {"texts": "the [MASK]"}
    for host in ("127.0.0.1:8311", "localhost", "[::1]:8311"):
        assert keyless.post("/v1/fill", body, Host=host).status == 200
        assert keyless.post("/v1/fill", body, Host=host, Origin=f"http://{host}").status == 200
    assert keyless.post("/v1/fill", body, Host="evil.example").error["type"] == "ForeignPage"
    for origin in ("https://evil.example", "null", "http://localhost:1"):
        assert keyless.post("/v1/fill", body, Host="localhost", Origin=origin).status == 403


# ------------------------------------------------------------------------------------------------------- logs


def secret_requests(ask) -> None:
    """Requests of every kind, good and bad, all with the secret."""
    for path in ("/v1/fill", "/v1/embed", "/v1/score", "/v1/classify", "/v1/embeddings", f"/{SECRET}"):
        for body in (
            {"texts": f"the {SECRET} [MASK]", "input": SECRET},
            {"texts": f"the {SECRET} [MASK]"},
            {"input": [SECRET]},
            {"texts": [f"das ist ein {SECRET} und kein anderes"] * 4},
            {"texts": SECRET, "model": SECRET},
            {"texts": SECRET, SECRET: 1},
            f'{{"texts": "{SECRET}", "top": NaN}}'.encode(),
            f'{{"texts": "{SECRET}'.encode(),
        ):
            ask(f"{path}?q={SECRET}", body)


def test_60_inputs_stand_in_no_log(
    keyless: Running, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("DEBUG")
    secret_requests(keyless.post)
    batcher = type(keyless.batcher)
    with pytest.MonkeyPatch.context() as patched:  # a fault that nobody foresaw, whose words are the input

        def failing(self: object, call: object) -> None:
            raise ValueError(f"cannot read {SECRET}")

        patched.setattr(batcher, "submit", failing)
        reply = keyless.post("/v1/fill", {"texts": f"the {SECRET} [MASK]"})
    assert reply.status == 500
    assert SECRET not in reply.body.decode()
    said = capfd.readouterr()
    assert "ValueError" in caplog.text
    assert SECRET not in caplog.text + said.out + said.err


def test_60_warnings_and_faults_of_threads_are_told_without_their_words(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    import threading
    import warnings

    from larvatus.interfaces.serve.responses import quiet_logs

    def fail() -> None:
        raise ValueError(SECRET)

    with quiet_logs():
        warnings.simplefilter("always", UserWarning)
        warnings.warn(SECRET, UserWarning, stacklevel=1)
        warnings.warn(SECRET, OtherLanguageWarning, stacklevel=1)
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
    said = capfd.readouterr()
    assert "UserWarning" in caplog.text
    assert "ValueError" in caplog.text
    assert SECRET not in caplog.text + said.out + said.err


class Started:
    """`larvatus serve` in a process of its own."""

    def __init__(self, directory: Path) -> None:
        self.log = directory.parent / f"serve-{time.monotonic_ns()}.txt"
        generous = ("--max-tokens", "1000000", "--timeout", "600")  # a busy machine refuses nothing either
        command = [sys.executable, "-m", "larvatus", "serve", str(directory), "--port", "0", *generous]
        with self.log.open("wb") as log:
            self.process = warm.Popen(command, stdout=log, stderr=log, env={**os.environ, "PYTHONUNBUFFERED": "1"})

    def __enter__(self):
        latest = time.monotonic() + WATCHDOG_S
        while not (port := re.search(r"http://127\.0\.0\.1:(\d+)", self.said())):
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < latest, self.said()
            time.sleep(0.05)
        self.port = int(port[1])
        return self

    def __exit__(self, *fault: object) -> None:
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    ask, get, post, meanwhile = Running.ask, Running.get, Running.post, Running.meanwhile
    metric, until = Running.metric, Running.until
