"""Mean and spread of vectors in one streaming pass, in float64 (Welford 1962; Chan, Golub & LeVeque 1983).

    moments = RunningMoments()
    for x_LND in blocks:              # L layers of N units
        moments.add(x_LND)
    moments.mean, moments.variance    # [L, D], as one pass over all units at once would give

Each block is centred before its squares are summed, and blocks are joined by the distance of their means. (E[x²] −
E[x]² subtracts two nearly equal numbers: on a rogue dimension, whose mean is large, it loses every digit or turns
negative.) Layers of one unit come together, so covariances *between* layers are kept too: the variance of any mix of
layers follows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles


class RunningMoments:
    """What is known of the vectors so far. It grows with `add` and `merge`."""

    def __init__(self) -> None:
        self.count = 0
        self.skipped = 0
        """Units left out, since they have no vector (NaN)."""
        self.mean: Doubles = np.empty((0, 0))
        """[L, D]"""
        self._products: Doubles = np.empty((0, 0, 0))
        """[D, L, L] sums of (x_l − μ_l)(x_m − μ_m)."""

    def add(self, x_LND: npt.NDArray[Any]) -> None:
        """Take in the vectors of N units; a unit with a number that is not finite is skipped and counted."""
        sound = np.isfinite(x_LND).all(axis=(0, 2))
        self.skipped += int((~sound).sum())
        x = x_LND[:, sound].astype(np.float64)
        if not x.shape[1]:
            return
        mean = x.mean(axis=1)
        centred_DLN = (x - mean[:, None]).transpose(2, 0, 1)
        self._join(x.shape[1], mean, centred_DLN @ centred_DLN.transpose(0, 2, 1))

    def merge(self, other: RunningMoments) -> None:
        """Take in what another pass has seen."""
        self.skipped += other.skipped
        if other.count:
            self._join(other.count, other.mean, other._products)

    def _join(self, count: int, mean: Doubles, products: Doubles) -> None:
        if not self.count:
            self.count, self.mean, self._products = count, mean.copy(), products.copy()
            return
        total = self.count + count
        apart_DL = (mean - self.mean).T
        outer = apart_DL[:, :, None] * apart_DL[:, None, :]
        self._products = self._products + products + outer * (self.count * count / total)
        self.mean = self.mean + apart_DL.T * (count / total)
        self.count = total

    @property
    def covariance(self) -> Doubles:
        """[D, L, L] of each dimension, between layers (divided by the count, as in eq. 11.11)."""
        return self._products / self.count

    @property
    def variance(self) -> Doubles:
        """[L, D]"""
        return np.diagonal(self.covariance, axis1=1, axis2=2).T
