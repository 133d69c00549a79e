"""From NumPy to tensors on a device. On CUDA the host memory is pinned and the copy runs beside the computation.

batch = on_device(step, torch.device("cuda"))
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from larvatus.core.arrays import is_constant
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import UsageError
from larvatus.core.ranges import short_repr

B = TypeVar("B", TokenBatch[Any], TrainingBatch[Any])


def choose_device(device: str | torch.device) -> torch.device:
    """The device that is asked for, if it is here; "auto" is a GPU where there is one."""
    cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        return torch.device("cuda" if cuda else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError, ValueError) as fault:
        raise UsageError(f"--device {short_repr(device)} is no device; use auto, cpu or cuda") from fault
    if chosen.type == "cuda" and (chosen.index or 0) >= cuda:
        here = f"there are {cuda}, from cuda:0 on" if cuda else "no CUDA device here"
        raise UsageError(f"--device {chosen}: {here}; use --device {'cuda' if cuda else 'cpu'}")
    usable = chosen.type == "cuda" or (chosen.type == "mps" and torch.backends.mps.is_available())
    if not usable and (chosen.type != "cpu" or chosen.index):
        raise UsageError(f"--device {chosen}: nothing is computed there; use --device cpu")
    return chosen


def on_device(batch: B, device: torch.device | str) -> B:
    """The same batch of tensors on the device. `lengths` goes with the rest: no layout on CUDA needs it on the host."""
    target = torch.device(device)

    def move(array: npt.NDArray[np.int64]) -> Tensor:
        if is_constant(array) and target.type == "cuda":  # one number: nothing to copy
            return torch.full((len(array),), int(array[0]), dtype=torch.int64, device=target)
        if not array.flags.writeable:  # a view into a shard: torch warns about memory it may not write
            array = array.copy()
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if target.type == "cuda":
            return tensor.pin_memory().to(target, non_blocking=True)
        return tensor.to(target)

    moved: B = batch.map(move)
    return moved
