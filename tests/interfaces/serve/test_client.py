"""The client, against a small server of the standard library that does what a test tells it to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from larvatus.core.errors import UsageError
from larvatus.interfaces.client import Client, ServerError

Answer = tuple[int, dict[str, str], bytes]


class Scripted(ThreadingHTTPServer):
    """Gives the answers of a list, then the last for ever; notes what was asked, and by how many connections."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[Answer] = []
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.connections: set[Any] = set()
        self.closes = False
        self.late = 0.0
        self.answered = threading.Event()
        """Ends the wait of an answer that is late."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def says(self, *answers: Any) -> None:
        """Dicts are answers of 200, tuples (status, headers, bytes)."""
        self.answers = [a if isinstance(a, tuple) else (200, {}, json.dumps(a).encode()) for a in answers]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Scripted

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.path, dict(self.headers), json.loads(body or b"null")))
        self.server.connections.add(self.client_address)
        self.server.answered.wait(self.server.late)
        status, headers, answer = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(answer))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)
        self.close_connection = self.server.closes

    do_GET = do_POST

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def listening() -> Iterator[Scripted]:
    server = Scripted()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def server(listening: Scripted) -> Scripted:
    listening.asked, listening.connections, listening.closes, listening.late = [], set(), False, 0.0
    listening.answered.clear()
    return listening


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client would have slept."""
    slept: list[float] = []
    monkeypatch.setattr("larvatus.interfaces.client.connections.time.sleep", slept.append)
    return slept


def refused(status: int, message: str = "no", **headers: str) -> Answer:
    return (
        status,
        {key.replace("_", "-"): value for key, value in headers.items()},
        json.dumps({"error": {"type": "kind", "message": message}}).encode(),
    )


def test_a_connection_is_kept_and_the_key_and_the_options_that_were_given_are_sent(server: Scripted) -> None:
    server.says({"results": [{"fills": []}]})
    with Client(server.address + "/", key="secret") as client:
        for _ in range(3):
            assert client.fill("a [MASK]", top=2) == {"fills": []}
        assert "secret" not in repr(client)
    path, headers, body = server.asked[0]
    assert (path, headers["Authorization"], body) == ("/v1/fill", "Bearer secret", {"texts": ["a [MASK]"], "top": 2})
    assert len(server.connections) == 1


def test_a_connection_that_the_server_closed_meanwhile_is_opened_again(server: Scripted) -> None:
    server.says({"models": []})
    server.closes = True  # without saying so, as after a restart
    with Client(server.address, retries=0) as client:
        for _ in range(3):
            assert client.models() == []
            time.sleep(0.02)
    assert len(server.connections) == 3


def test_threads_share_a_client_and_each_gets_its_answer(server: Scripted) -> None:
    server.says({"results": [{"label": "x"}]})
    results: list[Any] = []
    with Client(server.address) as client:
        threads = [threading.Thread(target=lambda: results.append(client.classify("a"))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [{"label": "x"}] * 8
    assert len(server.connections) <= 8


@pytest.mark.parametrize(("header", "slept"), [({"Retry_After": "2"}, 2.0), ({}, 1.0)], ids=["said", "not said"])
def test_a_full_server_is_asked_again_after_the_wait_that_it_asks_for(
    server: Scripted, naps: list[float], header: dict[str, str], slept: float
) -> None:
    server.says(refused(429, **header), refused(429, **header), {"models": []})
    with Client(server.address) as client:
        assert client.models() == []
    assert naps == [slept, slept]


def test_a_server_that_stays_full_or_asks_for_too_long_a_wait_is_an_error(server: Scripted, naps: list[float]) -> None:
    server.says(refused(429, "the queue is full", Retry_After="1"))
    with pytest.raises(ServerError, match="the queue is full") as raised:
        Client(server.address, retries=2).models()
    assert (naps, raised.value.status, len(server.asked)) == ([1.0, 1.0], 429, 3)
    server.says(refused(429, Retry_After="3600"))
    with pytest.raises(ServerError):
        Client(server.address, timeout=5).models()
    assert len(naps) == 2


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 500, 503])
def test_an_error_is_the_servers_line_and_is_not_sent_again(server: Scripted, status: int) -> None:
    server.says(refused(status, "texts is empty; give \x1b[31m one"))
    with pytest.raises(ServerError) as raised:
        Client(server.address).score("the river")
    assert str(raised.value) == "texts is empty; give \\x1b[31m one"
    assert (raised.value.status, raised.value.kind, len(server.asked)) == (status, "kind", 1)


