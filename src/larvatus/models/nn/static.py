"""A table of one vector for each token, whatever its context: what a static model has instead of an encoder.

    v = normalise(Σ_t x_t / T)        x_t: row of token t, with its weight already multiplied in

The rows come from a contextual teacher (`inference/vectors/distil.py`). The mean of rows is the vector of a text in SIF
(Arora, Liang & Ma 2017, *A simple but tough-to-beat baseline for sentence embeddings*) and in Model2Vec (Tulkens & van
Dongen 2024). As an encoder, it gives every token its row, so that pooling, heads, fine-tuning and the server need
nothing special. N tokens, V vocabulary, D size of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NoReturn

import torch
from torch import Tensor, nn

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import RecipeError
from larvatus.core.ranges import LARGEST_SIZE, Deviation, Size
from larvatus.models.nn.encoder_base import Encoder, ModelConfig


class StaticConfig(ModelConfig, tag_field="type", tag="static"):
    text_pool: ClassVar[str] = "mean"
    """Pooling of a text: no token summarises the others."""

    hidden: Size = 256
    """Size of a token's vector."""
    init: Deviation = 0.02
    """Standard deviation of the initial weights."""

    @property
    def layers(self) -> int:
        """One: the table is both the embeddings and the last layer."""
        return 1

    @property
    def max_positions(self) -> int:
        """No limit: a text is read as a whole."""
        return LARGEST_SIZE

    @property
    def kept_numbers(self) -> int:
        return self.hidden

    def least_weights(self, vocabulary: int) -> int:
        return vocabulary * self.hidden

    def build(self, vocabulary: int) -> TokenTable:
        return TokenTable(self, vocabulary)

    def narrowed(self, share: float) -> NoReturn:
        raise RecipeError("a static model has no generator; leave out replaced-tokens, or set its generator = 0")


class TokenTable(Encoder):
    """Row x_t for each token t."""

    config: StaticConfig

    def __init__(self, config: StaticConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.table = nn.Embedding(vocabulary, config.hidden)

    @property
    def word_vectors(self) -> Tensor:
        return self.table.weight

    def forward(
        self, batch: TokenBatch[Tensor], *, layers: Sequence[int] | None = None, limit: int | None = None
    ) -> Tensor | list[Tensor]:
        x_ND: Tensor = self.table(batch.ids)
        return x_ND if layers is None else [x_ND for _ in layers]

    def means(self, ids_N: Tensor, starts_B: Tensor) -> Tensor:
        """Mean row of each text, texts end to end from these starts: [N], [B] → [B, D]; 0 for one without tokens."""
        return torch.nn.functional.embedding_bag(ids_N, self.table.weight, starts_B, mode="mean")

    def parts(self) -> list[tuple[int, nn.Module]]:
        return [(0, self.table)]

    def flops(self, length: int) -> int:
        """A sum forward, and one backward."""
        return 2 * self.config.hidden
