"""Matryoshka representation learning: the first dimensions of a vector are a good vector too (Kusupati et al. 2022).

    L = Σ_d w_d L_inner(x[: d] / ‖x[: d]‖)                  d over some sizes, such as 384, 192, 96

    Matryoshka(inner=MultipleNegatives(), dimensions=(384, 192, 96))

The vectors of a model trained so may be cut to any of these sizes and normalised again. The full size should
be among them: vectors that are not cut would not be trained otherwise.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.errors import UsageError
from larvatus.core.ranges import Size, Weight
from larvatus.core.targets import SentenceTargets
from larvatus.models.objectives.sentence.base import SentenceLoss, Texts
from larvatus.models.objectives.sentence.losses import PlainLoss


class Matryoshka(SentenceLoss, tag="matryoshka"):
    inner: PlainLoss
    """The loss of each size."""
    dimensions: tuple[Size, ...]
    """Sizes of the vectors that are trained."""
    weights: tuple[Weight, ...] = ()
    """Weight of each size; all 1 by default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.dimensions or len(set(self.dimensions)) < len(self.dimensions):
            raise UsageError(f"Matryoshka needs one size or more, each once, not {list(self.dimensions)}")
        if self.weights and len(self.weights) != len(self.dimensions):
            raise UsageError(f"Matryoshka has {len(self.dimensions)} sizes, but {len(self.weights)} weights")

    @property
    def whole(self) -> bool:
        return self.inner.whole

    @property
    def contrasts(self) -> bool:
        return self.inner.contrasts

    def __call__(self, x_TD: Texts, targets: SentenceTargets[Tensor]) -> Tensor:
        assert isinstance(x_TD, Tensor), "only one vector for each text can be cut"
        weights = self.weights or (1.0,) * len(self.dimensions)
        losses = [
            weight * self.inner(F.normalize(x_TD[:, :size].float(), dim=-1), targets)
            for size, weight in zip(self.dimensions, weights, strict=True)
        ]
        return torch.stack(losses).sum()
