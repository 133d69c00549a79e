"""Whether every process has all weights or a part of them, and how the gradients of ranks are added up.

    larvatus pretrain bert … --parallel auto | replicate | shard

Replicated, each process has all weights, gradients and moments. Sharded (Rajbhandari et al. 2020, *ZeRO*; here FSDP2,
`torch.distributed.fsdp.fully_shard`), each of n processes has an n-th of them: a layer's weights come together while it
is computed, and its gradients are summed and sharded as soon as they are there. Both come to the same numbers. Files
hold whole tensors under the same names either way, so any number of processes, sharded or not, can resume from them.

    gradients = build_gradients(parameters, ranks)
    gradients.begin()                        # before the first microbatch of a step
    with gradients.last():                   # around the backward pass of this rank's last microbatch
        loss.backward()
    failed = gradients.finish(failed=False)  # whether any rank failed; else the gradients are those of the whole step
    norm = gradients.clip(1.0)

Replicated gradients (DDP; Li et al. 2020, *PyTorch distributed: experiences on accelerating data parallel training*)
are views of flat buckets, in the order in which the backward pass reaches them. In a rank's last microbatch a bucket is
sent as soon as it is complete, while the backward pass continues with the layers below; nothing is copied. A parameter
without a gradient on one rank counts as zero there; one without any has none, as in a single process.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from larvatus.core.errors import UsageError
from larvatus.models.nn.block_stack import BlockStack
from larvatus.models.nn.device import memory_of
from larvatus.training.engine.ranks import Ranks, waiting
from larvatus.training.engine.settings import Parallel

BYTES_TRAINED = 16
"""Bytes of a trainable weight: itself, its gradient and the two moments of Adam, 4 bytes each."""
LEAST_TORCH = "2.13"
ROOM = 0.5
"""Share of the free memory that these may take; the rest is for what a pass keeps."""
SHARDED_OPTIMIZERS = ("adamw", "muon")
"""AdamW looks at each number by itself, Muon gathers its matrices; others have norms or means of whole matrices."""
BUCKET_BYTES = 25 << 20
FIRST_BYTES = 1 << 20
"""Size of the first bucket: small, so that communication starts early."""


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is sharded over ranks (a `DTensor`, which takes half a second to import)."""
    return hasattr(tensor, "full_tensor")


def local_tensor(tensor: Tensor) -> Tensor:
    """The part of a tensor on this rank, which shares memory with it, or all of it."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def should_shard(parallel: Parallel, *, ranks: Ranks, model: nn.Module, optimizer: str, device: str) -> bool:
    """Whether to shard a model: as requested, or where training it would take more than half of the free memory."""
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
    """Whether FSDP sums gradients that came only on some ranks: an objective may have no target on a rank.

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

    Inside, weights outside of blocks are whole, so that parts of the network can be called on their own.
    """
    sharded: Any = model if hasattr(model, "unshard") else None
    if sharded is not None:
        sharded.unshard()
    try:
        yield
    finally:
        if sharded is not None:
            sharded.reshard()


def build_gradients(parameters: Sequence[nn.Parameter], ranks: Ranks) -> Gradients:
    """By what the parameters are, and how many ranks there are."""
    if any(map(is_sharded, parameters)):
        return ShardedGradients(parameters)
    return Gradients(parameters) if ranks.count == 1 else ReplicatedGradients(parameters, ranks)


class Gradients:
    """Gradients of one process: what the backward pass leaves. Other kinds override what differs."""

    equal = False
    """Whether every rank must make as many passes as every other, since each pass sends something."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = parameters

    def begin(self) -> None:
        """Before the first microbatch of a step."""

    @contextmanager
    def last(self) -> Iterator[None]:
        """Around this rank's last backward pass."""
        yield

    def finish(self, *, failed: bool) -> bool:
        """Complete the sums; whether memory ran out on any rank."""
        return failed

    def clip(self, most: float) -> Tensor:
        """The norm of all gradients, which are scaled down to `most`."""
        return torch.nn.utils.clip_grad_norm_(self.parameters, most or math.inf)


