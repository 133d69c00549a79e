"""How the gradients of ranks are added up: not at all (one process), in buckets (replicated), or by FSDP (sharded).

    gradients = build_gradients(parameters, ranks)
    gradients.begin()                        # before the first microbatch of a step
    with gradients.last():                   # around the backward pass of this rank's last microbatch
        loss.backward()
    failed = gradients.finish(failed=False)  # whether any rank failed; else the gradients are those of the whole step
    norm = gradients.clip(1.0)

Replicated (DDP; Li et al. 2020, *PyTorch distributed: experiences on accelerating data parallel training*): gradients
are views of flat buckets, in the order in which the backward pass reaches them. In a rank's last microbatch a bucket
is sent as soon as it is complete, while the backward pass continues with the layers below; nothing is copied. A
parameter that got no gradient on one rank counts as zero there, one that got none anywhere has none, as in a single
process.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from larvatus.training.engine.rank_activity import waiting
from larvatus.training.engine.ranks import Ranks

BUCKET_BYTES = 25 << 20
FIRST_BYTES = 1 << 20
"""Size of the first bucket: small, so that communication starts early."""


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is sharded over ranks (a `DTensor`, which takes half a second to import)."""
    return hasattr(tensor, "full_tensor")


def local_tensor(tensor: Tensor) -> Tensor:
    """What of a tensor lies on this rank: its part, which shares memory with it, or all of it."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


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
