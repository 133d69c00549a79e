"""Responses of a server: the shape of each, and the error for any other.

results_of({"results": [{"label": "wet"}]}, 1, address)
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec import Struct

from larvatus.core.arrays import Floats
from larvatus.core.errors import LarvatusError, printable

WHOLE = ("sentence", "document")
"""Units with one vector per text."""
LONGEST_LINE = 500
"""Characters of a server's message in an error."""


class ServerError(LarvatusError):
    """A request that the server refused, with its message; or a response that no Larvatus server sends.

    >>> ServerError("no model is called x", status=404, kind="not_found").status
    404
    """

    def __init__(self, message: str, *, status: int = 0, kind: str = "") -> None:
        super().__init__(message)
        self.status = status
        """HTTP status; 0 if the server did not respond, or one item of a response failed."""
        self.kind = kind
        """The `type` of the server's error."""


def wrong_answer(address: str, why: str, *, status: int = 0) -> ServerError:
    """The error for a response of another shape than that of a Larvatus server."""
    return ServerError(
        f"{address} sent a response that is not a Larvatus server's ({_line(why)}); is the address right?",
        status=status,
    )


def refusal(said: Any, status: int, *, otherwise: str) -> ServerError:
    """The error that a response, or an item of one, describes.

    >>> refusal({"error": {"type": "full", "message": "the queue is full"}}, 429, otherwise="").kind
    'full'
    """
    error = said.get("error") if isinstance(said, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return ServerError(otherwise, status=status)
    kind = error.get("type")
    return ServerError(_line(error["message"]), status=status, kind=_line(kind) if isinstance(kind, str) else "")


def _line(text: str) -> str:
    return printable(text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 1]}…")


Item = dict[str, Any]


class ModelsAnswer(Struct, frozen=True):
    models: list[Item]


class ResultsAnswer(Struct, frozen=True):
    results: list[Item]


class SimilarAnswer(Struct, frozen=True):
    instances: list[Item]
    cosines: list[list[float]]


class SensesAnswer(Struct, frozen=True):
    instances: list[Item]
    clusters: list[Item]
    nearest: list[Item]


class AttentionAnswer(Struct, frozen=True):
    tokens: list[str]
    weights: list[list[list[list[float]]]]


class RankedDocument(Struct, frozen=True):
    index: int
    relevance_score: float


class RerankAnswer(Struct, frozen=True):
    results: list[RankedDocument]


class VectorUnit(Struct, frozen=True):
    vector: list[Any] | None
    """Vector of one layer, or of all layers; None if the vocabulary deletes the unit."""


class EmbedResult(Struct, frozen=True):
    units: list[VectorUnit]


AShape = TypeVar("AShape", bound=Struct)
SHAPES: dict[str, type[Struct]] = {
    "similar": SimilarAnswer,
    "senses": SensesAnswer,
    "attention": AttentionAnswer,
    "rerank": RerankAnswer,
}
"""Shapes of responses that are not a list of results, by route."""


def converted(given: Any, shape: type[AShape], address: str) -> AShape:
    """A decoded response, converted to its shape."""
    try:
        return msgspec.convert(given, shape)
    except (msgspec.ValidationError, RecursionError) as fault:
        raise wrong_answer(address, str(fault) or "nested too deeply") from None


def results_of(given: Any, count: int, address: str) -> list[Item]:
    """A result for each input."""
    results = converted(given, ResultsAnswer, address).results
    if len(results) != count:
        raise wrong_answer(address, f"{len(results):,} results for {count:,} inputs")
    return results


def only_result(items: list[Item]) -> Item:
    """The result of the only input; raises if it failed."""
    if "error" in items[0]:
        raise refusal(items[0], 0, otherwise="the server could not read this input")
    return items[0]


def unit_vectors(item: Item, number: int, unit: str, address: str) -> Floats:
    """Vectors of the units of text `number`; [D], or [layers + 1, D], of a whole text. Raises if the text failed."""
    if "error" in item:
        fault = refusal(item, 0, otherwise="the server could not read it")
        raise ServerError(f"text {number}: {fault}", kind=fault.kind)
    by_layer = vectors_of(item, address)
    if unit in WHOLE and by_layer.shape[-2] != 1:
        raise wrong_answer(address, f"{by_layer.shape[-2]:,} vectors of a {unit}")
    return by_layer[..., 0, :] if unit in WHOLE else by_layer


def vectors_of(item: Item, address: str) -> Floats:
    """Vectors of a result, [units, D], or [layers + 1, units, D] for all layers; NaN for a unit without one."""
    vectors = [unit.vector for unit in converted(item, EmbedResult, address).units]
    try:
        with np.errstate(over="ignore"):  # such a number is refused below
            known = [np.asarray(vector, np.float32) for vector in vectors if vector is not None]
    except (ValueError, TypeError, OverflowError):
        raise wrong_answer(address, "a vector that is not a list of numbers") from None
    shapes = {array.shape for array in known} or {(0,)}
    if len(shapes) > 1 or not {len(shape) for shape in shapes} <= {1, 2}:
        raise wrong_answer(address, "vectors of several sizes")
    if not all(np.isfinite(array).all() for array in known):
        raise wrong_answer(address, "a vector with values that are not finite")
    (shape,) = shapes
    rows = iter(known)
    blank = np.full(shape, np.nan, np.float32)
    every = [blank if vector is None else next(rows) for vector in vectors]
    whole = np.stack(every) if every else np.zeros((0, *shape), np.float32)
    by_layer: Floats = whole.swapaxes(0, 1) if whole.ndim == 3 else whole
    return by_layer
