"""A program for `test_kernels.py`: our Triton kernels in Triton's interpreter, on the CPU, with TRITON_INTERPRET=1.

    python -m tests.models.nn.interpreted_kernels RESULTS

RESULTS becomes a file of tensors: what the kernels give for the cases of `cases`, and hashes. The interpreter must be
chosen before Triton is imported, so this is a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import torch
import triton
import triton.language as tl
from safetensors.torch import save_file
from torch import Tensor

from larvatus.models.nn import feedforward as fused_feedforward
from larvatus.models.nn.attention import fused, fused_kernels
from larvatus.models.nn.attention.layout import AttentionMask, FlatLayout
from tests.models.nn.kernel_cases import ATTENTION, FEEDFORWARD, Feed, Heads, hash_inputs


@triton.jit
def hash_all(numbers, hashes, COUNT: tl.constexpr) -> None:
    places = tl.arange(0, COUNT)
    tl.store(hashes + places, fused_kernels._mixed(tl.load(numbers + places).to(tl.uint32)).to(tl.int64))


def hashes() -> Tensor:
    numbers = hash_inputs()
    result = torch.empty_like(numbers)
    hash_all[(1,)](numbers, result, COUNT=len(numbers))
    return result


def attention(case: Heads) -> dict[str, Tensor]:
    """Output and gradients, with the seed that was drawn."""
    qkv, bias, given = case.tensors()
    layout = FlatLayout(edges=case.edges(), limit=max(case.lengths))
    mask = AttentionMask(window=case.window, causal=case.causal)
    qkv.requires_grad_()
    bias.requires_grad_()
    torch.manual_seed(case.seed)
    out = fused.attend_fused(qkv, layout, mask, dropout=case.dropout, bias=bias)
    gradients = torch.autograd.grad(out, [qkv, bias], given)
    return {"out": out.detach(), "qkv": gradients[0], "bias": gradients[1]}


def feedforward(case: Feed) -> dict[str, Tensor]:
    x, up, bias, down, given = case.tensors()
    leaves = [x, up, down] if case.gated else [x, up, bias, down]
    for leaf in leaves:
        leaf.requires_grad_()
    y, _ = fused_feedforward._gated(x, up, down) if case.gated else fused_feedforward._forward(x, up, bias, down)
    gradients = torch.autograd.grad(y, leaves, given)
    names = ["x", "up", "down"] if case.gated else ["x", "up", "bias", "down"]
    return {"out": y.detach(), **dict(zip(names, gradients, strict=True))}


def main(path: str) -> None:
    assert os.environ["TRITON_INTERPRET"] == "1"
    there: Any = lambda device: contextlib.nullcontext()  # noqa: E731
    torch.cuda.device = there  # type: ignore[misc]
    results = {"hashes": hashes()}
    for name, case in ATTENTION.items():
        results |= {f"{name}: {part}": tensor for part, tensor in attention(case).items()}
    for name, feed in FEEDFORWARD.items():
        results |= {f"{name}: {part}": tensor for part, tensor in feedforward(feed).items()}
    save_file({name: tensor.contiguous() for name, tensor in results.items()}, path)


if __name__ == "__main__":
    main(sys.argv[1])
