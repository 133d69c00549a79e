"""Rows 47 to 51, 54, 59 and 62 of the list of faults: bad requests, against a server that runs.

The list of rows and tests is in docs/serve_operations.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import larvatus as lv
from larvatus.interfaces.serve.operations import OPERATIONS
from tests.interfaces.serve.running import Running, reply_of
from tests.patience import watchdog

LIMITS = {"max_body": 20_000, "max_items": 8, "max_tokens": 200, "max_top": 10, "timeout": 10.0}


@pytest.fixture(scope="module")
def server(tiny_directory: Path) -> Iterator[Running]:
    with Running([lv.load(tiny_directory)], **LIMITS) as running:
        yield running


def refused(server: Running, path: str, body: Any, status: int) -> str:
    """The line that a body is refused with, before the encoder has read anything."""
    before = server.batcher.counts.passes
    reply = server.post(path, body)
    assert reply.status == status, reply.body
    assert server.batcher.counts.passes == before
    return reply.error["message"]


@pytest.mark.parametrize("path", ["/v1/fill", "/v1/embed", "/v1/score", "/v1/embeddings"])
@pytest.mark.parametrize("nothing", ["", "  \n", [], [""], ["", " "]])
def test_47_nothing_to_read_is_400(server: Running, path: str, nothing: Any) -> None:
    field = "input" if path.endswith("embeddings") else "texts"
    assert refused(server, path, {field: nothing}, 400)


def test_47_an_empty_item_fails_alone(server: Running) -> None:
    results = server.post("/v1/embed", {"texts": ["the river", ""]}).json["results"]
    assert "units" in results[0]
    assert set(results[1]["error"]) == {"type", "message"}


def test_48_more_tokens_than_allowed_are_422_and_nothing_is_cut(server: Running) -> None:
    assert "--max-tokens" in refused(server, "/v1/embed", {"texts": "the river " * 200}, 422)
    vectors = server.post("/v1/embed", {"texts": "the river " * 60, "unit": "word"}).json["results"][0]
    assert len(vectors["units"]) == 120  # in windows of 32 tokens, to the end
    assert vectors["coverage"] == {"tokens": 120, "read": 120, "windows": vectors["windows"]}
    assert vectors["windows"] > 1


def test_48_what_must_be_read_at_once_is_refused_where_it_is_too_long(server: Running) -> None:
    assert refused(server, "/v1/attention", {"text": "the river " * 40}, 422)


def test_49_a_body_over_the_limit_is_413_before_it_is_sent(server: Running) -> None:
    before = server.batcher.counts.passes
    with server.connect() as connection:
        head = "POST /v1/fill HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 99999999999\r\n\r\n{{".encode())
        status, body = reply_of(connection)  # none of the 100 GB came
    assert status == 413
    assert "--max-body" in json.loads(body)["error"]["message"]
    assert server.batcher.counts.passes == before


def test_49_a_chunked_body_over_the_limit_is_413_while_it_is_sent(server: Running) -> None:
    with server.connect() as connection:
        head = "POST /v1/fill HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        for _ in range(3):  # 24,000 bytes of a body that would go on
            connection.sendall(b"1f40\r\n" + b" " * 8_000 + b"\r\n")
        assert reply_of(connection)[0] == 413


def test_49_a_client_that_sends_all_before_it_reads_still_gets_its_413(server: Running) -> None:
    assert server.post("/v1/fill", b" " * 2_000_000).status == 413


def test_49_more_items_than_allowed_are_422_before_work(server: Running) -> None:
    assert "--max-items" in refused(server, "/v1/embed", {"texts": ["the river"] * 9}, 422)


@pytest.mark.parametrize("top", [11, 10**9, 10**30])
def test_50_top_is_bounded(server: Running, top: int) -> None:
    refused(server, "/v1/fill", {"texts": "the [MASK]", "top": top}, 422)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"texts": ["the river"], "top": NaN}',
        b'{"texts": ["the river"], "top": Infinity}',
        b'{"texts": ["the river"]} trailing',
        b'{"texts": ["\xff\xfe"]}',
        b'{"texts": ["\xed\xa0\x80"]}',
        b'{"texts": ["\\ud800"]}',
        b"[" * 33 + b"]" * 33,
        b'{"texts": ' + b"[" * 40 + b"]" * 40 + b"}",
        b"[" * 9_000,
        b'{"a":' * 3_000 + b"1" + b"}" * 3_000,
        "{'texts': ['the river']}".encode("utf-16"),
    ],
    ids=repr,
)
def test_51_what_is_no_json_is_400(server: Running, body: bytes) -> None:
    refused(server, "/v1/fill", body, 400)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"3",
        b'"the river"',
        b"null",
        b"{}",
        b'{"texts": 3}',
        b'{"texts": null}',
        b'{"texts": {"a": "the river"}}',
        b'{"texts": [3]}',
        b'{"texts": [[["the river"]]]}',
        b'{"texts": "the [MASK]", "top": "3"}',
        b'{"texts": "the [MASK]", "top": 1.5}',
        b'{"texts": "the [MASK]", "top": true}',
        b'{"texts": "the [MASK]", "top": -1}',
        b'{"texts": "the [MASK]", "top": 0}',
        b'{"texts": "the [MASK]", "top": 1e999}',
        b'{"texts": "the [MASK]", "top": ' + b"9" * 5_000 + b"}",
        b'{"texts": "the [MASK]", "model": 3}',
        b'{"texts": "the [MASK]", "tpo": 3}',
    ],
    ids=repr,
)
def test_51_wrong_types_are_422(server: Running, body: bytes) -> None:
    refused(server, "/v1/fill", body, 422)


@pytest.mark.parametrize("name", OPERATIONS)
def test_51_no_operation_fails_at_odd_texts(server: Running, name: str) -> None:
    field = OPERATIONS[name].texts_field
    for odd in ("\x00", "\u202e\u200b", "🦉" * 20, "a" * 500, "[MASK]" * 40, "*", "**", "[CLS] [SEP]", "\ufffe"):
        reply = server.post(f"/v1/{name}", {field: [odd]})
        assert reply.status < 500, (odd, reply.body)
        if reply.status != 200:
            assert reply.error


@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "text/plain"])
def test_54_forms_are_refused_by_their_type_before_they_are_read(server: Running, kind: str) -> None:
    with server.connect() as connection:
        head = f"POST /v1/fill HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
        connection.sendall(f"{head}Content-Length: 19000\r\n\r\n".encode())
        status, body = reply_of(connection)
    assert status == 415
    assert "application/json" in json.loads(body)["error"]["message"]


def test_54_a_flood_of_multipart_is_neither_parsed_nor_waited_for(server: Running) -> None:
    with server.connect() as connection:
        head = "POST /v1/fill HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=x\r\n"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        part = b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n" * 50
        connection.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        assert reply_of(connection)[0] == 415
        with watchdog(), pytest.raises((BrokenPipeError, ConnectionResetError)):  # the connection ends
            while True:
                connection.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
    assert not {"multipart", "python_multipart"} & sys.modules.keys()


NAMES = ("/etc/passwd", "../tiny", "https://example.com/model", "file:///etc/passwd", "bert-base-uncased", "", ".")
_opened: list[str] | None = None


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event in ("open", "socket.connect", "os.listdir", "import", "subprocess.Popen"):
        _opened.append(f"{event} {arguments[0]}")


def test_59_no_request_loads_a_model_or_an_address(server: Running) -> None:
    """Whatever is named, nothing is opened, imported, started or connected to but by the test itself."""
    global _opened
    server.post("/v1/fill", {"texts": "the [MASK]"})  # what is imported at the first request
    sys.addaudithook(_hear)
    connections = [server.connect() for _ in NAMES]
    for name, connection in zip(NAMES, connections, strict=True):
        raw = json.dumps({"texts": "the [MASK]", "model": name}).encode()
        head = "POST /v1/fill HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        _opened = []
        connection.sendall(f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)
        answer = connection.recv(65_536)
        heard, _opened = _opened, None
        assert b" 404 " in answer.split(b"\r\n")[0], (name, answer)
        assert not heard, (name, heard)
        connection.close()


def test_59_options_name_no_files(server: Running) -> None:
    for field in ("standardise", "layers", "pool", "unit"):
        assert refused(server, "/v1/embed", {"texts": "the river", field: "/etc/passwd"}, 422)


def test_62_a_text_gets_the_same_numbers_alone_and_in_any_company(server: Running) -> None:
    text = "the river bank was wide and deep"
    alone = server.post("/v1/embed", {"texts": text}).json["results"][0]["units"][0]["vector"]
    blank = server.post("/v1/fill", {"texts": "the [MASK] was wide"}).json["results"][0]
    with server.held():  # so that all are read by the same passes
        others = [server.meanwhile("/v1/embed", {"texts": ["run " * n, text]}) for n in range(1, 16)]
        fills = [server.meanwhile("/v1/fill", {"texts": ["the [MASK] was wide"]}) for _ in range(4)]
        server.until(lambda: server.batcher.requests == 19)
    for other in others:
        vector = other.reply.json["results"][1]["units"][0]["vector"]
        np.testing.assert_allclose(vector, alone, rtol=1e-5, atol=1e-6)
    for fill in fills:
        for given, expected in zip(fill.reply.json["results"][0]["fills"], blank["fills"], strict=True):
            assert given["token"] == expected["token"]
            assert given["probability"] == pytest.approx(expected["probability"], rel=1e-5)
