"""An encoder with the objectives it is pretrained on.

    tiny = TransformerConfig(layers=2, hidden=128, heads=2)
    model = Pretraining.build(tiny, [MaskedLMConfig(), NextSentenceConfig()], 30522, seed=1)
    losses = model(batch)                         # {"masked-lm": Loss, "next-sentence": Loss}
    total, losses = model.loss(batch, counts)     # one number to call backward on

Adding an objective means one file beside this one and its line in `ObjectiveConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from msgspec import Struct
from torch import Tensor, nn

from larvatus.batch import TrainingBatch
from larvatus.errors import DataError, RecipeError
from larvatus.nn.initialise import initialise
from larvatus.nn.transformer import Transformer, TransformerConfig
from larvatus.objectives.loss import Loss, combine
from larvatus.objectives.masked_lm import MaskedLM, MaskedLMConfig
from larvatus.objectives.next_sentence import NextSentence, NextSentenceConfig
from larvatus.objectives.sentence_order import SentenceOrder, SentenceOrderConfig
from larvatus.objectives.span_boundary import SpanBoundary, SpanBoundaryConfig

ObjectiveConfig = MaskedLMConfig | NextSentenceConfig | SpanBoundaryConfig | SentenceOrderConfig
Objective = MaskedLM | NextSentence | SpanBoundary | SentenceOrder


def tag(config: Struct) -> str:
    """The name an objective has in recipes, losses and weights: ``masked-lm``."""
    return str(config.__struct_config__.tag)


class Pretraining(nn.Module):
    def __init__(self, model: TransformerConfig, objectives: Sequence[ObjectiveConfig], vocabulary: int) -> None:
        """Weights as torch makes them: `build` initialises them as published, loading replaces them."""
        super().__init__()
        names = [tag(config) for config in objectives]
        if len(set(names)) < len(names):
            raise RecipeError(f"an objective is named twice: {', '.join(names)}; name each once, with a weight")
        self.encoder = Transformer(model, vocabulary)
        self.objectives = nn.ModuleDict({tag(config): config.build(model, vocabulary) for config in objectives})

    @classmethod
    def empty(cls, model: TransformerConfig, objectives: Sequence[ObjectiveConfig], vocabulary: int) -> Pretraining:
        """On CPU with memory but no values, without a single random draw: for weights that come from elsewhere."""
        with torch.device("meta"):
            shell = cls(model, objectives, vocabulary)
        return shell.to_empty(device="cpu")

    @classmethod
    def build(
        cls, model: TransformerConfig, objectives: Sequence[ObjectiveConfig], vocabulary: int, seed: int
    ) -> Pretraining:
        """Initialised as published; the same numbers for the same seed, on every machine."""
        built = cls.empty(model, objectives, vocabulary)
        initialise(built, seed=seed, std=model.init)
        return built

    @property
    def heads(self) -> Mapping[str, Objective]:
        """The objectives with their types."""
        return cast(Mapping[str, Objective], self.objectives)

    def forward(
        self, batch: TrainingBatch[Tensor], *, accuracy: bool = False, limit: int | None = None
    ) -> dict[str, Loss]:
        """Losses by objective; `limit` as in `Transformer`."""
        for name, objective in self.heads.items():
            if objective.needs not in batch.targets:
                raise DataError(
                    f"{name} needs {objective.needs.what}, but the batch has none; check packing and corruption"
                )
        z_ND = self.encoder(batch.tokens, limit=limit)
        return {
            name: objective.loss(z_ND, batch, self.encoder, accuracy=accuracy) for name, objective in self.heads.items()
        }

    def loss(
        self, batch: TrainingBatch[Tensor], counts: Mapping[str, float], *, limit: int | None = None
    ) -> tuple[Tensor, dict[str, Loss]]:
        """What to call `backward` on for one microbatch, when its whole step makes `counts` predictions."""
        losses = self(batch, limit=limit)
        return combine(losses, counts), losses
