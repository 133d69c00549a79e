"""How time and memory grow with the length of sequences, the batch, the layers or the corpus: y ≈ c · xᵃ.

    growth = grow_training("length", make, sizes=(128, 256, 512, 1024), runtime=runtime, plan=plan, say=print)
    growth.points[-1].seconds, growth.exponents["seconds"]

The exponent a is the slope of a line through the logarithms of the larger half of the sizes, by least squares: 1 is as
much again for twice as much, 2 four times as much. Of lengths, a point is of one sequence, so that attention to all
tokens tends to 2, and to a window to 1; of batch and layers it is of a step; of the corpus, of preparing all of it and
of planning an epoch.
"""

from __future__ import annotations

import gc
import math
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from larvatus.core.tables import Cell, Column, Table
from larvatus.data.corpus import Corpus
from larvatus.data.text.documents import Document
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.readers import read_documents
from larvatus.evaluation.speed.measure import WARM, BenchmarkPlan, describe_machine, reset_compiler
from larvatus.evaluation.speed.model import EMBEDDED, BenchmarkModel, make_loader
from larvatus.evaluation.speed.preparing import measure_preparation
from larvatus.evaluation.speed.results import Machine, memory
from larvatus.evaluation.speed.timing import peak_bytes, time_in_turns
from larvatus.evaluation.speed.training import LarvatusTraining
from larvatus.models.recipes import Recipe
from larvatus.training.engine.settings import Runtime

Dimension = Literal["length", "batch", "layers", "corpus"]
UNITS = {"length": "tokens of a sequence", "batch": "sequences of a step", "layers": "layers", "corpus": "tokens"}
FIGURES = {
    "seconds": "time",
    "bytes": "memory",
    "plan_seconds": "time of plan",
    "plan_bytes": "memory of plan",
}
POWER = "grows with the power"


