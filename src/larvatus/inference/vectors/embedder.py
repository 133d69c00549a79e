"""The model that gives vectors, as what makes files and indexes of them, and searches those, needs to know it.

search(lv.load("runs/mine"), query, place, SearchOptions(top=10))        # a loaded model is one
"""

from __future__ import annotations

from typing import Protocol

from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.vectors.standardise.standardise import Standardiser
from larvatus.models.nn.encoder import Encoder


class Embedder(Protocol):
    @property
    def encoder(self) -> Encoder: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def fingerprint(self) -> str:
        """Which weights, settings and vocabulary these are; see `model_fingerprint`."""

    def standardiser(self, given: str, /) -> Standardiser | None:
        """The standardiser of a name."""
