"""Exact and approximate search of N random unit vectors: build time, memory, p50 latency, beside NumPy and usearch.

    python benchmarks/search_speed.py --vectors 1000000 --size 384

Vectors lie on the disk and are mapped, as in an index; "NumPy in memory" is `x @ q` over float32 and `argpartition`,
"usearch alone" its own exact search, or its HNSW index with the same settings. Ratios are to NumPy in memory, measured
in the same run. Recall is of the 10 nearest by NumPy; random vectors are the hardest case for a graph and for bits.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from larvatus.core.tables import Table
from larvatus.inference.search.exact import nearest_vectors
from larvatus.inference.search.graph import VectorGraph, write_graph
from larvatus.inference.search.npy import write_header
from larvatus.inference.search.quantised import StoredVectors

TOP = 10
FORMATS = {
    "float32": ("float32",),
    "float16": ("float16",),
    "int8": ("int8",),
    "int8, float16": ("int8", "float16"),
    "binary, int8": ("binary", "int8"),
}


def random_vectors(count: int, size: int, seed: int) -> np.ndarray:
    """Unit vectors around 256 centres, so that neighbours exist."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(256, size)).astype(np.float32)
    x = centres[random.integers(0, 256, count)] + random.normal(size=(count, size)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def stored_in(folder: Path, x: np.ndarray, kinds: tuple[str, ...]) -> StoredVectors:
    """The vectors in files, mapped again."""
    size = x.shape[1]
    arrays = {}
    for name, (dtype, tail) in StoredVectors.shapes(kinds, size).items():  # type: ignore[arg-type]
        with (folder / f"{name}.npy").open("wb") as file:
            write_header(file, dtype, (len(x), *tail))
            for low in range(0, len(x), 65_536):
                file.write(StoredVectors.encode(x[low : low + 65_536], kinds)[name].tobytes())  # type: ignore[arg-type]
        arrays[name] = np.load(folder / f"{name}.npy", mmap_mode="c")
    return StoredVectors(arrays, kinds, size)  # type: ignore[arg-type]


def median_ms(search: Callable[[np.ndarray], object], queries: np.ndarray) -> float:
    """Median milliseconds of one query; the first is not counted."""
    search(queries[0])
    times = []
    for query in queries:
        begun = time.perf_counter()
        search(query)
        times.append(time.perf_counter() - begun)
    return 1000 * float(np.median(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=384)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--graph", action=argparse.BooleanOptionalAction, default=True)
    asked = parser.parse_args()
    x, queries = random_vectors(asked.vectors, asked.size, 1), random_vectors(asked.queries, asked.size, 2)
    gold = [set(np.argsort(-(x @ query))[:TOP].tolist()) for query in queries]
    rows: list[tuple[str, float, float, float, float]] = []

    def add(name: str, built: float, megabytes: float, search: Callable[[np.ndarray], np.ndarray]) -> None:
        latency = median_ms(search, queries)
        hits = [len(set(search(query).tolist()) & best) for query, best in zip(queries, gold, strict=True)]
        rows.append((name, built, megabytes, latency, sum(hits) / (TOP * len(queries))))

    def brute(query: np.ndarray) -> np.ndarray:
        return np.argpartition(-(x @ query), TOP)[:TOP]

    add("NumPy in memory", 0.0, x.nbytes / 2**20, brute)
    with tempfile.TemporaryDirectory() as given:
        folder = Path(given)
        for name, kinds in FORMATS.items():
            begun = time.perf_counter()
            stored = stored_in(folder, x, kinds)
            built = time.perf_counter() - begun
            megabytes = sum(array.nbytes for array in stored.arrays.values()) / 2**20

            def exact(query: np.ndarray, stored: StoredVectors = stored) -> np.ndarray:
                return nearest_vectors(stored, query[None], top=TOP, candidates=100)[0].rows

            add(f"exact, {name}", built, megabytes, exact)
        add_usearch(add, folder, x, graph=asked.graph)
    base = rows[0][3]
    shown = [
        (name, f"{built:.1f}", f"{size:,.0f}", f"{latency:.2f}", f"{latency / base:.2f}", f"{recall:.3f}")
        for name, built, size, latency, recall in rows
    ]
    title = f"{asked.vectors:,} vectors of {asked.size} dimensions, {asked.queries} queries, top {TOP}"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    note = f"most memory of this process: {peak:,.0f} MiB, of which {x.nbytes / 2**20:,.0f} are the vectors in float32"
    print(Table(("search", "build s", "MiB", "p50 ms", "× NumPy", "recall@10"), shown, title=title, notes=[note]))


def add_usearch(add: Callable[..., None], folder: Path, x: np.ndarray, *, graph: bool) -> None:
    """The library by itself, and our use of it, where it is installed."""
    try:
        from usearch.index import Index, MetricKind, search
    except ImportError:
        print("usearch is not installed: pip install 'larvatus[index]'")
        return
    half = x.astype(np.float16)
    add(
        "usearch alone, exact float16",
        0.0,
        half.nbytes / 2**20,
        lambda query: np.asarray(search(half, query.astype(np.float16), TOP, MetricKind.Cos, exact=True).keys),
    )
    if not graph:
        return
    begun = time.perf_counter()
    alone = Index(ndim=x.shape[1], metric=MetricKind.Cos, dtype="f16", connectivity=16, expansion_add=128)
    alone.add(np.arange(len(x)), x)
    built = time.perf_counter() - begun
    add(
        "usearch alone, HNSW",
        built,
        alone.memory_usage / 2**20,
        lambda query: np.asarray(alone.search(query, TOP).keys),
    )
    begun = time.perf_counter()
    stored = stored_in(folder, x, ("float16",))
    write_graph(folder, stored)
    built = time.perf_counter() - begun
    made = VectorGraph.open(folder, stored)
    size = (folder / "graph.usearch").stat().st_size / 2**20
    add("HNSW, float16", built, size, lambda query: made.search(query[None], top=TOP, candidates=100)[0].rows)


if __name__ == "__main__":
    main()