class ShardedGradients(Gradients):
    """FSDP sums gradients in every backward pass, and each rank keeps its part of them.

    A rank whose memory runs out cannot be helped: the others wait in the middle of a layer.
    """

    equal = True

    def clip(self, most: float) -> Tensor:
        grads = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads)
        if is_sharded(norm):
            norm = norm.full_tensor()  # type: ignore[attr-defined]
        torch.nn.utils.clip_grads_with_norm_(self.parameters, most or math.inf, norm)
        return norm


@dataclass(eq=False)
class Bucket:
    """Neighbouring gradients in one flat tensor."""

    flat: Tensor
    views: list[tuple[nn.Parameter, Tensor]]
    missing: int = 0
    """Gradients of the last backward pass that have not come yet."""


class ReplicatedGradients(Gradients):
    """Every rank has all parameters, and all gradients."""

    def __init__(self, parameters: Iterable[nn.Parameter], ranks: Ranks) -> None:
        super().__init__([p for p in dict.fromkeys(parameters) if p.requires_grad])
        self.ranks = ranks
        self.buckets = [_bucket(group) for group in group_into_buckets(list(reversed(self.parameters)))]
        self._home = {p: bucket for bucket in self.buckets for p, _ in bucket.views}
        self._used: set[nn.Parameter] = set()
        self._sent: list[dist.Work] = []
        self._sending = False
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(self._came)

    def begin(self) -> None:
        self._used.clear()
        self._sent, self._sending = [], False
        for bucket in self.buckets:
            bucket.flat.zero_()
            bucket.missing = len(bucket.views)
            for parameter, view in bucket.views:
                parameter.grad = view

    @contextmanager
    def last(self) -> Iterator[None]:
        self._sending = True
        try:
            yield
        finally:
            self._sending = False

    def _came(self, parameter: Tensor) -> None:
        """Called by autograd once a parameter has all of its gradient of a backward pass, however often it is used."""
        assert isinstance(parameter, nn.Parameter)
        self._used.add(parameter)
        if self._sending:
            self._home[parameter].missing -= 1
            while len(self._sent) < len(self.buckets) and self.buckets[len(self._sent)].missing == 0:
                self._send()

    def _send(self) -> None:
        """The next bucket: all ranks send them in one order."""
        work = dist.all_reduce(self.buckets[len(self._sent)].flat, async_op=True)
        assert work is not None
        self._sent.append(work)

    def finish(self, *, failed: bool) -> bool:
        while len(self._sent) < len(self.buckets):
            self._send()
        with waiting():
            for work in self._sent:
                work.wait()
        flags = self.ranks.totals([int(failed), *(int(p in self._used) for p in self.parameters)])
        for parameter, used in zip(self.parameters, flags[1:], strict=True):
            if not used:
                parameter.grad = None
        return flags[0] > 0


def group_into_buckets(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Runs of parameters of one kind and device, of about `BUCKET_BYTES` each."""
    groups: list[list[nn.Parameter]] = []
    size, most = 0, FIRST_BYTES
    for parameter in parameters:
        alike = groups and (groups[-1][0].dtype, groups[-1][0].device) == (parameter.dtype, parameter.device)
        if not alike or size >= most:
            most = BUCKET_BYTES if groups else FIRST_BYTES
            groups.append([])
            size = 0
        groups[-1].append(parameter)
        size += parameter.numel() * parameter.element_size()
    return groups


def _bucket(parameters: Sequence[nn.Parameter]) -> Bucket:
    flat = torch.zeros(sum(p.numel() for p in parameters), dtype=parameters[0].dtype, device=parameters[0].device)
    parts = flat.split([p.numel() for p in parameters])
    return Bucket(flat, [(p, part.view(p.shape)) for p, part in zip(parameters, parts, strict=True)])


# torch.distributed.tensor is imported where it is used: it takes half a second, and most runs have one process
