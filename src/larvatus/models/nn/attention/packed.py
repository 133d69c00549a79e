"""Attention through a variable-length kernel on CUDA: sequences lie end to end, and it is told where they begin.

For bf16 and fp16; our own kernels where they serve (`fused.py`), else torch's flash kernel. None has a place for a bias
on the scores; such attention is always `Grouped`.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from larvatus.models.nn.attention.fused import attend_fused, serves
from larvatus.models.nn.attention.layout import Packed
from larvatus.models.nn.attention.sight import FULL, Sight


def kernel_of(device: str, precision: str) -> str:
    """In words, for people: how attention runs on a device in a precision (``bf16``, ``fp32``)."""
    if device.startswith("cuda") and precision in ("bf16", "fp16"):
        if torch.cuda.is_available() and serves(torch.device(device), 64):
            return "variable-length kernels of Larvatus (heads of 32, 64 or 128; others: torch's flash kernel)"
        return "variable-length flash kernel of torch"
    return "scaled dot products over groups of one length"


def attend_packed(qkv_N3HK: Tensor, layout: Packed, sight: Sight = FULL, *, dropout: float = 0.0) -> Tensor:
    """Attention inside each sequence: [N, 3, H, K] → [N, H, K]."""
    assert sight.bias is None, "the variable-length kernel has no bias"
    if serves(qkv_N3HK.device, qkv_N3HK.shape[-1]):
        return attend_fused(qkv_N3HK, layout, sight, dropout=dropout)
    q, k, v = qkv_N3HK.unbind(1)
    edges, limit, window, causal = layout.edges, layout.limit, sight.window, sight.causal
    if dropout == 0.0 and not (window or causal):
        from torch.nn.attention.varlen import (
            varlen_attn,  # imports torch's compiler: two seconds, not for every command
        )

        return cast(Tensor, varlen_attn(q, k, v, edges, edges, limit, limit))
    # the public function has no dropout, nor a window in torch 2.10; the operator beneath it has, and autograd knows it
    debug_mask = False
    flash = torch.ops.aten._flash_attention_forward
    sides = {"window_size_left": window, "window_size_right": 0 if causal else window} if window else {}
    return cast(Tensor, flash(q, k, v, edges, edges, limit, limit, dropout, causal, debug_mask, **sides)[0])
