"""Layers, Why and Swap: a text read layer by layer, a prediction attributed to words, states patched between sentences.

    POST /studio/api/lens      {"text": "the [MASK] was wide", "top": 5, "tuned": "default", "model": "law"}
    POST /studio/api/explain   {"text": "A dull film.", "target": "negative", "steps": 32}
    POST /studio/api/patch     {"first": "the key [MASK]", "second": "the keys [MASK]", "answers": ["is", "are"]}

These requests run one at a time, in their order. They need gradients and edited encoders, so they do not share the
passes of the server's batcher. Each is refused before it begins if it would read more than `MOST_TOKENS` tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from larvatus.core.settings import Settings
from larvatus.evaluation.interpretation.faithfulness import ORDERS, SHARES, check_text
from larvatus.inference.interpret.attributions import METHODS, TOLERANCE, Baseline, ExplainOptions
from larvatus.inference.interpret.explain import GRADIENTS, check_explainable, explained, outcome_of
from larvatus.inference.interpret.tuned_lens import LENSES, lens_for
from larvatus.inference.model import Model
from larvatus.interfaces.serve.responses import Cancelled, CannotDo, OverLimit, QueueFull
from larvatus.interfaces.serve.served_models import unbatched
from larvatus.interfaces.studio.http import Answer, read_body, run_in_thread
from larvatus.interfaces.studio.routes import StudioModels
from larvatus.models.network import int8_weights
from larvatus.tasks.outcome import OutcomeChoice
from larvatus.tasks.registry import is_finetuned, task_of

MOST_TOKENS = 40_000
"""Tokens that a request may read, over all versions of its text; larger ones are for the command line."""
MOST_WAITING = 8
"""Requests that wait for the one that runs."""
COMPLETE = 0.01
"""Completeness gap up to which integrated gradients count as complete, as in `larvatus explain`."""
RANDOM_ORDERS = 2 * ORDERS
Text = Annotated[str, Meta(max_length=10_000)]
Word = Annotated[str, Meta(max_length=200)]
Steps = Annotated[int, Meta(ge=1, le=1_024)]
Top = Annotated[int, Meta(ge=1, le=20)]


class LensRequest(Settings):
    """A text with blanks, to be read at every layer."""

    text: Text
    top: Top = 5
    tuned: Word | None = None
    """A tuned lens in the model's directory; None for the logit lens."""
    model: str | None = None


class AttributionRequest(Settings):
    """A prediction to attribute to words, by all methods."""

    text: Text
    """A text with blanks, or what the model's task reads: a text, or a question."""
    pair: Text | None = None
    """The second text of a pair, or the passage of a question."""
    target: Word | None = None
    at: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    """Number of the blank or of the tagged word."""
    baseline: Baseline = "mask"
    steps: Steps = 32
    """Steps of integrated gradients."""
    model: str | None = None


class PatchRequest(Settings):
    """Two sentences that differ in a few words, and their answers at the blank."""

    first: Text
    second: Text
    answers: tuple[Word, Word]
    model: str | None = None


def interpreting_routes(models: StudioModels) -> dict[tuple[str, str], Answer]:
    """Routes by method and path."""
    turns = Turns()

    async def lens(request: Request) -> Response:
        given = await read_body(request, LensRequest)
        return await turns.run(request, lambda: read_layers(models.model(given.model), given))

    async def explain(request: Request) -> Response:
        given = await read_body(request, AttributionRequest)
        return await turns.run(request, lambda: attribute_words(models.model(given.model), given))

    async def patch(request: Request) -> Response:
        given = await read_body(request, PatchRequest)
        return await turns.run(request, lambda: patch_sentences(models.model(given.model), given))

    return {
        ("POST", "/studio/api/lens"): lens,
        ("POST", "/studio/api/explain"): explain,
        ("POST", "/studio/api/patch"): patch,
    }


