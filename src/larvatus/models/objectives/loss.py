"""What an objective returns: sums and counts, never means, so that microbatches, ranks and evaluations simply add up.

total objective = Σ over objectives   weight × Σ losses / number of predictions in the WHOLE step

>>> halves = Loss(total=torch.tensor(6.0), count=torch.tensor(2)), Loss(total=torch.tensor(3.0), count=torch.tensor(1))
>>> float(halves[0].mean), float(combine({"masked-lm": halves[0]}, {"masked-lm": 3}))
(3.0, 2.0)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from larvatus.core.batch import TrainingBatch
from larvatus.data.corruption import CorruptionConfig
from larvatus.models.nn.encoder import Encoder, EncoderConfig


@runtime_checkable
class WordObjective(Protocol):
    """Settings of an objective that predicts words of the vocabulary: how many are to be expected."""

    def words_per_token(self, corruption: CorruptionConfig | None) -> float:
        """For each token of text, on average: what a compiled step makes room for, and what a head costs."""


@runtime_checkable
class RestrictsModel(Protocol):
    """Settings of an objective that not every encoder can be trained on."""

    def check(self, model: EncoderConfig) -> None:
        """Refuse an encoder that it cannot be trained on."""


@runtime_checkable
class CustomForward(Protocol):
    """An objective that reads the batch in its own way, not from the encoder's layers: by a decoder, say."""

    def read(self, batch: TrainingBatch[Tensor], encoder: Encoder, *, limit: int | None) -> Tensor:
        """What its `loss` is computed from; `limit` as in `Encoder`."""


@dataclass(frozen=True, eq=False)
class Loss:
    total: Tensor
    """Sum of the losses of all predictions."""
    count: Tensor
    """How many predictions; those labelled −100 are in neither."""
    correct: Tensor | None = None
    """How many were right, where that was asked for."""
    positive: Tensor | None = None
    """Of a yes-or-no objective, how often the answer was yes, where accuracy was asked for."""
    weight: float = 1.0
    """Share of this objective in the step's loss."""

    @property
    def mean(self) -> Tensor:
        """Mean loss of a prediction; 0 where there is none."""
        return self.total / self.count.clamp(min=1)

    @property
    def accuracy(self) -> Tensor | None:
        return None if self.correct is None else self.correct / self.count.clamp(min=1)


def weighted_sum(losses: Mapping[str, Loss], counts: Mapping[str, float]) -> Tensor:
    """The number to call `backward` on, for one microbatch of a step in which `counts` predictions are made in all."""
    parts = [loss.total * (loss.weight / max(counts[name], 1.0)) for name, loss in losses.items()]
    return torch.stack(parts).sum()
