"""Headers of `.npy` files that are written as a stream, so that a full disk is an error and not a signal."""

from __future__ import annotations

from typing import IO, Any

import numpy as np


def write_header(file: IO[bytes], dtype: Any, shape: tuple[int, ...]) -> None:
    """The header of an array whose rows follow."""
    described = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, described)
