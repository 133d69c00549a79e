"""Whether every process of a run has all weights, or a part of them; gathering and dealing out what is sharded.

    larvatus pretrain bert … --parallel auto | replicate | shard

Replicated, each process has all weights, gradients and moments (`gradients.py`). Sharded (Rajbhandari et al. 2020,
*ZeRO*; here FSDP2, `torch.distributed.fsdp.fully_shard`), each of n processes has an n-th of them: a layer's weights
come together while it is computed, and its gradients are summed and sharded as soon as they are there. Both come to the
same numbers. Files hold whole tensors under the same names either way, so that any number of processes, sharded or
not, continues from them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from larvatus.core.errors import UsageError
from larvatus.models.nn.block_stack import BlockStack
from larvatus.models.nn.device import memory_of
from larvatus.training.engine.gradients import is_sharded
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.settings import Parallel

# torch.distributed.tensor is imported where it is used: it takes half a second, and most runs have one process

BYTES_TRAINED = 16
"""Bytes of a trainable weight: itself, its gradient and the two moments of Adam, 4 bytes each."""
LEAST_TORCH = "2.13"
ROOM = 0.5
"""Share of the free memory that these may take; the rest is for what a pass keeps."""
SHARDED_OPTIMIZERS = ("adamw", "muon")
"""AdamW looks at each number alone, Muon gathers its matrices; others have norms or means of whole matrices."""


def should_shard(parallel: Parallel, *, ranks: Ranks, model: nn.Module, optimizer: str, device: str) -> bool:
    """Whether to shard a model: as asked, or where training it would take more than half of the free memory."""
    if ranks.count == 1:
        return False
    able = optimizer in SHARDED_OPTIMIZERS
    if parallel == "shard" and able and not _torch_can():
        raise UsageError(
            f"--parallel shard needs torch {LEAST_TORCH}, and here is {torch.__version__}; update it, "
            "or give --parallel replicate"
        )
    if parallel == "shard" and not able:
        raise UsageError(
            f"--parallel shard works with optimizer.type = {' or '.join(SHARDED_OPTIMIZERS)}, not {optimizer}; "
            "give --parallel replicate"
        )
    if parallel != "auto":
        return parallel == "shard"
    needed = BYTES_TRAINED * sum(p.numel() for p in model.parameters())
    return able and _torch_can() and ranks.any(needed > ROOM * free_memory(device))


def _torch_can() -> bool:
    """Whether FSDP sums gradients that came on some ranks alone: an objective may have no target on a rank.

    Older versions would wait for each other for ever.
    """
    from torch.distributed.fsdp import FSDPModule

    return hasattr(FSDPModule, "set_reduce_scatter_unused_params")


def free_memory(device: str) -> int:
    """Bytes of the device that this process may take; processes on one machine share its memory."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(device)[0])
    return memory_of(device) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def shard(model: nn.Module, device: str) -> None:
    """Leave this process its part of the weights, block by block; the model may lie on the CPU until then."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    kind = torch.device(device).type
    mesh = init_device_mesh(kind, (torch.distributed.get_world_size(),))
    for stack in [part for part in model.modules() if isinstance(part, BlockStack)]:
        for block in stack.blocks:
            fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for part in model.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)  # sums: the loss is divided by the counts of the whole step
            part.set_force_sum_reduction_for_comms(True)  # gloo has no means
            part.set_reduce_scatter_unused_params(True)


def gather_tensors(named: Mapping[str, Tensor], *, keep: bool) -> dict[str, Tensor]:
    """Whole tensors from the parts of all ranks, one after another: each rank calls it, those that `keep` have them."""
    whole: dict[str, Tensor] = {}
    for name, tensor in named.items():
        full = tensor.full_tensor().cpu() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]
        if keep:
            whole[name] = full
    return whole


def local_part(whole: Tensor, like: Tensor) -> Tensor:
    """A whole tensor as `like` is kept here: this rank's part of it, or all of it, on the device of `like`."""
    whole = whole.to(like.device, like.dtype)
    if not is_sharded(like):
        return whole
    from torch.distributed.tensor import distribute_tensor

    sharded: Any = like
    return distribute_tensor(whole, sharded.device_mesh, sharded.placements, src_data_rank=None)


def full_tensor(part: Tensor, like: Tensor) -> Tensor:
    """All of a tensor of which each rank has the part that it has of `like`; every rank calls it."""
    from torch.distributed.tensor import DTensor

    sharded: Any = like
    placed = DTensor.from_local(
        part, sharded.device_mesh, sharded.placements, run_check=False, shape=sharded.shape, stride=sharded.stride()
    )
    whole: Tensor = placed.full_tensor()
    return whole


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Around evaluations of a model that may be sharded: all ranks make them; afterwards it is as it was.

    Inside, what stands outside of blocks is whole, so that parts of the network can be asked on their own.
    """
    sharded: Any = model if hasattr(model, "unshard") else None
    if sharded is not None:
        sharded.unshard()
    try:
        yield
    finally:
        if sharded is not None:
            sharded.reshard()
