"""Names for the kinds of NumPy arrays that the house passes around.

    def edges(lengths: Ints) -> Ints: ...

`Integers` are of any width, as they come from files and tokenizers; `Ints` are what is computed with.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Integers = npt.NDArray[np.integer[Any]]
Bits = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
