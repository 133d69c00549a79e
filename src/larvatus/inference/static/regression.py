"""Rows of a table whose means are near to a teacher's vectors of texts: ridge regression towards given rows.

    rows_VD = fit_rows(rows_VD, ids_N, lengths_S, targets_SD, ridge=0.1)

The table X minimises

    Σ_s ‖ 1/T_s Σ_{t ∈ s} x_t − y_s ‖² + λ Σ_v ‖ x_v − x⁰_v ‖²        λ = ridge · mean_v (AᵀA)_vv over tokens that occur

with A [S, V] the share of each token in each text: a linear least-squares form of *Tokenlearn* (Minish Lab 2024), which
needs no learning rate and has one solution. Rows of tokens that do not occur stay as they are. The normal equations
(AᵀA + λ) Δ = Aᵀ(Y − A X⁰) are solved by conjugate gradients (Hestenes & Stiefel 1952), all dimensions at once. A is
never built: A X is a mean of rows, and Aᵀ R adds each text's residual to its tokens. S texts, N tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

STEPS = 30
TOLERANCE = 1e-3
"""Steps end when the residual has this share of its first length, or after `STEPS`."""


@dataclass(frozen=True, eq=False)
class MeanOfRows:
    """The matrix A: texts end to end, each the mean of its tokens' rows."""

    ids_N: Tensor
    lengths_S: Tensor
    vocabulary: int

    def apply(self, rows_VD: Tensor) -> Tensor:
        """A X: [V, D] → [S, D]."""
        starts_S = torch.cumsum(self.lengths_S, 0) - self.lengths_S
        return torch.nn.functional.embedding_bag(self.ids_N, rows_VD, starts_S, mode="mean")

    def transposed(self, x_SD: Tensor) -> Tensor:
        """Aᵀ R: [S, D] → [V, D]."""
        owners_N = torch.repeat_interleave(torch.arange(len(self.lengths_S)), self.lengths_S)
        shares_SD = x_SD / self.lengths_S.clamp_min(1)[:, None]
        out_VD = x_SD.new_zeros(self.vocabulary, x_SD.shape[1])
        for low in range(0, len(self.ids_N), 1 << 18):  # not all tokens' residuals at once
            part = slice(low, low + (1 << 18))
            out_VD.index_add_(0, self.ids_N[part], shares_SD.index_select(0, owners_N[part]))
        return out_VD

    def diagonal(self) -> Tensor:
        """(AᵀA)_vv, texts in which a token is repeated counted as if its places were apart: [V]."""
        shares_N = torch.repeat_interleave(1.0 / self.lengths_S.clamp_min(1).float() ** 2, self.lengths_S)
        return torch.zeros(self.vocabulary).index_add_(0, self.ids_N, shares_N)


@torch.inference_mode()
def fit_rows(rows_VD: Tensor, ids_N: Tensor, lengths_S: Tensor, targets_SD: Tensor, *, ridge: float) -> Tensor:
    """The rows [V, D] that fit the targets of texts, near to the given rows."""
    means = MeanOfRows(ids_N, lengths_S, len(rows_VD))
    diagonal_V = means.diagonal()
    penalty = ridge * float(diagonal_V[diagonal_V > 0].mean())
    change_VD = torch.zeros_like(rows_VD)
    residual_VD = means.transposed(targets_SD - means.apply(rows_VD))
    direction_VD = residual_VD.clone()
    norms_D = residual_VD.square().sum(0)
    enough_D = norms_D * TOLERANCE**2
    for _ in range(STEPS):
        if bool((norms_D <= enough_D).all()):
            break
        curved_VD = means.transposed(means.apply(direction_VD)) + penalty * direction_VD
        steps_D = norms_D / (direction_VD * curved_VD).sum(0).clamp_min(1e-30)
        change_VD += steps_D * direction_VD
        residual_VD -= steps_D * curved_VD
        after_D = residual_VD.square().sum(0)
        direction_VD = residual_VD + (after_D / norms_D.clamp_min(1e-30)) * direction_VD
        norms_D = after_D
    return rows_VD + change_VD
