"""Search over many vectors: build time, memory, latency and recall, next to NumPy, `faiss` and `usearch` alone.

    python benchmarks/search_speed.py --vectors 1000000 --size 384

Every configuration builds its files in one process and searches them in another, one after the other. The vectors are
made up from a seed: unit vectors around 1,024 centres, which differ from their centre mostly in 32 directions that all
share, as vectors of texts do. Larvatus's files are those of an index (`inference/search/`), mapped from the disk. All
graphs have the same settings: 16 links, 128 vectors considered when one is added, 100 when one is searched.

Builds use all cores. Queries come one at a time and use one thread. On a busy machine the clock depends on what else
runs, so processor time is shown too, and ratios are of processor time. Memory is the largest resident set of a process
less that after its imports. Mapped files count in it, though the system takes them back when memory is short.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from larvatus.core.arrays import Floats, Integers
from larvatus.core.tables import Table
from larvatus.inference.search.nearest import BREADTH, LINKS, VectorGraph, nearest_vectors, write_graph
from larvatus.inference.search.storage import Kind, StoredVectors, write_header

TOP, CANDIDATES = 10, 100
BLOCK = 65_536
CENTRES, DIRECTIONS = 1_024, 32

Search = Callable[[Floats], Any]
"""A query [D] → the rows of its nearest vectors."""


@dataclass(frozen=True)
class Vectors:
    """Made-up unit vectors in a file of float32, read in blocks."""

    path: Path
    count: int
    size: int

    def write(self, seed: int) -> None:
        shared = np.random.default_rng(0)
        centres_CD = shared.normal(size=(CENTRES, self.size)).astype(np.float32)
        directions_ED = shared.normal(size=(DIRECTIONS, self.size)).astype(np.float32)
        with self.path.open("wb") as file:
            for low in range(0, self.count, BLOCK):
                random = np.random.default_rng([seed, low])
                rows = min(BLOCK, self.count - low)
                x_BD = centres_CD[random.integers(0, CENTRES, rows)]
                x_BD += random.normal(size=(rows, DIRECTIONS)).astype(np.float32) @ directions_ED * DIRECTIONS**-0.5
                x_BD += 0.3 * random.standard_normal(size=(rows, self.size), dtype=np.float32)
                file.write((x_BD / np.linalg.norm(x_BD, axis=1, keepdims=True)).tobytes())

    def blocks(self) -> Iterator[tuple[int, Floats]]:
        with self.path.open("rb") as file:
            for low in range(0, self.count, BLOCK):
                rows = min(BLOCK, self.count - low)
                yield low, np.fromfile(file, np.float32, rows * self.size).reshape(rows, self.size)

    def all(self) -> Floats:
        return np.fromfile(self.path, np.float32).reshape(self.count, self.size)

    def nearest(self, queries_QD: Floats) -> list[set[int]]:
        """The rows nearest to each query, by a matrix product and a sort."""
        best: list[list[tuple[float, int]]] = [[] for _ in queries_QD]
        for low, x_BD in self.blocks():
            for number, scores_B in enumerate(queries_QD @ x_BD.T):
                rows = np.argsort(-scores_B)[:TOP]
                best[number] = sorted(best[number] + [(-float(scores_B[row]), low + int(row)) for row in rows])[:TOP]
        return [{row for _, row in rows} for rows in best]


@dataclass(frozen=True)
class Configuration:
    """A way to store and search vectors."""

    build: Callable[[Path, Vectors], None]
    open: Callable[[Path, Vectors], Search]
    package: str = "numpy"


def write_stored(folder: Path, vectors: Vectors, kinds: tuple[Kind, ...]) -> StoredVectors:
    """The vectors in the files of an index."""
    with ExitStack() as stack:
        files = {}
        for name, (dtype, tail) in StoredVectors.shapes(kinds, vectors.size).items():
            files[name] = stack.enter_context((folder / f"{name}.npy").open("wb"))
            write_header(files[name], dtype, (vectors.count, *tail))
        for _, x_BD in vectors.blocks():
            for name, array in StoredVectors.encode(x_BD, kinds).items():
                files[name].write(array.tobytes())
    return open_stored(folder, vectors, kinds)


def open_stored(folder: Path, vectors: Vectors, kinds: tuple[Kind, ...]) -> StoredVectors:
    names = StoredVectors.shapes(kinds, vectors.size)
    return StoredVectors({name: np.load(folder / f"{name}.npy", mmap_mode="c") for name in names}, kinds, vectors.size)


def exact(*kinds: Kind) -> Configuration:
    def opened(folder: Path, vectors: Vectors) -> Search:
        stored = open_stored(folder, vectors, kinds)
        return lambda query: nearest_vectors(stored, query[None], top=TOP, candidates=CANDIDATES)[0].rows

    return Configuration(lambda folder, vectors: void(write_stored(folder, vectors, kinds)), opened)


def graph(kind: Kind) -> Configuration:
    def opened(folder: Path, vectors: Vectors) -> Search:
        made = VectorGraph.open(folder, open_stored(folder, vectors, (kind,)))
        return lambda query: made.search(query[None], top=TOP, candidates=CANDIDATES)[0].rows

    return Configuration(
        lambda folder, vectors: write_graph(folder, write_stored(folder, vectors, (kind,))), opened, "usearch"
    )


def void(_: object) -> None:
    """For lambdas that return nothing."""


def numpy_in_memory(_: Path, vectors: Vectors) -> Search:
    x_ND = vectors.all()
    return lambda query: np.argpartition(-(x_ND @ query), TOP)[:TOP]


def usearch_exact(folder: Path, _: Vectors) -> Search:
    from usearch.index import MetricKind, search

    half_ND = np.load(folder / "half.npy")
    return lambda query: search(half_ND, query.astype(np.float16), TOP, MetricKind.IP, exact=True, threads=1).keys


def usearch_half(folder: Path, vectors: Vectors) -> None:
    with (folder / "half.npy").open("wb") as file:
        write_header(file, np.dtype(np.float16), (vectors.count, vectors.size))
        for _, x_BD in vectors.blocks():
            file.write(x_BD.astype(np.float16).tobytes())


def usearch_empty(size: int) -> Any:
    from usearch.index import Index, MetricKind

    settings = {"connectivity": LINKS, "expansion_add": BREADTH, "expansion_search": CANDIDATES}
    return Index(ndim=size, metric=MetricKind.Cos, dtype="f16", **settings)


def usearch_graph(folder: Path, vectors: Vectors) -> None:
    index = usearch_empty(vectors.size)
    for low, x_BD in vectors.blocks():
        index.add(np.arange(low, low + len(x_BD)), x_BD)
    index.save(os.fspath(folder / "graph"))


def usearch_opened(folder: Path, vectors: Vectors) -> Search:
    index = usearch_empty(vectors.size)
    index.load(os.fspath(folder / "graph"))
    return lambda query: index.search(query, TOP, threads=1).keys


def faiss_alone(*, flat: bool) -> Configuration:
    def build(folder: Path, vectors: Vectors) -> None:
        import faiss

        faiss.omp_set_num_threads(os.cpu_count())
        if flat:
            index = faiss.IndexFlatIP(vectors.size)
        else:
            index = faiss.IndexHNSWFlat(vectors.size, LINKS, faiss.METRIC_INNER_PRODUCT)
            index.hnsw.efConstruction = BREADTH
        for _, x_BD in vectors.blocks():
            index.add(x_BD)
        faiss.write_index(index, os.fspath(folder / "index"))

    def opened(folder: Path, _: Vectors) -> Search:
        import faiss

        faiss.omp_set_num_threads(1)
        index = faiss.read_index(os.fspath(folder / "index"))
        if not flat:
            index.hnsw.efSearch = CANDIDATES
        return lambda query: index.search(query[None], TOP)[1][0]

    return Configuration(build, opened, "faiss")


CONFIGURATIONS = {
    "NumPy, float32 in memory": Configuration(lambda folder, vectors: None, numpy_in_memory),
    "faiss IndexFlatIP": faiss_alone(flat=True),
    "usearch, exact float16": Configuration(usearch_half, usearch_exact, "usearch"),
    "Larvatus, float32": exact("float32"),
    "Larvatus, float16": exact("float16"),
    "Larvatus, int8": exact("int8"),
    "Larvatus, int8, then float16": exact("int8", "float16"),
    "Larvatus, binary, then int8": exact("binary", "int8"),
    "Larvatus, HNSW float16": graph("float16"),
    "usearch, HNSW float16": Configuration(usearch_graph, usearch_opened, "usearch"),
    "faiss IndexHNSWFlat": faiss_alone(flat=False),
}
"""In one process each; the first is what the others are compared with."""


@dataclass(frozen=True)
class Measured:
    """Seconds by the clock and of processor time, and the largest resident set in MiB."""

    wall: float
    processor: float
    memory: float
    recall: float = 1.0


def resident(field: str) -> float:
    """MiB of this process: VmRSS now, VmHWM the most so far (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def measure_build(name: str, folder: Path, vectors: Vectors) -> Measured:
    before, begun, used = resident("VmRSS"), time.perf_counter(), time.process_time()
    CONFIGURATIONS[name].build(folder, vectors)
    wall, processor = time.perf_counter() - begun, time.process_time() - used
    return Measured(wall, processor, resident("VmHWM") - before)


def measure_search(name: str, folder: Path, vectors: Vectors, queries_QD: Floats, gold: list[set[int]]) -> Measured:
    """Median seconds of a query, and its mean processor time; the first query is not counted."""
    before = resident("VmRSS")
    search = CONFIGURATIONS[name].open(folder, vectors)
    search(queries_QD[0])
    walls, results = [], []
    used = time.process_time()
    for query_D in queries_QD:
        begun = time.perf_counter()
        results.append(search(query_D))
        walls.append(time.perf_counter() - begun)
    processor = (time.process_time() - used) / len(queries_QD)
    hits = sum(len(rows(given) & best) for given, best in zip(results, gold, strict=True))
    return Measured(float(np.median(walls)), processor, resident("VmHWM") - before, hits / (TOP * len(queries_QD)))


def rows(given: Integers) -> set[int]:
    return set(np.asarray(given).tolist())


def in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own, a copy of one that has only imported what all need."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("forkserver")) as pool:
        return pool.submit(function, *arguments).result()


def processor_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), platform.processor())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=384)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--searches", choices=("all", "exact", "graphs"), default="all")
    chosen = parser.parse_args()
    os.environ.update({f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")})
    multiprocessing.set_forkserver_preload(["larvatus.inference.search.nearest", "larvatus.core.tables"])
    measured: dict[str, tuple[Measured, Measured]] = {}
    notes = []
    with tempfile.TemporaryDirectory() as given:
        vectors = Vectors(Path(given) / "vectors", chosen.vectors, chosen.size)
        queries = Vectors(Path(given) / "queries", chosen.queries, chosen.size)
        in_process(vectors.write, 1)
        in_process(queries.write, 2)
        queries_QD = queries.all()
        gold = in_process(vectors.nearest, queries_QD)
        for name, configuration in CONFIGURATIONS.items():
            if measured and chosen.searches not in ("all", "graphs" if "HNSW" in name else "exact"):
                continue
            if importlib.util.find_spec(configuration.package) is None:
                notes.append(f"{name}: {configuration.package} is not installed")
                continue
            folder = Path(given) / "files"
            folder.mkdir()
            built = in_process(measure_build, name, folder, vectors)
            searched = in_process(measure_search, name, folder, vectors, queries_QD, gold)
            measured[name] = built, searched
            print(name, built, searched, flush=True)
            shutil.rmtree(folder)
    load = ", ".join(f"{number:.0f}" for number in os.getloadavg())
    notes.append(f"{os.cpu_count()} cores ({processor_name()}), load {load} at the end")
    title = f"{chosen.vectors:,} made-up vectors of {chosen.size} dimensions, {chosen.queries} queries, top {TOP}"
    print(Table(HEADS, table_rows(measured), title=title, notes=notes))


HEADS = ("", "build s", "cpu s", "MiB", "p50 ms", "cpu ms", "× NumPy", "MiB", "recall@10")


def table_rows(measured: dict[str, tuple[Measured, Measured]]) -> list[tuple[str, ...]]:
    base = next(iter(measured.values()))[1].processor
    return [
        (
            name,
            f"{built.wall:,.0f}",
            f"{built.processor:,.0f}",
            f"{built.memory:,.0f}",
            f"{1000 * searched.wall:,.1f}",
            f"{1000 * searched.processor:,.1f}",
            f"{searched.processor / base:.3f}",
            f"{searched.memory:,.0f}",
            f"{searched.recall:.3f}",
        )
        for name, (built, searched) in measured.items()
    ]


if __name__ == "__main__":
    main()
