"""Scaling of time and memory with sequence length, batch, layers or corpus: y ≈ c · xᵃ.

    growth = scale_training("length", make, sizes=(128, 256, 512, 1024), runtime=runtime, plan=plan, say=print)
    growth.points[-1].seconds, growth.exponents["seconds"]

The exponent a is the least-squares slope of the logarithms over the larger half of the sizes: 1 is linear, 2 quadratic.
For lengths, a point is one sequence, so full attention tends to 2 and windowed attention to 1. For batch and layers, a
point is a step. For the corpus, it is preparing all text (vocabulary and shards), and planning an epoch.

A text is prepared in a separate process, `python -m` of this module. Its worker processes encode shards, and their
memory does not depend on the size of the text. The reported memory is that of the process that reads, counts and
writes.
"""

from __future__ import annotations

import gc
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from larvatus.core.errors import LarvatusError
from larvatus.core.tables import Cell, Column, Table
from larvatus.data.corpus import Corpus
from larvatus.data.text.documents import Document
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.readers import read_documents
from larvatus.evaluation.speed.measure import WARM, BenchmarkPlan, describe_machine, reset_compiler
from larvatus.evaluation.speed.results import Machine, memory
from larvatus.evaluation.speed.timing import peak_bytes, process_peak, time_in_turns
from larvatus.evaluation.speed.training import EMBEDDED, BenchmarkModel, LarvatusTraining, make_loader
from larvatus.models.recipes import Recipe, parse_recipe, recipe_table
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.prepare import TextOptions, prepare

DOCUMENTS, PIECES = 60, 1000
"""Size of the small text that is prepared first."""


class PreparationCost(Struct, frozen=True, kw_only=True):
    seconds: float
    bytes: int | None
    """None if the system does not report it."""


def measure_preparation(recipe: Recipe, text: Path, out: Path) -> PreparationCost:
    """Prepare a text in a new process and return its cost."""
    given = json.dumps({"recipe": recipe_table(recipe), "text": str(text), "out": str(out)})
    source = str(Path(__file__).parents[3])
    places = {"PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **places},
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
        raise LarvatusError(f"{text} could not be prepared: {last[0]}; give other text with --corpus")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=PreparationCost)


def main() -> None:
    """Prepare a small text first, so that one-time loading does not count."""
    given = json.load(sys.stdin)
    recipe = parse_recipe(given["recipe"], where="recipe")
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.txt"
        few = [document.text for document in islice(embedded_documents(), DOCUMENTS)]
        small.write_text("\n\n".join(few), encoding="utf-8")
        with suppress(LarvatusError):  # too little text for some vocabularies: all is loaded by then
            _prepare(_with_few_pieces(recipe), small, Path(folder) / "run")
    began = time.perf_counter()
    taken = process_peak(lambda: _prepare(recipe, Path(given["text"]), Path(given["out"])))
    cost = PreparationCost(seconds=time.perf_counter() - began, bytes=taken)
    print(msgspec.json.encode(cost).decode())


def _with_few_pieces(recipe: Recipe) -> Recipe:
    if getattr(recipe.tokenizer, "size", 0) <= PIECES:
        return recipe
    return msgspec.structs.replace(recipe, tokenizer=msgspec.structs.replace(recipe.tokenizer, size=PIECES))


def _prepare(recipe: Recipe, text: Path, out: Path) -> None:
    prepare(recipe, [str(text)], out=out, valid=None, options=TextOptions(), reporter=Reporter())


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
    """Time and memory of one size."""

    size: int
    seconds: float
    bytes: int | None = None
    plan_seconds: float | None = None
    plan_bytes: int | None = None


class ScalingResult(Struct, frozen=True, kw_only=True):
    """Points and the exponents of their figures."""

    of: Dimension
    unit: str
    """Unit of the sizes."""
    each: str
    """Work that a point measures."""
    machine: Machine
    model: str
    points: tuple[ScalingPoint, ...]
    exponents: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    def figures(self) -> dict[str, list[tuple[int, float]]]:
        """(size, value) pairs of each measured figure."""
        return figures_of(self.points)


def figures_of(points: Sequence[ScalingPoint]) -> dict[str, list[tuple[int, float]]]:
    values = {name: [(point.size, getattr(point, name)) for point in points] for name in FIGURES}
    return {name: pairs for name, pairs in values.items() if all(value for _, value in pairs)}


def exponent(pairs: Sequence[tuple[float, float]]) -> float:
    """The slope of the logarithms over the larger half of the points, at least three: constant costs (embeddings,
    kernel launches) matter less there.

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
    """Measure training steps on full rows. `make` builds the model of a size; all lengths have the same step size."""
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
    """Measure building vocabulary and shards of the repeated text, and planning an epoch."""
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
    """Seconds and bytes of planning an epoch, the order of chunks."""
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
    """Write the documents of a text `count` times, one file each time."""
    folder.mkdir()
    for turn in range(count):
        documents: Iterator[Document] = iter(embedded_documents() if corpus == EMBEDDED else read_documents([corpus]))
        with open(folder / f"{turn:04d}.txt", "w", encoding="utf-8") as file:
            for document in documents:
                file.write(document.text.replace("\n\n", "\n") + "\n\n")


def table(growth: ScalingResult) -> Table:
    """A row for each size, and the exponents in the last row."""
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


if __name__ == "__main__":
    main()
