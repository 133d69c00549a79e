"""The matrix ceiling: the most floating-point operations a second that this device reaches in one matrix product.

    ceiling = matrix_ceiling("cuda", "bf16", seconds=2.0)
    ceiling.flops, ceiling.size, ceiling.datasheet

No training is faster. What the vendor's data sheet promises is reached by no matrix; both are told (model FLOP
utilisation, MFU, is a share of either: Chowdhery et al. 2022, appendix B).
"""

from __future__ import annotations

import torch
from msgspec import Struct

from larvatus.evaluation.speed.timing import time_in_turns
from larvatus.training.engine.throughput import peak_flops

SIZES = {"cuda": (2048, 4096, 8192, 16_384), "cpu": (256, 512, 1024, 2048)}


class Ceiling(Struct, frozen=True, kw_only=True):
    """What a matrix product reaches."""

    flops: float
    """Operations a second, measured."""
    size: int
    """Rows and columns of the matrices that reached it."""
    datasheet: float | None
    """Operations a second that the vendor promises; None where the device is not known."""


def matrix_ceiling(device: str, precision: str, *, seconds: float) -> Ceiling:
    """The largest rate over square matrices of several sizes, in the precision that is trained in."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    rates = {}
    sizes = SIZES["cuda" if device.startswith("cuda") else "cpu"]
    for size in sizes:
        left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        out = torch.empty_like(left)
        work = {"product": lambda a=left, b=right, c=out: torch.mm(a, b, out=c)}
        timed = time_in_turns(work, device=device, seconds=seconds / len(sizes), warm=2)["product"]
        rates[size] = 2 * size**3 / timed.low
        if timed.median > seconds:  # larger ones would take many times as long as was asked for
            break
    best = max(rates, key=lambda size: rates[size])
    return Ceiling(flops=rates[best], size=best, datasheet=peak_flops(device, precision))
