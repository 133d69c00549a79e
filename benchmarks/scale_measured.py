"""What one machine can measure for the arithmetic of many: reductions and steps of some processes, text, loader.

    measured = measure()          # a minute; benchmarks/scale_arithmetic.py calls it

Each rank is a process with one thread: `python benchmarks/scale_measured.py RANK RANKS PORT`.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from scale_simulation import FORWARD

SIZES = (1e6, 4e6, 16e6)
"""Bytes that are reduced."""
BUCKETS, BUCKET_BYTES = 4, 4e6
"""Of a step's gradients."""
COMPUTE_S = (0.005, 0.02, 0.08)
"""Of steps that are measured; a rank sleeps so long, as it would wait for a GPU."""
LOAD_S = 0.12
"""Of the last step again, with a loader that needs longer than the step."""
TURNS = 40
PROCESSES = (2, 4)


@dataclass(frozen=True)
class Measured:
    reductions: dict[int, dict[float, float]]
    """Seconds by ranks and bytes."""
    steps: dict[int, list[tuple[float, float, float]]]
    """By ranks: seconds of computing, of loading, and of the whole step."""
    build_bytes_s: float
    """Of text into shards, one core."""
    loader_tokens_s: float
    """Packed and masked, one core."""
    fsync_s: float
    """To put a small file on the disk."""


def quickest(work: Callable[[], object]) -> float:
    """Seconds of the quickest turn: others want the cores too."""
    seconds = []
    for _ in range(TURNS):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def measure() -> Measured:
    answers = {ranks: _processes(ranks) for ranks in PROCESSES}
    build, load = _text()
    return Measured(
        reductions={n: {float(size): s for size, s in told["reduce"].items()} for n, told in answers.items()},
        steps={n: [tuple(step) for step in told["steps"]] for n, told in answers.items()},
        build_bytes_s=build,
        loader_tokens_s=load,
        fsync_s=_fsync(),
    )


def _processes(ranks: int) -> dict[str, Any]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__]
    started = [
        subprocess.Popen([*command, str(rank), str(ranks), str(port)], env=environment, stdout=subprocess.PIPE)
        for rank in range(ranks)
    ]
    first, *_ = [process.communicate()[0] for process in started]
    return json.loads(first)  # type: ignore[no-any-return]


def serve(rank: int, ranks: int, port: int) -> None:
    """A rank: reductions of some sizes, then steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    reduce = {}
    for size in SIZES:
        tensor = torch.zeros(int(size) // 4)
        dist.barrier()
        reduce[size] = quickest(lambda tensor=tensor: dist.all_reduce(tensor))
    steps = [(compute, 0.0, _step(compute, 0.0)) for compute in COMPUTE_S]
    steps.append((COMPUTE_S[-1], LOAD_S, _step(COMPUTE_S[-1], LOAD_S)))
    if rank == 0:
        print(json.dumps({"reduce": reduce, "steps": steps}))
    dist.barrier()
    dist.destroy_process_group()


def _step(compute: float, load: float) -> float:
    """Seconds of a step: forward, then a bucket after the other, reduced while the next is computed."""
    buckets = [torch.zeros(int(BUCKET_BYTES) // 4) for _ in range(BUCKETS)]
    ready: queue.Queue[int] = queue.Queue(maxsize=2)

    def loading() -> None:
        for number in range(TURNS):
            time.sleep(load)
            ready.put(number)

    loader = threading.Thread(target=loading)
    ends = []
    dist.barrier()
    loader.start()
    for _ in range(TURNS):
        ready.get()
        time.sleep(compute * FORWARD)
        under_way = []
        for bucket in buckets:
            time.sleep(compute * (1 - FORWARD) / BUCKETS)
            under_way.append(dist.all_reduce(bucket, async_op=True))
        for work in under_way:
            work.wait()
        ends.append(time.perf_counter())
    loader.join()
    # the quicker half: others want the cores too
    return statistics.mean(sorted(b - a for a, b in pairwise(ends[3:]))[: TURNS // 2])


def _text() -> tuple[float, float]:
    """Bytes a second into shards, and tokens a second out of the loader, one core."""
    from larvatus.data.corpus import BuildOptions, Corpus, Loader, build_corpus
    from larvatus.data.corpus.loader import Cursor
    from larvatus.data.corpus.packing import SingleSegmentConfig
    from larvatus.data.text.embedded import embedded_documents
    from larvatus.data.text.vocabularies import WordPieceConfig, train_vocabulary
    from larvatus.models.recipes import read_recipe
    from larvatus.training.pretraining.evaluation import build_corruption

    documents = list(islice(embedded_documents("train"), 3_000))
    tokenizer = train_vocabulary((document.text for document in documents[:100]), WordPieceConfig(size=4_000))
    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time() + _children()
        summary = build_corpus(documents, tokenizer, Path(folder) / "corpus", BuildOptions(workers=1))
        build = summary.counts.text_bytes / (time.process_time() + _children() - begun)
        corpus = Corpus.open(Path(folder) / "corpus")
        recipe = read_recipe("roberta")
        corruption = build_corruption(recipe.corruption, corpus.tokenizer, 0, limit=128)
        packing = SingleSegmentConfig()
        loader = Loader(corpus, packing=packing, length=128, corruption=corruption, tokens=65_536, seed=0)
        begun, tokens = time.process_time(), 0
        for step in islice(loader.steps(Cursor()), 10):
            tokens += len(step[0].tokens.ids)
        return build, tokens / (time.process_time() - begun)


def _children() -> float:
    told = os.times()
    return told.children_user + told.children_system


def _fsync() -> float:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = Path(folder) / "part"

        def write() -> None:
            with path.open("wb") as file:
                file.write(b"0" * 100_000)
                file.flush()
                os.fsync(file.fileno())

        return quickest(write)


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:4]))
