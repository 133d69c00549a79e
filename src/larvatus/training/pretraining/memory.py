"""Whether a recipe fits the memory here, and where its weights are: on each process, or a part on each.

    check_memory(recipe, runtime)                                  # before any text is read
    check_memory(recipe, runtime, vocabulary=30_522)               # with the vocabulary known

    larvatus: 9,000 layers of 65,536 need at least 7 PB to be trained, more than the 24 GB of memory here; lower …

Weights, gradients and moments, and what one pass keeps for its backward pass: lower bounds, so nothing is refused that
might fit. Whether layers are recomputed instead of kept (`must_recompute`) depends on what a pass is expected to keep,
which is about three times the bound.

    sharded, job = place_model(model, job, ranks, print)           # `training/engine/parallel.py`
    whole = whole_model(model, job, ranks, vocabulary=30_522)      # to be saved; None on all ranks but the main one
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from larvatus.core.errors import RecipeError
from larvatus.models.network import Network
from larvatus.models.nn.device import format_bytes, memory_of
from larvatus.models.nn.encoder_base import ModelConfig
from larvatus.models.recipes import Recipe
from larvatus.training.engine.parallel import BYTES_TRAINED, gather_tensors, is_sharded, shard, should_shard
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.job import PretrainingJob

KEPT = {"fp32": 3.0 * 4, "bf16": 4.0 * 2}
"""Bytes kept for each of `kept_numbers`, as measured: inputs, masks and sums are kept as well, some in fp32."""
ROOM = 0.9
"""Share of the memory that a run is expected to fill at most: allocators lose some of it."""


def check_memory(recipe: Recipe, runtime: Runtime, vocabulary: int = 0, *, shards: int = 1) -> None:
    """`shards`: processes that may each have a part of the weights."""
    model, most = recipe.model, memory_of(runtime.device)
    step = recipe.batch * max(phase.length for phase in recipe.phases)
    weights = BYTES_TRAINED * model.least_weights(vocabulary) // shards
    if weights > most:
        pieces = f" and {vocabulary:,} pieces" if vocabulary else ""
        raise RecipeError(
            f"{model.layers:,} layers of {model.hidden:,}, {model.max_positions:,} positions{pieces} need at least "
            f"{format_bytes(weights)} to be trained, more than the {format_bytes(most)} of memory here; lower "
            "model.layers, model.hidden, model.max_positions or tokenizer.size"
        )
    tokens = min(runtime.microbatch, step) // 2  # sequences are not cut, so a pass may have fewer than it could
    kept = 2 * tokens * model.kept_numbers  # in bf16
    if weights + kept > most:
        raise RecipeError(
            f"a pass over {min(runtime.microbatch, step):,} tokens needs at least {format_bytes(weights + kept)}, more "
            f"than the {format_bytes(most)} of memory here; lower --microbatch"
        )
    if (read := 3 * 8 * step) > (room := memory_of("cpu")):  # ids, words and segments
        raise RecipeError(
            f"a step of {step:,} tokens needs at least {format_bytes(read)}, more than the {format_bytes(room)} of "
            "memory here; lower batch or phases.length"
        )


def must_recompute(recipe: Recipe, runtime: Runtime, vocabulary: int, *, shards: int = 1) -> bool:
    """Whether layers are computed again in the backward pass: by the runtime, or if memory is short."""
    if runtime.activation_checkpointing != "auto":
        return runtime.activation_checkpointing == "always"
    return expected_bytes(recipe, runtime, vocabulary, shards=shards) > ROOM * memory_budget(runtime)


def memory_budget(runtime: Runtime) -> int:
    """Bytes of the device that training may take."""
    most = memory_of(runtime.device)
    return most if runtime.memory is None else min(most, round(1e9 * runtime.memory))


def expected_bytes(recipe: Recipe, runtime: Runtime, vocabulary: int, *, shards: int = 1) -> int:
    """What training is expected to take where all that layers leave is kept."""
    model, longest = recipe.model, max(phase.length for phase in recipe.phases)
    tokens = min(runtime.microbatch, recipe.batch * longest)
    kept = round(KEPT[runtime.precision] * model.kept_numbers) + _attention_bytes(model, runtime, longest)
    return BYTES_TRAINED * model.least_weights(vocabulary) // shards + tokens * kept


def _attention_bytes(model: ModelConfig, runtime: Runtime, length: int) -> int:
    """Bytes of a token's attention weights, which are stored if dropout applies and no flash kernel runs."""
    flash = runtime.cuda and runtime.precision == "bf16"
    dropped = getattr(model, "attention_dropout", 1.0) > 0
    return 0 if flash or not dropped else 3 * 4 * model.layers * getattr(model, "heads", 0) * length


def place_model(
    model: Network, job: PretrainingJob, ranks: Ranks, warn: Callable[[str], None]
) -> tuple[bool, PretrainingJob]:
    """Bring the model, or this rank's part of it, to the device; whether it is a part, and the job as it then is."""
    device = job.runtime.device
    how = job.parallel if job.may_shard else "replicate"
    if not should_shard(how, ranks=ranks, model=model, optimizer=job.recipe.optimizer.type, device=device):
        model.to(device)
        return False, job
    if job.runtime.compile:
        warn("sharded weights are trained without compilation: --compile is ignored")
        job = dataclasses.replace(job, runtime=dataclasses.replace(job.runtime, compile=False))
    shard(model, device)
    return True, job


def describe_parallel(ranks: Ranks, *, sharded: bool) -> str:
    """How processes share the work, for the first lines of a run; nothing where there is one.

    >>> describe_parallel(Ranks(0, 8), sharded=True)
    ' · 8 processes, each with a part of the weights'
    """
    if ranks.count == 1:
        return ""
    return f" · {ranks.count} processes, each with {'a part of the' if sharded else 'all'} weights"


def whole_model(model: Network, job: PretrainingJob, ranks: Ranks, vocabulary: int) -> Network | None:
    """The model with all its weights, on the main rank; every rank gives its part."""
    named = {name: parameter.detach() for name, parameter in model.named_parameters()}
    if not any(map(is_sharded, named.values())):
        return model if ranks.main else None
    weights = gather_tensors(named, keep=ranks.main)
    if not ranks.main:
        return None
    recipe = job.recipe
    whole = Network.build(recipe.model, recipe.objectives, vocabulary=vocabulary, seed=job.seed)
    with torch.no_grad():
        for name, parameter in whole.named_parameters():
            parameter.copy_(weights[name])
    return whole
