"""How evenly vectors use their space.

**IsoScore*** (Rudman & Eickhoff 2024; IsoScore of Rudman et al. 2022 if the shrinkage ζ is 0). Of the n eigenvalues
λ of the covariance (1 − ζ) Σ + ζ Σ_0, scaled to length √n:

    δ = ‖λ̂ − 1‖ / √(2 (n − √n))        φ = (n − δ² (n − √n))² / n²        ι = (n φ − 1) / (n − 1)

ι is 1 if variance is the same in all directions and 0 if there is only one direction. It ignores the mean, on which the
expected cosine depends.
"""

from __future__ import annotations

import math

import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError


def isoscore_star(covariance: Doubles, target: Doubles | None = None, shrinkage: float = 0.0) -> float:
    """ι of a covariance [n, n], shrunk by ζ towards the target (the identity if none is given).

    The target is the covariance of a larger sample; ζ matters if there are few vectors for the dimensions.
    """
    n = len(covariance)
    if covariance.shape != (n, n) or n < 2:
        raise DataError(f"IsoScore needs a covariance of 2 or more dimensions, not {covariance.shape}")
    if not 0.0 <= shrinkage <= 1.0:
        raise DataError(f"shrinkage must be between 0 and 1, not {shrinkage}")
    if shrinkage:
        covariance = (1 - shrinkage) * covariance + shrinkage * (np.eye(n) if target is None else target)
    spectrum = np.maximum(np.linalg.eigvalsh(covariance), 0.0)
    length = float(np.linalg.norm(spectrum))
    if not length:
        return math.nan  # no variance at all
    scaled = spectrum * (math.sqrt(n) / length)
    defect = float(np.linalg.norm(scaled - 1.0)) / math.sqrt(2 * (n - math.sqrt(n)))
    share = (n - defect**2 * (n - math.sqrt(n))) ** 2 / n**2
    return (n * share - 1) / (n - 1)


def mean_pair_cosine(total: Doubles, count: int) -> float:
    """Mean cosine of all pairs of distinct vectors, from the sum of their unit vectors: (‖Σu‖² − n) / (n (n − 1))."""
    return (float(total @ total) - count) / (count * (count - 1))
