"""How fast this machine is: one call, as `larvatus bench` makes it.

result = bench("bert", size="base", device="cuda")
result.ceiling.flops, result.measured[0].larvatus.tokens_per_second, result.measured[0].ratio
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import msgspec

from larvatus.core.errors import UsageError
from larvatus.evaluation.speed.measure import BenchmarkPlan, measure, worker_counts
from larvatus.evaluation.speed.results import Benchmark
from larvatus.evaluation.speed.scaling import ScalingResult, scale_corpus, scale_training
from larvatus.evaluation.speed.training import BenchmarkModel, model_of_recipe, pretrained_model
from larvatus.interfaces.settings import BenchSettings, MachineSettings, read_settings
from larvatus.models.network import Network
from larvatus.models.nn.device import explain_out_of_memory
from larvatus.models.recipes import Recipe, read_recipe
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.adapt import adapted_recipe
from larvatus.training.pretraining.job import ParentModel
from larvatus.training.pretraining.plan import check_memory

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import BenchKeywords

LOWER = "lower --tokens or --length, or take a smaller --size"
SHORTEST = 128
"""Shortest sequence of --grow length."""
TIMES = (1, 3, 10, 30, 100)
"""How often a corpus is repeated."""


def bench(
    recipe: str | Path | None = None, *, quiet: bool = True, **settings: Unpack[BenchKeywords]
) -> Benchmark | ScalingResult:
    """Measure this machine: matrix ceiling, training, embedding, loader, memory, and installed peers.

    Args:
        recipe: A recipe's name or a TOML file; `bert` where none is given, nor a `model`.
        quiet: Show no progress.
        **settings: Those of `larvatus bench`. What is measured: `size`, `settings` (`{"model.layers": 6}`), `model` (a
            directory), `corpus`, `length`, `tokens` (of a step), `seconds` (for each figure), `peers`; `grow`
            (`length`, `batch`, `layers` or `corpus`) and `largest`. The machine: `device`, `precision`, `compile`,
            `microbatch`, `workers`, `deterministic`, `activation_checkpointing`, `memory`.

    Returns:
        What was measured, with `to_dict()` for JSON; with `grow`, points and the power that time and memory grow with.

    Example:
        >>> result = bench("bert", corpus=texts, length=32, tokens=128, seconds=0.01, peers=False, workers=0, **small)
        >>> [measured.what for measured in result.measured]
        ['training, full rows', 'training, ragged rows', 'embedding sentences']
    """
    named = {} if recipe is None else {"recipe": str(recipe)}
    chosen, machine = read_settings({**settings, **named}, BenchSettings, MachineSettings, function="bench")
    return run_bench(chosen, machine, Reporter.on_stream(quiet=quiet, stderr=True))


def run_bench(chosen: BenchSettings, machine: MachineSettings, reporter: Reporter) -> Benchmark | ScalingResult:
    """Run `bench` from structs; progress goes to the reporter."""
    if chosen.model is not None and (chosen.grow or chosen.recipe or chosen.size):
        raise UsageError("--model replaces --recipe and --size, and does not go with --grow; give one or the other")
    if chosen.largest is not None and chosen.grow is None:
        raise UsageError("--largest goes with --grow")
    runtime = machine.runtime
    tokens = chosen.tokens or (65_536 if runtime.cuda else 4_096)
    if machine.microbatch is None:
        runtime = dataclasses.replace(runtime, microbatch=max(tokens, 8))
    with explain_out_of_memory(LOWER), tempfile.TemporaryDirectory() as folder:
        if chosen.grow is not None:
            return _grown(chosen, runtime, tokens, Path(folder), reporter)
        subject = _subject(chosen, runtime, tokens, Path(folder), reporter)
        plan = BenchmarkPlan(
            length=_length(subject.recipe, chosen),
            tokens=tokens,
            seconds=chosen.seconds,
            peers=chosen.peers,
            workers=tuple(worker_counts(_cores() if machine.workers is None else machine.workers)),
        )
        return measure(subject, runtime, plan, say=reporter.say)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _length(recipe: Recipe, chosen: BenchSettings) -> int:
    length = chosen.length or max(phase.length for phase in recipe.phases)
    if length > recipe.model.max_positions:
        raise UsageError(
            f"--length {length} is more than the {recipe.model.max_positions} positions of {recipe.name}; "
            f"add --set model.max_positions={length}"
        )
    return length


def _recipe(chosen: BenchSettings, runtime: Runtime, *more: str) -> Recipe:
    name = chosen.recipe or ("modern" if chosen.grow == "length" else "bert")
    size = chosen.size or ("base" if runtime.cuda else "tiny" if chosen.grow else "mini")
    return read_recipe(name, size=size, settings=[*more, *chosen.settings])


def _stepped(recipe: Recipe, *, tokens: int, length: int) -> Recipe:
    """The recipe with steps of `tokens` tokens."""
    if tokens < length:
        raise UsageError(f"a step of {tokens:,} tokens holds no sequence of {length:,}; raise --tokens")
    return msgspec.structs.replace(recipe, batch=tokens // length)


def _subject(chosen: BenchSettings, runtime: Runtime, tokens: int, folder: Path, reporter: Reporter) -> BenchmarkModel:
    if chosen.model is not None:
        origin = ParentModel.load(Path(chosen.model), out=folder)
        adapted = adapted_recipe(origin.bundle, settings=list(chosen.settings)).recipe
        recipe = _stepped(adapted, tokens=tokens, length=_length(adapted, chosen))
        return pretrained_model(origin, recipe, corpus=chosen.corpus, folder=folder, reporter=reporter)
    recipe = _recipe(chosen, runtime)
    recipe = _stepped(recipe, tokens=tokens, length=_length(recipe, chosen))
    check_memory(recipe, runtime)
    return model_of_recipe(recipe, corpus=chosen.corpus, folder=folder, reporter=reporter)


def _grown(chosen: BenchSettings, runtime: Runtime, tokens: int, folder: Path, reporter: Reporter) -> ScalingResult:
    """A step for each size, doubled from the smallest; or the text, repeated."""
    if chosen.grow == "corpus":
        times = [count for count in TIMES if count <= (chosen.largest or 10)]
        recipe = _recipe(chosen, runtime)
        return scale_corpus(recipe, corpus=chosen.corpus, times=times, runtime=runtime, say=reporter.say)
    assert chosen.grow is not None
    largest = chosen.largest or {"length": 8_192, "batch": 64, "layers": 24 if runtime.cuda else 8}[chosen.grow]
    first = min(SHORTEST, largest) if chosen.grow == "length" else 1
    sizes = [size for power in range(40) if (size := first << power) <= largest]
    more = [f"model.max_positions={largest}"] if chosen.grow == "length" else []
    recipe = _recipe(chosen, runtime, *more)
    length = min(SHORTEST, recipe.model.max_positions) if chosen.length is None else _length(recipe, chosen)
    if chosen.grow == "length":
        tokens = max(tokens, largest)
    if chosen.grow == "batch":
        tokens = max(tokens, largest * length)
    runtime = dataclasses.replace(runtime, microbatch=max(runtime.microbatch, tokens))
    subject = model_of_recipe(recipe, corpus=chosen.corpus, folder=folder, reporter=reporter)
    plan = BenchmarkPlan(length=length, tokens=tokens, seconds=chosen.seconds)
    return scale_training(
        chosen.grow, _at_sizes(chosen.grow, subject, plan), sizes=sizes, runtime=runtime, plan=plan, say=reporter.say
    )


def _at_sizes(of: str, subject: BenchmarkModel, plan: BenchmarkPlan) -> Callable[[int], BenchmarkModel]:
    """Benchmark subjects by size: steps of another shape, or a model of that many layers."""

    def make(size: int) -> BenchmarkModel:
        recipe = subject.recipe
        if of == "layers":
            deeper = msgspec.structs.replace(recipe.model, layers=size)
            recipe = _stepped(msgspec.structs.replace(recipe, model=deeper), tokens=plan.tokens, length=plan.length)
            rows = len(subject.network.encoder.word_vectors)
            network = Network.build(recipe.model, recipe.objectives, vocabulary=rows, seed=1)
            return dataclasses.replace(subject, recipe=recipe, network=network)
        length = size if of == "length" else plan.length
        tokens = size * length if of == "batch" else plan.tokens
        return dataclasses.replace(subject, recipe=_stepped(recipe, tokens=tokens, length=length))

    return make
