"""Whether a recipe can be trained here at all: asked before any text is read, and again with the vocabulary known.

    refuse_what_cannot_fit(recipe, runtime)
    refuse_what_cannot_fit(recipe, runtime, vocabulary=30_522)

    larvatus: 9,000 layers of 65,536 need at least 7 PB to be trained, more than the 24 GB of memory here; lower …

Weights, gradients and moments, and what one pass keeps for its backward pass: lower bounds, so nothing is refused that
might fit. Whether layers should rather be computed again than kept (`must_recompute`) is asked of what a pass is
expected to keep, which is about three times the bound.
"""

from __future__ import annotations

from larvatus.core.errors import RecipeError
from larvatus.models.nn.device import format_bytes, memory_of
from larvatus.models.nn.encoder_base import ModelConfig
from larvatus.models.recipes import Recipe
from larvatus.training.engine.parallel import BYTES_TRAINED
from larvatus.training.engine.settings import Runtime

KEPT = {"fp32": 3.0 * 4, "bf16": 4.0 * 2}
"""Bytes kept for each of `kept_numbers`, as measured: inputs, masks and sums stand beside them, some in fp32."""
ROOM = 0.9
"""Share of the memory that a run is expected to fill at most: allocators lose some of it."""


def refuse_what_cannot_fit(recipe: Recipe, runtime: Runtime, vocabulary: int = 0, *, shards: int = 1) -> None:
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
    """Whether layers are computed again in the backward pass: as the runtime says, or as memory asks for it."""
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
    """Of a token's attention weights, which are kept where they are dropped out and no flash kernel runs."""
    flash = runtime.cuda and runtime.precision == "bf16"
    dropped = getattr(model, "attention_dropout", 1.0) > 0
    return 0 if flash or not dropped else 3 * 4 * model.layers * getattr(model, "heads", 0) * length
