"""A server on a port of its own, in a thread of the test: uvicorn, sockets and all.

with Running([model], queue=4) as server:
    server.post("/v1/fill", {"texts": "the [MASK] was wide"}).status        # 200
    with server.held(): …                                                   # no pass begins meanwhile
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from larvatus.inference.model import Model
from larvatus.interfaces.serve.app import build_app
from larvatus.interfaces.serve.batcher import Batcher
from larvatus.interfaces.serve.listening import listening_socket
from larvatus.interfaces.serve.middleware.stack import MiddlewareState
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.interfaces.serve.uvicorn_server import DrainingServer, draining_server
from tests.patience import WATCHDOG_S


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, str]:
        """The one shape of errors, and nothing of how the server is made."""
        assert b"Traceback" not in self.body
        assert b".py" not in self.body
        assert set(self.json) == {"error"}, self.body
        assert set(self.json["error"]) == {"type", "message"}, self.body
        error: dict[str, str] = self.json["error"]
        assert "\n" not in error["message"]
        return error


class Running:
    def __init__(self, models: Sequence[Model], *, drain_seconds: float = WATCHDOG_S, **settings: Any) -> None:
        self.settings = ServeSettings(port=0, **settings)
        self.app = build_app(models, self.settings)
        self.middleware: MiddlewareState = self.app.state.middleware
        self.server: DrainingServer = draining_server(
            self.app,
            drain=self.middleware.drain,
            drain_seconds=drain_seconds,
            connections=self.settings.connections,
        )
        self.socket = listening_socket("127.0.0.1", 0)
        self.buffer: int | None = None
        """Bytes that the system takes for a client that does not read; by default megabytes."""
        self.port: int = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],), daemon=True)

    @property
    def batcher(self) -> Batcher:
        batcher: Batcher = self.app.state.server.batcher
        return batcher

    def __enter__(self) -> Self:
        self.thread.start()
        self.until(lambda: self.server.started)
        return self

    def __exit__(self, *fault: object) -> None:
        self.server.stop()
        self.thread.join(WATCHDOG_S)
        assert not self.thread.is_alive(), "the server did not end"

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait for something that happens in another thread."""
        latest = time.monotonic() + WATCHDOG_S
        while not condition():
            assert time.monotonic() < latest, "it did not happen"
            time.sleep(0.005)

    # ---- requests

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WATCHDOG_S)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return Reply(response.status, response.read(), {k.lower(): v for k, v in response.getheaders()})
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        """`body` is JSON, or bytes as they are."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", path, raw, **{"Content_Type": "application/json", **headers})

    def connect(self) -> socket.socket:
        connection = socket.socket()
        connection.settimeout(WATCHDOG_S)
        if self.buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.buffer)
        try:
            connection.connect(("127.0.0.1", self.port))
        except OSError:
            connection.close()
            raise
        return connection

    def send(self, path: str, body: Any) -> socket.socket:
        """A request on a socket of its own, whose answer is not read here."""
        raw = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        connection = self.connect()
        connection.sendall(f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)
        return connection

    def meanwhile(self, path: str, body: Any) -> Answer:
        """Ask in a thread of its own."""
        return Answer(lambda: self.post(path, body))

    # ---- what happens inside

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The thread that runs encoders is busy: whoever asks for a pass waits."""
        begun, ended = threading.Event(), threading.Event()

        def hold() -> None:
            begun.set()
            ended.wait(WATCHDOG_S)

        holder = threading.Thread(target=lambda: self.batcher.run_alone(None, hold), daemon=True)  # type: ignore[arg-type]
        holder.start()
        assert begun.wait(WATCHDOG_S)
        try:
            yield
        finally:
            ended.set()
            holder.join(WATCHDOG_S)

    def metric(self, name: str) -> float:
        lines = self.get("/metrics").body.decode().splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " "))


class Answer:
    """A reply to come."""

    def __init__(self, ask: Callable[[], Reply]) -> None:
        self._reply: Reply | None = None

        def run() -> None:
            self._reply = ask()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    @property
    def reply(self) -> Reply:
        self._thread.join(WATCHDOG_S)
        assert self._reply is not None, "no answer came"
        return self._reply


def reply_of(connection: socket.socket) -> tuple[int, bytes]:
    """Status and rest of what comes on a raw socket, until it ends or all of the answer is there."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, response.read()
