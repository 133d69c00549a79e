"""What is learnt beside a task from texts of its own, with a share α of the loss of each step.

    L = (1 − α) L_task + α L_beside

    Fitting(…, beside=HiddenPrompts(…))           # tasks/few_shot/hidden.py: PET's masked language model

Which texts a step reads, and what of them is hidden, follows from seed and step, as all else does: a run that was
stopped goes on to the same weights.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.models.network import Network
from larvatus.models.objectives import Loss


class AuxiliaryLoss(Protocol):
    @property
    def share(self) -> float:
        """α."""

    def batch(self, step: int, *, seed: int) -> TrainingBatch[Ints]:
        """What a step reads."""

    def count(self, batch: TrainingBatch[Ints]) -> int:
        """How many predictions its mean is over."""

    def loss(self, model: Network, batch: TrainingBatch[Tensor], *, limit: int) -> Loss:
        """The sum of the losses of a microbatch."""
