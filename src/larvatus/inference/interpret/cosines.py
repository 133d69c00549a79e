"""Expected cosine of pairs of word instances, layer by layer, in one pass.

Two random words of a large corpus hardly ever share a passage, but in a sample of passages they often do, and then
share its topic. So all pairs from *different* passages are used. With the sum s_b of the n_b unit vectors of passage
b, S = Σ s_b and n = Σ n_b, no pair needs to be formed:

    A   = (‖S‖² − Σ ‖s_b‖²) / (n² − Σ n_b²)        expected cosine (Ethayarajh 2019)
    A_d = (S_d² − Σ s_bd²) / (n² − Σ n_b²)         dimension d's contribution (Timkey & van Schijndel 2021); A = Σ_d A_d

The standard error is that of a U-statistic over passages: the influence of b on A is about 2 (s_b · S/n − n_b A) / n,
and the squares of all influences follow from Σ s_b s_bᵀ, Σ n_b s_b and Σ n_b².
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles


def unit_vectors(x_LND: npt.NDArray[Any]) -> tuple[Doubles, npt.NDArray[np.bool_]]:
    """Unit vectors of the units with a direction in every layer, and which units these are, [N]."""
    x = x_LND.astype(np.float64)
    lengths = np.linalg.norm(x, axis=-1)
    sound = (np.isfinite(lengths) & (lengths > 0)).all(axis=0)
    return x[:, sound] / lengths[:, sound, None], sound


class RunningCosines:
    """Running sums over L layers of D dimensions."""

    def __init__(self, layers: int, size: int) -> None:
        self.count = self.passages = 0
        self.total = np.zeros((layers, size))
        self._outer = np.zeros((layers, size, size))
        self._weighted = np.zeros((layers, size))
        self._sizes = 0

    def add(self, u_LND: Doubles) -> None:
        """Add the unit vectors of one passage."""
        count = u_LND.shape[1]
        if not count:
            return
        sum_LD = u_LND.sum(axis=1)
        self.count += count
        self.passages += 1
        self.total += sum_LD
        self._outer += sum_LD[:, :, None] * sum_LD[:, None, :]
        self._weighted += count * sum_LD
        self._sizes += count**2

    def expected(self, layer: int) -> float:
        return float(self.contributions(layer).sum())

    def contributions(self, layer: int) -> Doubles:
        """[D]; their sum is the expected cosine."""
        within = np.diagonal(self._outer[layer])
        shares: Doubles = (self.total[layer] ** 2 - within) / (self.count**2 - self._sizes)
        return shares

    def standard_error(self, layer: int) -> float:
        mean, expected = self.total[layer] / self.count, self.expected(layer)
        squares = (
            mean @ self._outer[layer] @ mean - 2 * expected * (mean @ self._weighted[layer]) + expected**2 * self._sizes
        )
        excess = (mean @ self.total[layer] - expected * self.count) ** 2 / self.passages  # influences sum to 0
        return 2 * math.sqrt(max(0.0, float(squares - excess))) / self.count


class RunningCovariance:
    """Covariance of all dimensions with each other, for L layers, by joining centred blocks."""

    def __init__(self, layers: int, size: int) -> None:
        self.count = 0
        self._mean = np.zeros((layers, size))
        self._products = np.zeros((layers, size, size))

    def add(self, x_LND: Doubles) -> None:
        count = x_LND.shape[1]
        if not count:
            return
        mean = x_LND.mean(axis=1)
        centred = x_LND - mean[:, None]
        apart, total = mean - self._mean, self.count + count
        self._products += centred.transpose(0, 2, 1) @ centred
        self._products += apart[:, :, None] * apart[:, None, :] * (self.count * count / total)
        self._mean += apart * (count / total)
        self.count = total

    @property
    def value(self) -> Doubles:
        """[L, D, D]"""
        return self._products / self.count
