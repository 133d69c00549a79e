"""Attention with our own Triton kernels on Hopper GPUs, where torch's kernels are those of the previous generation.

    attend_fused(qkv_N3HK, layout, dropout=0.1)      # [N, 3, H, K] → [N, H, K], as `attend_flat`

They are faster than torch's variable-length kernel (`benchmarks/attention_speed.py` compares them), and gradients are
equal in every run, bit for bit: torch's sums those of the queries in the order in which its blocks finish. The kernels
are in `fused_kernels.py`; they need Triton, which comes with torch's builds for CUDA.

On CUDA, in bf16 and fp16, `attend_flat` runs a variable-length kernel over concatenated sequences: ours if it supports
the device (`supports_fused_attention`), else torch's flash kernel. No such kernel supports a bias on the scores; such
attention always uses `GroupedLayout`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from larvatus.models.nn.attention.layout import FULL, AttentionMask, FlatLayout

HOPPER = 9
"""Compute capability of the GPUs on which the kernels were measured."""
SIZES = (32, 64, 128)
"""Supported head sizes."""
EVERYTHING = -1
"""A window without limit."""
TRITON = find_spec("triton") is not None


class KernelBlocks(NamedTuple):
    """Block sizes and launch settings of a kernel."""

    rows: int
    """Queries of a block."""
    columns: int
    """Keys of a block."""
    warps: int
    stages: int
    """Blocks that are loaded ahead."""


FORWARD = KernelBlocks(rows=128, columns=64, warps=8, stages=3)
BACKWARD_KEYS = KernelBlocks(rows=32, columns=128, warps=4, stages=3)
BACKWARD_QUERIES = KernelBlocks(rows=64, columns=32, warps=4, stages=3)
"""The fastest of ten for each, for heads of 64 in sequences of 512 with dropout, on an H200."""
DOTS = 64
"""Rows of a block in the kernel of row-wise products."""


def supports_fused_attention(device: torch.device, size: int) -> bool:
    """Whether these kernels support heads of this size on a device."""
    return (
        TRITON and device.type == "cuda" and size in SIZES and torch.cuda.get_device_properties(device).major == HOPPER
    )


def attend_fused(
    qkv_N3HK: Tensor,
    layout: FlatLayout,
    mask: AttentionMask = FULL,
    *,
    dropout: float = 0.0,
    bias: Tensor | None = None,
) -> Tensor:
    """Attention inside each sequence: [N, 3, H, K] → [N, H, K].

    A `bias` [3·H·K] that was added to every row, as a constant, gets its gradient here: the sum over the rows, which
    are available, instead of another pass over all of them.
    """
    assert mask.bias is None, "these kernels do not support a bias"
    left = mask.window or EVERYTHING
    right = 0 if mask.causal else left
    if dropout > 0:
        seed = torch.randint(-(1 << 31), (1 << 31) - 1, (1,), device=qkv_N3HK.device)
    else:
        seed = layout.edges  # not read
    reach = [layout.limit, left, right, int(bias is not None)]
    out, _ = _forward(qkv_N3HK.contiguous(), bias, layout.edges, seed, dropout, reach)
    return cast(Tensor, out)


def _arguments(qkv_N3HK: Tensor, dropout: float, reach: Sequence[int], blocks: KernelBlocks) -> dict[str, Any]:
    """Arguments of the kernels other than tensors: numbers, and compile-time constants."""
    tokens, _, heads, size = qkv_N3HK.shape
    _, left, right, _ = reach
    return {
        "tokens": tokens,
        "threshold": min(round(dropout * (1 << 32)), (1 << 32) - 1),  # random numbers below this one are dropped
        "kept_share": 1.0 - dropout,
        "HEADS": heads,
        "SIZE": size,
        "SCALE": math.log2(math.e) / math.sqrt(size),
        "DROPS": dropout > 0,
        "LEFT": left,
        "RIGHT": right,
        "ROWS": blocks.rows,
        "COLUMNS": blocks.columns,
        "num_warps": blocks.warps,
        "num_stages": blocks.stages,
    }


@torch.library.custom_op("larvatus::attention", mutates_args=())
def _forward(
    qkv_N3HK: Tensor, bias: Tensor | None, edges: Tensor, seed: Tensor, dropout: float, reach: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """`reach`: longest sequence; tokens attended to before a token, and after it; 1 if a bias needs its gradient."""
    from larvatus.models.nn.attention import fused_kernels as kernels  # needs Triton

    heads, sequences = qkv_N3HK.shape[2], len(edges) - 1
    out, lse = _outputs(qkv_N3HK)
    with torch.cuda.device(qkv_N3HK.device):
        kernels.forward[-(-reach[0] // FORWARD.rows), heads, sequences](
            qkv_N3HK, edges, seed, out, lse, **_arguments(qkv_N3HK, dropout, reach, FORWARD)
        )
    return out, lse


def _outputs(qkv_N3HK: Tensor) -> tuple[Tensor, Tensor]:
    tokens, _, heads, size = qkv_N3HK.shape
    return qkv_N3HK.new_empty(tokens, heads, size), qkv_N3HK.new_empty(heads, tokens, dtype=torch.float32)


@_forward.register_fake
def _(
    qkv_N3HK: Tensor, bias: Tensor | None, edges: Tensor, seed: Tensor, dropout: float, reach: Sequence[int]
) -> tuple[Tensor, Tensor]:
    return _outputs(qkv_N3HK)


@torch.library.custom_op("larvatus::attention_backward", mutates_args=())
def _backward(
    grad: Tensor,
    qkv_N3HK: Tensor,
    edges: Tensor,
    seed: Tensor,
    out: Tensor,
    lse: Tensor,
    dropout: float,
    reach: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Gradients of qkv and of its bias (empty if there is none)."""
    from larvatus.models.nn.attention import fused_kernels as kernels  # needs Triton

    tokens, _, heads, size = qkv_N3HK.shape
    limit, sequences, biased = reach[0], len(edges) - 1, reach[3]
    delta, dqkv, given = torch.empty_like(lse), torch.empty_like(qkv_N3HK), grad.contiguous()
    key_blocks, query_blocks = -(-limit // BACKWARD_KEYS.columns), -(-limit // BACKWARD_QUERIES.rows)
    # blocks that a shorter sequence lacks add nothing
    key_sums = lse.new_zeros(biased * sequences * key_blocks, 2 * heads * size)
    query_sums = lse.new_zeros(biased * sequences * query_blocks, heads * size)
    tensors = qkv_N3HK, given, edges, seed, lse, delta, dqkv
    with torch.cuda.device(qkv_N3HK.device):
        kernels.dots[-(-tokens // DOTS), heads](out, given, delta, tokens, HEADS=heads, SIZE=size, ROWS=DOTS)
        kernels.backward_keys[key_blocks, heads, sequences](
            *tensors, key_sums, BIASED=bool(biased), **_arguments(qkv_N3HK, dropout, reach, BACKWARD_KEYS)
        )
        kernels.backward_queries[query_blocks, heads, sequences](
            *tensors, query_sums, BIASED=bool(biased), **_arguments(qkv_N3HK, dropout, reach, BACKWARD_QUERIES)
        )
    return dqkv, torch.cat([query_sums.sum(0), key_sums.sum(0)]) if biased else lse.new_empty(0)


@_backward.register_fake
def _(
    grad: Tensor,
    qkv_N3HK: Tensor,
    edges: Tensor,
    seed: Tensor,
    out: Tensor,
    lse: Tensor,
    dropout: float,
    reach: Sequence[int],
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(qkv_N3HK), lse.new_empty(reach[3] * qkv_N3HK[0].numel())


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    qkv_N3HK, bias, edges, seed, ctx.dropout, ctx.reach = inputs
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.save_for_backward(qkv_N3HK, edges, seed, *output)


def _gradient(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    dqkv, dbias = _backward(grad, *ctx.saved_tensors, ctx.dropout, ctx.reach)
    return dqkv, None if ctx.bias_dtype is None else dbias.to(ctx.bias_dtype), None, None, None, None


_forward.register_autograd(_gradient, setup_context=_save)


def describe_kernel(device: str, precision: str) -> str:
    """How attention runs on a device in a precision (``bf16``, ``fp32``), in words."""
    if device.startswith("cuda") and precision in ("bf16", "fp16"):
        if torch.cuda.is_available() and supports_fused_attention(torch.device(device), 64):
            return "Larvatus' variable-length kernels (heads of 32, 64 or 128; others: torch's flash kernel)"
        return "torch's variable-length flash kernel"
    return "scaled dot products over groups of one length"


def attend_flat(qkv_N3HK: Tensor, layout: FlatLayout, mask: AttentionMask = FULL, *, dropout: float = 0.0) -> Tensor:
    """Attention inside each sequence: [N, 3, H, K] → [N, H, K]."""
    assert mask.bias is None, "the variable-length kernel does not support a bias"
    if supports_fused_attention(qkv_N3HK.device, qkv_N3HK.shape[-1]):
        return attend_fused(qkv_N3HK, layout, mask, dropout=dropout)
    q, k, v = qkv_N3HK.unbind(1)
    edges, limit, window, causal = layout.edges, layout.limit, mask.window, mask.causal
    if dropout == 0.0 and not (window or causal):
        from torch.nn.attention.varlen import (
            varlen_attn,  # imports torch's compiler: two seconds, not for every command
        )

        return cast(Tensor, varlen_attn(q, k, v, edges, edges, limit, limit))
    # the public function has no dropout, and no window in torch 2.10; the operator beneath has, with autograd
    debug_mask = False
    flash = torch.ops.aten._flash_attention_forward
    sides = {"window_size_left": window, "window_size_right": 0 if causal else window} if window else {}
    return cast(Tensor, flash(q, k, v, edges, edges, limit, limit, dropout, causal, debug_mask, **sides)[0])