class Turns:
    """Runs requests one at a time. Those whose client is gone when their turn comes are dropped."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0

    async def run(self, request: Request, work: Callable[[], Any]) -> Response:
        if self._waiting > MOST_WAITING:
            raise QueueFull(f"{self._waiting} requests wait already; try again in a moment", retry_after=2)
        self._waiting += 1
        try:
            async with self._lock:
                if await request.is_disconnected():
                    raise Cancelled("the client is gone")
                return await run_in_thread(work)
        finally:
            self._waiting -= 1


def check_cost(tokens: int, what: str, command: str) -> None:
    """Refuse a request that reads too many tokens."""
    if tokens > MOST_TOKENS:
        raise OverLimit(
            f"{what} would read {tokens:,} tokens over all its passes, {MOST_TOKENS:,} at most here; shorten the text, "
            f"or use {command}"
        )


def length_of(model: Model, *texts: str | None) -> int:
    """Tokens of texts that are read together, with their special tokens."""
    return 3 + sum(len(model.tokenizer.encode(text).ids) for text in texts if text is not None)


def read_layers(model: Model, given: LensRequest) -> dict[str, Any]:
    """What `Model.lens` gives, with the names of the tuned lenses of the model."""
    names = LENSES.names(model.bundle.path)
    if given.tuned is not None and given.tuned not in names:  # a path would open any file
        raise CannotDo(f"the model has no tuned lens {given.tuned!r}; train one with larvatus lens train --name NAME")
    tokens = length_of(model, given.text)
    check_cost(tokens**2 * max(1, _blanks(model, given.text)), "a pass for each word of the context", "larvatus lens")
    tuned = lens_for(model, given.tuned)
    result = unbatched(model).lens(given.text, tuned=tuned, top=given.top)
    return {**result.to_dict(), "lenses": names}


def _blanks(model: Model, text: str) -> int:
    mask = model.tokenizer.special.mask
    return text.count("[MASK]") + (text.count(mask) if mask and mask != "[MASK]" else 0)


def attribute_words(model: Model, given: AttributionRequest) -> dict[str, Any]:
    """A prediction attributed to words by all methods that the model allows, with controls of each."""
    methods: list[str] = [name for name in METHODS if name not in GRADIENTS or not int8_weights(model.network)]
    options = ExplainOptions(
        methods=tuple(methods), baseline=given.baseline, steps=given.steps, tolerance=TOLERANCE.most
    )  # as many steps as requested: the page shows the gap
    check_explainable(model, options)
    tokens = length_of(model, given.text, given.pair)
    versions = 3 * given.steps + tokens + 2 * len(SHARES) * (len(methods) + RANDOM_ORDERS)
    check_cost(tokens * versions, "an explanation by all methods and its controls", "larvatus explain")
    plain = unbatched(model)
    texts = given.text if given.pair is None else (given.text, given.pair)
    outcome = outcome_of(plain, texts, OutcomeChoice(target=given.target, at=given.at))
    result = explained(plain, outcome, options)
    scores = {name: np.array([word.scores[name] for word in result.words]) for name in methods}
    checked = check_text(outcome, scores, plain.tokenizer.mask_id, orders=RANDOM_ORDERS)
    return {
        **result.to_dict(),
        "methods": methods,
        "complete": None if result.gap is None else abs(result.gap) <= COMPLETE,
        "controls": None if checked is None else asdict(checked),
        "task": task_of(model.bundle).name if is_finetuned(model.bundle) else "fill",
    }


def patch_sentences(model: Model, given: PatchRequest) -> dict[str, Any]:
    """What `Model.patch` gives, with its effects as a matrix for each site: a row for each layer, all words last."""
    tokens = max(length_of(model, given.first), length_of(model, given.second))
    check_cost(3 * model.encoder.depth * tokens**2, "a patch of each word in each layer", "larvatus patch")
    result = unbatched(model).patch(given.first, given.second, answers=given.answers)
    effects = {site: array.tolist() for site, array in result.effects.items()}
    return {**result.to_dict(), "effects": effects, "first_layer": {site: int(site != "residual") for site in effects}}