def test_what_is_not_json_and_a_redirect_are_one_line(server: Scripted) -> None:
    server.says((502, {}, b"<html>\nbad gateway"))
    with pytest.raises(ServerError, match=r"answered 502 without JSON \(<html>\)"):
        Client(server.address).models()
    server.says((307, {"Location": "http://elsewhere.invalid/"}, b"{}"))
    with pytest.raises(ServerError, match="answered 307"):
        Client(server.address, key="secret").models()
    assert len(server.asked) == 2


def test_a_server_that_is_late_or_not_there_is_one_line(server: Scripted) -> None:
    server.says({"models": []})
    server.late = 10.0
    with pytest.raises(ServerError, match=r"did not answer in 0.05 seconds"):
        Client(server.address, timeout=0.05).models()
    server.answered.set()  # nobody waits for it any more
    with pytest.raises(ServerError, match="is it running"):
        Client("http://127.0.0.1:9").models()


def test_an_item_that_failed_is_left_among_several_and_raised_alone_or_among_vectors(server: Scripted) -> None:
    bad = {"error": {"type": "data", "message": "the text is empty"}}
    server.says({"results": [{"label": "x"}, bad]})
    with Client(server.address) as client:
        assert client.classify(["a", ""]) == [{"label": "x"}, bad]
        with pytest.raises(ServerError, match=r"^text 1: the text is empty"):
            server.says({"results": [bad]})
            client.embed([""])
        with pytest.raises(ServerError, match=r"^the text is empty"):
            client.classify(("", ""))


def embedded(*vectors: Any) -> dict[str, Any]:
    return {"units": [{"text": "x", "start": 0, "end": 1, "vector": vector} for vector in vectors]}


def test_vectors_are_arrays_of_the_shapes_of_the_model(server: Scripted) -> None:
    with Client(server.address) as client:
        ask: Callable[..., Any] = client.embed
        server.says({"results": [embedded([1.0, 2.0]), embedded([3.0, 4.0])]})
        assert ask(["a", "b"]).tolist() == [[1.0, 2.0], [3.0, 4.0]]
        words = ask(["a", "b"], unit="word")
        assert [each.shape for each in words] == [(1, 2), (1, 2)]
        assert words[0].dtype == np.float32
        server.says({"results": [embedded([1.0, 2.0], None)]})
        assert np.isnan(ask("a b", unit="word")[1]).all()
        layers = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]  # of one unit: [layers + 1, D]
        server.says({"results": [embedded(layers, layers)]})
        assert ask("a b", unit="word", layers="all").shape == (3, 2, 2)
        server.says({"results": [embedded(layers)]})
        assert ask("a", layers="all").tolist() == layers


def test_questions_pairs_and_words_go_out_as_the_server_reads_them(server: Scripted) -> None:
    server.says({"results": [{"text": "b"}]})
    with Client(server.address) as client:
        assert client.answer(("who?", "b is")) == {"text": "b"}
        assert client.answer([("who?", "b is")], top=2) == [{"text": "b"}]
        client.classify(("a", "b"))
        client.tag([["a", "b"]], model="tagger")
    assert [body for _, _, body in server.asked] == [
        {"questions": [{"question": "who?", "passage": "b is"}]},
        {"questions": [{"question": "who?", "passage": "b is"}], "top": 2},
        {"texts": [["a", "b"]]},
        {"texts": [["a", "b"]], "model": "tagger"},
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Client("127.0.0.1:8311"),
        lambda: Client("ftp://127.0.0.1"),
        lambda: Client("http://127.0.0.1:99999"),
        lambda: Client("http://name:password@127.0.0.1"),
        lambda: Client("http://127.0.0.1:8311", key="two\nlines"),
        lambda: Client("http://127.0.0.1:8311", timeout=0),
        lambda: Client("http://127.0.0.1:8311", retries=-1),
        lambda: Client("http://127.0.0.1:9").fill("\ud800"),
        lambda: Client("http://127.0.0.1:9").fill([b"bytes"]),  # type: ignore[list-item]
        lambda: Client("http://127.0.0.1:9").embed("a", layers=[float("nan")]),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_sent(wrong: Callable[[], Any]) -> None:
    with pytest.raises(UsageError):
        wrong()
