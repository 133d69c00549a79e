"""Microbatches on their device before they are used: copied by a thread of their own, beside the computation.

    stage = Stage("cuda")
    staged = stage(microbatch)         # ahead of time, on any thread: into pinned memory, copied on a stream of its own
    batch = staged.take()              # where it is read: the device waits for the copy, the host does not

Pinned memory comes from torch's cache, which gives the same few buffers again once their copies are done. On a CPU
tensors are views of the arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.models.nn.device import on_device


@dataclass(frozen=True)
class Staged:
    """A batch on its way to a device, or there."""

    tensors: TrainingBatch[Tensor]
    arrived: torch.cuda.Event | None
    """On the stream that copies; None where nothing is copied."""

    def take(self) -> TrainingBatch[Tensor]:
        """The batch, for what is launched from here on, on the stream that is current."""
        if self.arrived is not None:
            stream = torch.cuda.current_stream(self.tensors.tokens.ids.device)
            stream.wait_event(self.arrived)
            self.tensors.map(lambda tensor: tensor.record_stream(stream))  # so that its memory is not given away
        return self.tensors


class Stage:
    """Sends batches to a device."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self._stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None

    def __call__(self, batch: TrainingBatch[Ints]) -> Staged:
        if self._stream is None:
            return Staged(on_device(batch, self.device), None)
        with torch.cuda.stream(self._stream):  # its device is then current on this thread, too
            tensors = on_device(batch, self._stream.device)
            return Staged(tensors, self._stream.record_event())
