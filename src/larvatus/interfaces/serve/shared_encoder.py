"""An encoder whose passes are joined with those of all others who use it.

    network.encoder = shared(network.encoder, passes)
    network.encoder(batch)                            # waits for a pass that it shares with others

What it gives is what the encoder gives, and it is of the encoder's own class: tasks, vectors, blanks and scores notice
nothing. The weights are the same tensors. What cannot be joined (attention weights, two streams) is run by the same
thread, so that never two passes fight for the cores.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from torch import Tensor

from larvatus.core.batch import TokenBatch
from larvatus.interfaces.serve.passes import Passes
from larvatus.models.nn.encoder import Encoder

ALONE = ("with_heads", "two_streams")
"""Methods of encoders that have them, which are run alone."""


def shared(encoder: Encoder, passes: Passes) -> Encoder:
    """The encoder, as requests use it."""
    view = copy.copy(encoder)
    view.__class__ = _shared_class(type(encoder))
    plain: dict[str, Any] = view.__dict__  # set past torch, which would take the encoder for a part of itself
    plain["_whole"], plain["_passes"] = encoder, passes
    return view


def whole(encoder: Encoder) -> Encoder:
    """The encoder itself, of one that may be shared."""
    return getattr(encoder, "_whole", encoder)


@cache
def _shared_class(kind: type[Encoder]) -> type[Encoder]:
    methods = {name: _alone(name) for name in ALONE if hasattr(kind, name)}
    return type(f"Shared{kind.__name__}", (_Shared, kind), methods)


def _alone(name: str) -> Callable[..., Any]:
    def method(self: _Shared, *given: Any, **settings: Any) -> Any:
        return self._passes.alone(self._whole, lambda: getattr(self._whole, name)(*given, **settings))

    return method


class _Shared:
    """What stands before the encoder's own methods."""

    _whole: Encoder
    _passes: Passes

    def forward(
        self, batch: TokenBatch[Tensor], *, layers: Sequence[int] | None = None, limit: int | None = None
    ) -> Tensor | list[Tensor]:
        return self._passes.states(self._whole, batch, layers)

    def at(self, batch: TokenBatch[Tensor], places_B: Tensor, *, limit: int | None = None) -> Tensor:
        if len(places_B) != batch.count:
            return self._passes.states(self._whole, batch).index_select(0, places_B)  # type: ignore[union-attr]
        return self._passes.at(self._whole, batch, places_B)

    def attention(self, batch: TokenBatch[Tensor]) -> Any:
        """All layers at once: the iterator of an encoder would be drawn from by another thread."""
        return iter(self._passes.alone(self._whole, lambda: list(self._whole.attention(batch))))
