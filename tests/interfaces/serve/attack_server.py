"""Hostile requests against a studio, which is a server, too, on 127.0.0.1: outcomes by class.

    python -m tests.interfaces.serve.attack_server --count 500 [--seed 0] [--model DIR]

Requests are generated from a seed: shapes, sizes, numbers, hosts, headers, paths, bytes that are no HTTP, clients that
send slowly or go. Without --model it attacks the packaged model. What must never occur ends with 1: a 5xx other than
503, an answer that does not come (`hang`), a path of this machine in an error (`leak`), a server that does not answer
after it.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

from larvatus.inference.model import Model
from larvatus.interfaces.serve.listening import listening_socket
from larvatus.interfaces.serve.operations import OPERATIONS
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.interfaces.serve.uvicorn_server import draining_server
from larvatus.interfaces.studio.app import build_studio
from larvatus.interfaces.studio.http import TOKEN
from larvatus.interfaces.studio.settings import Folders
from tests.patience import WATCHDOG_S

WAIT_S = 60.0
"""For an answer: more than a request may take, body and work together."""
SETTINGS = {"max_body": 200_000, "max_items": 32, "max_tokens": 4_096, "max_numbers": 100_000, "timeout": 10.0}
STUDIO = ("learn", "learn/records", "learn/check", "learn/start", "learn/stop", "learn/resume", "runs", "runs/records")
STUDIO += ("card", "paths", "nowhere")
TEXTS = (
    "the [MASK] was wide",
    "the *river* bank",
    "a" * 5_000,
    "the river " * 500,
    "",
    " ",
    "\0",
    "\u202e\ufeff",
    "é" * 99,
)
NUMBERS = (0, -1, 1, 2, 10**9, 10**30, 1e-300, 1e308, 0.5, True)
PLACES = ("/etc/passwd", "../../etc/passwd", "runs/x", "x" * 300, "http://127.0.0.1:1/", "file:///etc/passwd", "..%2f")
HOSTS = (
    "127.0.0.1",
    "localhost",
    "[::1]",
    "evil",
    "ai",
    "evil.example",
    "xn--80ak6aa92e",
    "",
    "10.0.0.1",
    "a@b",
    "a,b",
)
LEAKS = (tempfile.gettempdir(), str(Path.home()), str(Path.cwd()), sys.prefix, "larvatus-learn-", "Traceback", ".py")


@dataclass(frozen=True)
class Attack:
    kind: str
    raw: bytes
    slow: float = 0.0
    """Seconds between the halves of what is sent."""
    goes: bool = False
    """Whether the client goes without reading."""


def attacks(seed: int, count: int, token: str) -> Iterator[Attack]:
    """The same for the same seed."""
    draw = random.Random(seed)
    kinds: Sequence[Callable[[random.Random, str], Attack]] = (_body, _body, _shape, _studio, _host, _bytes, _headers)
    for _ in range(count):
        attack = draw.choice(kinds)(draw, token)
        fate = draw.random()
        if fate < 0.03:
            attack = Attack(f"slow {attack.kind}", attack.raw, slow=draw.random())
        elif fate < 0.06:
            attack = Attack(f"gone {attack.kind}", attack.raw[: draw.randrange(len(attack.raw) + 1)], goes=True)
        yield attack


def _value(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.randrange(8 if depth < 3 else 5)
    if kind < 2:
        return draw.choice(TEXTS)
    if kind == 2:
        return draw.choice(NUMBERS)
    if kind == 3:
        return draw.choice(PLACES)
    if kind == 4:
        return None
    if kind == 5:
        return {draw.choice(("text", "texts", "model", "x")): _value(draw, depth + 1) for _ in range(draw.randrange(3))}
    return [_value(draw, depth + 1) for _ in range(draw.choice((0, 1, 2, 40)))]


def _post(path: str, body: bytes, **headers: str) -> bytes:
    given = {"Host": "127.0.0.1", "Content-Type": "application/json", "Connection": "close", **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in given.items())
    head = f"POST {path} HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
    return head.encode("utf-8", "surrogateescape") + body


def _body(draw: random.Random, token: str) -> Attack:
    """An example of an operation with one or two fields exchanged."""
    operation = draw.choice(list(OPERATIONS.values()))
    body: dict[str, Any] = dict(draw.choice(list(operation.examples.values())))
    fields = [*operation.Body.__struct_fields__, "unknown"]
    for _ in range(draw.choice((0, 1, 1, 2))):
        body[draw.choice(fields)] = _value(draw)
    return Attack("body", _post(f"/v1/{operation.name}", json.dumps(body).encode()))


def _shape(draw: random.Random, token: str) -> Attack:
    """Bytes that are no body of any operation."""
    body = draw.choice(
        (
            b"",
            b"[" * draw.choice((10, 40, 50_000)),
            b'{"texts": NaN}',
            b'{"texts": "\\ud800"}',
            b'{"texts": "' + b"\xff" * 9 + b'"}',
            b'{"texts": ' + b"9" * draw.choice((10, 400, 5_000)) + b"}",
            b'{"texts": "a", "texts": "b"}',
            json.dumps(_value(draw)).encode(),
            draw.randbytes(draw.randrange(200)),
            b" " * draw.choice((1_000, 199_999, 300_000)),
        )
    )
    return Attack("shape", _post(f"/v1/{draw.choice(list(OPERATIONS))}", body))


def _studio(draw: random.Random, token: str) -> Attack:
    path = f"/studio/api/{draw.choice(STUDIO)}"
    if draw.random() < 0.5:
        names = draw.choice(("name", "model", "after", "stamp"))
        value = draw.choice((*PLACES, *map(str, NUMBERS), "%00", "%ff", "9" * 400))
        head = f"GET {path}?{names}={value} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        return Attack("studio get", head.encode())
    texts = ("", "{", "[1]", "text,label\n", "the O\nriver X Y\n", '{"data": 3}', "a,b\nc\n", "\0", '{"text": 3}\n')
    ending = draw.choice((".csv", ".tsv", ".json", ".jsonl", ".conll", ".conllu", ".txt", ".exe", ""))
    body = {"name": draw.choice(("x", *PLACES)) + ending, "text": draw.choice(texts), "task": _value(draw)}
    if draw.random() < 0.6:
        body["task"] = draw.choice((None, "classify", "tag", "spans", "answer", "choose"))
    raw = json.dumps(body if draw.random() < 0.8 else _value(draw)).encode()
    return Attack("studio post", _post(path, raw, **{TOKEN: token if draw.random() < 0.9 else "wrong"}))


def _host(draw: random.Random, token: str) -> Attack:
    lines = [f"Host: {draw.choice(HOSTS)}" for _ in range(draw.choice((0, 1, 1, 1, 2)))]
    if draw.random() < 0.3:
        lines.append(f"Origin: http://{draw.choice(HOSTS)}")
    path = draw.choice(("/v1/models", "/studio/", "/healthz", "/metrics", "/docs", "http://evil/v1/models", "*"))
    version = draw.choice(("1.1", "1.1", "1.0"))
    head = "\r\n".join([f"GET {path} HTTP/{version}", *lines, "Connection: close", "", ""])
    return Attack("host", head.encode())


def _bytes(draw: random.Random, token: str) -> Attack:
    """What is no HTTP, or hardly."""
    raw = draw.choice(
        (
            draw.randbytes(draw.randrange(1, 300)),
            b"\r\n" * 50,
            b"GET / HTTP/9.9\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET /" + b"a" * draw.choice((10, 9_000, 70_000)) + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
            b"POST /v1/fill HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
            b"POST /v1/fill HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"GET /v1/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
            b"GET /studio/../../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
            b"GET /studio/%00 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        )
    )
    return Attack("bytes", raw)


def _headers(draw: random.Random, token: str) -> Attack:
    name = draw.choice(("Content-Type", "Content-Encoding", "Authorization", "Expect", "Upgrade", "Range", "X"))
    value = draw.choice(("", "gzip", "multipart/form-data", "websocket", "100-continue", "bytes=0-", "x" * 70_000, "é"))
    body = json.dumps({"texts": "the [MASK]"}).encode()
    return Attack("headers", _post(draw.choice(("/v1/fill", "/v1/embed", "/nowhere")), body, **{name: value}))


# ----------------------------------------------------------------------------------------------- outcomes


def outcome(attack: Attack, port: int) -> tuple[str, str]:
    """Its class, and what was answered."""
    try:
        with socket.create_connection(("127.0.0.1", port), WAIT_S) as connection:
            half = len(attack.raw) // 2 if attack.slow else 0
            connection.sendall(attack.raw[:half])
            threading.Event().wait(attack.slow)
            connection.sendall(attack.raw[half:])
            if attack.goes:
                return "gone", ""
            with HTTPResponse(connection) as response:
                response.begin()
                return classified(response.status, response.read().decode("utf-8", "replace"))
    except TimeoutError:
        return "hang", ""
    except OSError:  # RemoteDisconnected among them
        return "cut", ""
    except HTTPException as fault:
        return "garbage", repr(fault)


def classified(status: int, body: str) -> tuple[str, str]:
    if status >= 400 and any(len(place) > 1 and place in body for place in LEAKS):
        return "leak", body
    return "503" if status == 503 else f"{status // 100}xx", body


WRONG = ("5xx", "hang", "leak", "garbage", "dead")


@contextmanager
def running(models: Sequence[Model], runs: Path) -> Iterator[tuple[int, str]]:
    """A studio around these models: its port and its token."""
    settings = ServeSettings(port=0, **SETTINGS)  # type: ignore[arg-type]
    app = build_studio(models, settings, Folders(runs=runs), device="cpu")
    server = draining_server(app, drain=app.state.middleware.drain, drain_seconds=5)
    with listening_socket("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield listening.getsockname()[1], app.state.studio_token
        finally:
            server.stop()
            thread.join(WATCHDOG_S)


def attack_all(models: Sequence[Model], runs: Path, *, seed: int, count: int) -> tuple[Counter[str], list[str]]:
    """Counts by class, and what was wrong."""
    counts, wrong = Counter[str](), list[str]()
    with running(models, runs) as (port, token), ThreadPoolExecutor(8) as pool:
        every = list(attacks(seed, count, token))
        for attack, (kind, said) in zip(every, pool.map(lambda each: outcome(each, port), every), strict=True):
            counts[kind] += 1
            if kind in WRONG:
                wrong.append(f"{kind} {attack.kind}: {attack.raw[:300]!r} → {said[:600]!r}")
        plain = Attack("plain", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        if outcome(plain, port)[0] != "2xx":
            counts["dead"] += 1
            wrong.append("dead: the server does not answer any more")
    return counts, wrong


def main() -> int:
    from larvatus import load
    from larvatus.models.bundle.model_names import model_or_packaged

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as runs:
        model = load(given.model or model_or_packaged(), device="cpu")
        counts, wrong = attack_all([model], Path(runs), seed=given.seed, count=given.count)
    print(
        f"{given.count:,} attacks, seed {given.seed}:", ", ".join(f"{kind} {n}" for kind, n in sorted(counts.items()))
    )
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