class ScalingPoint(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one size takes."""

    size: int
    seconds: float
    bytes: int | None = None
    plan_seconds: float | None = None
    plan_bytes: int | None = None


class ScalingResult(Struct, frozen=True, kw_only=True):
    """Points, and the power of the size that each figure grows with."""

    of: Dimension
    unit: str
    """What is counted."""
    each: str
    """What a point is of."""
    machine: Machine
    model: str
    points: tuple[ScalingPoint, ...]
    exponents: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    def figures(self) -> dict[str, list[tuple[int, float]]]:
        """(size, value) of each figure that was measured."""
        return figures_of(self.points)


def figures_of(points: Sequence[ScalingPoint]) -> dict[str, list[tuple[int, float]]]:
    values = {name: [(point.size, getattr(point, name)) for point in points] for name in FIGURES}
    return {name: pairs for name, pairs in values.items() if all(value for _, value in pairs)}


def exponent(pairs: Sequence[tuple[float, float]]) -> float:
    """The slope of the logarithms, over the larger half of the points, but of three at least: what is the same for all
    sizes (embeddings, launching) hides less of it there.

    >>> round(exponent([(1, 5), (2, 20), (4, 80)]), 3)
    2.0
    """
    larger = pairs[-max(3, -(-len(pairs) // 2)) :]
    xs, ys = [math.log(x) for x, _ in larger], [math.log(y) for _, y in larger]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread if spread else math.nan


def scaling_result(
    of: Dimension, points: Sequence[ScalingPoint], *, each: str, runtime: Runtime, model: str
) -> ScalingResult:
    return ScalingResult(
        of=of,
        unit=UNITS[of],
        each=each,
        machine=describe_machine(runtime),
        model=model,
        points=tuple(points),
        exponents={name: exponent(pairs) for name, pairs in figures_of(points).items()},
    )


def scale_training(
    of: Dimension,
    make: Callable[[int], BenchmarkModel],
    *,
    sizes: Sequence[int],
    runtime: Runtime,
    plan: BenchmarkPlan,
    say: Callable[[str], None],
) -> ScalingResult:
    """Steps of training on full rows. `make` gives what is trained at a size; of lengths, a step has as many tokens."""
    points, name = [], ""
    for size in sizes:
        say(f"{UNITS[of]}: {size:,} …")
        subject = make(size)
        name = subject.name
        length = size if of == "length" else plan.length
        tokens = size * length if of == "batch" else plan.tokens
        batches = subject.full_rows(length=length, tokens=tokens)
        reset_compiler(runtime)
        training = LarvatusTraining(subject, runtime, batches, length=length)
        work, warm = {"step": training.step}, WARM if runtime.compile else 1
        timed = time_in_turns(work, device=runtime.device, seconds=plan.seconds, warm=warm)["step"]
        taken = peak_bytes(training.step, runtime.device)
        sequences = sum(batch.tokens.count for batch in batches) / len(batches) if of == "length" else 1
        points.append(ScalingPoint(size=size, seconds=timed.low / sequences, bytes=round(taken / sequences)))
        del subject, training, work
        gc.collect()
    each = "one sequence" if of == "length" else "a step, beyond weights and moments"
    return scaling_result(of, points, each=each, runtime=runtime, model=name)


def scale_corpus(
    recipe: Recipe, *, corpus: str, times: Sequence[int], runtime: Runtime, say: Callable[[str], None]
) -> ScalingResult:
    """The text so many times over: its vocabulary and shards, and the plan of an epoch of it."""
    points = []
    for count in times:
        say(f"{corpus} × {count:,} …")
        with tempfile.TemporaryDirectory() as folder:
            text, out = Path(folder) / "text", Path(folder) / "run"
            _write(text, corpus, count)
            cost = measure_preparation(recipe, text, out)
            shards = Corpus.open(out / "corpus" / "train")
            plan_seconds, plan_bytes = _plan(recipe, shards)
            points.append(
                ScalingPoint(
                    size=shards.tokens,
                    seconds=cost.seconds,
                    bytes=cost.bytes,
                    plan_seconds=plan_seconds,
                    plan_bytes=plan_bytes,
                )
            )
    return scaling_result("corpus", points, each="preparing the text", runtime=runtime, model=recipe.name)


def _plan(recipe: Recipe, shards: Corpus) -> tuple[float, int]:
    """Seconds and bytes of an epoch's plan: which chunks come when."""
    longest = max(phase.length for phase in recipe.phases)
    loader = make_loader(recipe, shards, length=longest, tokens=longest)
    seconds = time_in_turns({"plan": lambda: loader.plan(0)}, device="cpu", seconds=0.1)["plan"].median
    tracemalloc.start()
    try:
        loader.plan(1)
        return seconds, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _write(folder: Path, corpus: str, count: int) -> None:
    """The documents of a text as files of their own, so many times."""
    folder.mkdir()
    for turn in range(count):
        documents: Iterator[Document] = iter(embedded_documents() if corpus == EMBEDDED else read_documents([corpus]))
        with open(folder / f"{turn:04d}.txt", "w", encoding="utf-8") as file:
            for document in documents:
                file.write(document.text.replace("\n\n", "\n") + "\n\n")


def table(growth: ScalingResult) -> Table:
    """A row for each size, and the exponents below."""
    figures = growth.figures()
    rows = [
        [Cell(f"{point.size:,}"), *(Cell(_shown(name, getattr(point, name))) for name in figures)]
        for point in growth.points
    ]
    powers = [Cell(POWER, "bold"), *(Cell(f"{growth.exponents[name]:.2f}", "bold") for name in figures)]
    return Table(
        title=f"{growth.model}: {growth.each}, by {growth.unit}",
        columns=[Column(growth.unit), *(Column(FIGURES[name]) for name in figures)],
        rows=[*rows, powers],
    )


def _shown(name: str, value: float) -> str:
    if name.endswith("bytes"):
        return memory(round(value))
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.2f} ms"
