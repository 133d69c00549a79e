"""Whether a recipe can be trained here at all: asked before any text is read, and again with the vocabulary known.

    refuse_what_cannot_fit(recipe, runtime)
    refuse_what_cannot_fit(recipe, runtime, vocabulary=30_522)

    larvatus: 9,000 layers of 65,536 need at least 7 PB to be trained, more than the 24 GB of memory here; lower …

Weights, gradients and moments, and what one pass keeps for its backward pass: lower bounds, so nothing is refused that
might fit.
"""

from __future__ import annotations

from larvatus.engine.settings import Runtime
from larvatus.errors import RecipeError
from larvatus.nn.memory import in_words, memory_of
from larvatus.recipes import Recipe

BYTES_TRAINED = 16
"""Of a weight that learns: itself, its gradient and the two moments of Adam, 4 bytes each."""


def refuse_what_cannot_fit(recipe: Recipe, runtime: Runtime, vocabulary: int = 0) -> None:
    model, most = recipe.model, memory_of(runtime.device)
    step = recipe.batch * max(phase.length for phase in recipe.phases)
    weights = BYTES_TRAINED * model.least_weights(vocabulary)
    if weights > most:
        pieces = f" and {vocabulary:,} pieces" if vocabulary else ""
        raise RecipeError(
            f"{model.layers:,} layers of {model.hidden:,}, {model.max_positions:,} positions{pieces} need at least "
            f"{in_words(weights)} to be trained, more than the {in_words(most)} of memory here; lower model.layers, "
            "model.hidden, model.max_positions or tokenizer.size"
        )
    tokens = min(runtime.microbatch, step) // 2  # sequences are not cut, so a pass may have fewer than it could
    kept = 2 * tokens * model.kept_numbers  # in bf16
    if weights + kept > most:
        raise RecipeError(
            f"a pass over {min(runtime.microbatch, step):,} tokens needs at least {in_words(weights + kept)}, more "
            f"than the {in_words(most)} of memory here; lower --microbatch"
        )
    if (read := 3 * 8 * step) > (room := memory_of("cpu")):  # ids, words and segments
        raise RecipeError(
            f"a step of {step:,} tokens needs at least {in_words(read)}, more than the {in_words(room)} of memory "
            "here; lower batch or phases.length"
        )
