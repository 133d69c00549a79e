"""From NumPy to tensors on a device. On CUDA the host memory is pinned and the copy runs beside the computation.

batch = on_device(step, torch.device("cuda"))
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from larvatus.batch import TokenBatch, TrainingBatch

B = TypeVar("B", TokenBatch[Any], TrainingBatch[Any])


def on_device(batch: B, device: torch.device | str) -> B:
    """The same batch of tensors on the device. `lengths` goes with the rest: no layout on CUDA needs it on the host."""
    target = torch.device(device)

    def move(array: npt.NDArray[np.int64]) -> Tensor:
        if not array.flags.writeable:  # a view into a shard: torch warns about memory it may not write
            array = array.copy()
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if target.type == "cuda":
            return tensor.pin_memory().to(target, non_blocking=True)
        return tensor.to(target)

    moved: B = batch.map(move)
    return moved
