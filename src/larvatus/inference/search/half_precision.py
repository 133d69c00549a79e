"""Scalar products of float16 vectors with float32 queries, without a copy of the vectors in float32.

    >>> half_products(np.array([[0.5, 0.25]], np.float16), np.array([[0.6, 0.8]], np.float32)).tolist()
    [[0.5]]

The library `numkong`, which comes with `usearch` (the extra `index`), multiplies float16 by float16 and adds up in
float32. A query therefore goes in as two float16 vectors, the second for what rounding took from the first,

    q ≈ h + l / 2¹¹        h = float16(q), l = float16(2¹¹ (q − h))        x · q ≈ x · h + x · l / 2¹¹

which keeps 22 bits of each number, as many as the additions in float32 do. B vectors, Q queries, D dimensions.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import numpy as np

from larvatus.core.arrays import Floats, Records

LOW = 2048.0
"""What the rest of a rounded number is multiplied by: 2¹¹, so that float16 keeps all its digits."""


@cache
def has_half_products() -> bool:
    return find_spec("numkong") is not None


def half_products(x_BD: Records, queries_QD: Floats) -> Floats:
    """The products [Q, B] in float32."""
    from numkong import dots_pack, dots_packed

    high_QD = queries_QD.astype(np.float16)
    low_QD = ((queries_QD - high_QD.astype(np.float32)) * np.float32(LOW)).astype(np.float16)
    both = dots_pack(np.concatenate([high_QD, low_QD]))
    high_BQ, low_BQ = np.split(np.asarray(dots_packed(np.ascontiguousarray(x_BD), both)), 2, axis=1)
    products_QB: Floats = np.ascontiguousarray((high_BQ + low_BQ / np.float32(LOW)).T)
    return products_QB
