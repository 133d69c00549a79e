"""Attention over ragged sequences on a GPU of the Hopper generation: our kernels against torch's flash kernel.

    python benchmarks/attention_speed.py [--tokens 65536] [--length 512] [--heads 12]

Both are first held against float64 (without dropout, and whole, local and causal), and ours must repeat bit for bit.
Then forward and backward passes take turns: milliseconds of each, and the ratio, with and without dropout.
"""

from __future__ import annotations

import argparse
from itertools import accumulate, pairwise, product

import torch
from torch import Tensor

from larvatus.evaluation.speed.timing import time_in_turns
from larvatus.models.nn.attention.fused import attend_fused, supports_fused_attention
from larvatus.models.nn.attention.layout import AttentionMask, FlatLayout

SIZE = 64
TOLERANCE = 5e-3
"""Of bf16: relative, over all numbers."""


def flash(qkv_N3HK: Tensor, layout: FlatLayout, sight: AttentionMask, *, dropout: float) -> Tensor:
    q, k, v = qkv_N3HK.unbind(1)
    sides = {"window_size_left": sight.window, "window_size_right": sight.window} if sight.window else {}
    attend = torch.ops.aten._flash_attention_forward
    edges, limit = layout.edges, layout.limit
    out: Tensor = attend(q, k, v, edges, edges, limit, limit, dropout, sight.causal, False, **sides)[0]
    return out


def exact(qkv_N3HK: Tensor, edges: list[int], sight: AttentionMask) -> Tensor:
    """One sequence after another, in whatever precision is given."""
    parts = []
    for begin, end in pairwise(edges):
        q, k, v = (qkv_N3HK[begin:end, item].transpose(0, 1) for item in range(3))
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        seen = sight.seen(end - begin, qkv_N3HK.device)
        parts.append((scores if seen is None else scores.masked_fill(~seen, -torch.inf)).softmax(-1) @ v)
    return torch.cat([part.transpose(0, 1) for part in parts])


def off(values: Tensor, truth: Tensor) -> float:
    return float((values.detach().double() - truth.detach()).norm() / truth.detach().norm())


def packed(lengths: list[int], limit: int) -> tuple[FlatLayout, list[int]]:
    edges = [0, *accumulate(lengths)]
    return FlatLayout(edges=torch.tensor(edges, dtype=torch.int32, device="cuda"), limit=limit), edges


def check() -> None:
    """Against float64; and ours twice with the same seed."""
    layout, edges = packed([512, 0, 1, 77, 300, 128, 0], 512)
    for size, sight in product((32, 64, 128), (AttentionMask(), AttentionMask(window=64), AttentionMask(causal=True))):
        leaf = torch.randn(edges[-1], 3, 2, size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        given = torch.randn(edges[-1], 2, size, device="cuda", dtype=torch.bfloat16)
        wide = leaf.detach().double().requires_grad_()
        truth = exact(wide, edges, sight)
        bias = torch.zeros(leaf[0].numel(), device="cuda", requires_grad=True)
        out = attend_fused(leaf, layout, sight, bias=bias)
        gradient, sums = torch.autograd.grad(out, (leaf, bias), given)
        (exactly,) = torch.autograd.grad(truth, wide, given.double())
        wrong = off(out, truth), max(off(gradient, exactly), off(sums, exactly.sum(0).flatten()))
        if max(wrong) > TOLERANCE:
            raise SystemExit(f"heads of {size}, {sight}: off by {wrong[0]:.1e}, gradients by {wrong[1]:.1e}")
    results = []
    for _ in range(2):
        torch.manual_seed(1)
        out = attend_fused(leaf, layout, dropout=0.1)
        results.append((out, *torch.autograd.grad(out, leaf, given)))
    if not all(torch.equal(a, b) for a, b in zip(*results, strict=True)):
        raise SystemExit("the same seed gave other numbers")


def lengths_of(tokens: int, length: int, *, full: bool) -> list[int]:
    if full:
        return [length] * (tokens // length)
    generator = torch.Generator().manual_seed(1)
    every = torch.randint(16, length + 1, (tokens // 16,), generator=generator)
    return [int(n) for n in every[every.cumsum(0) <= tokens]]


def compared(lengths: list[int], limit: int, heads: int, dropout: float) -> tuple[float, float]:
    """Milliseconds of ours and of torch's."""
    layout, edges = packed(lengths, limit)
    leaf = torch.randn(edges[-1], 3, heads, SIZE, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    given = torch.randn(edges[-1], heads, SIZE, device="cuda", dtype=torch.bfloat16)
    ways = {
        "ours": lambda: torch.autograd.grad(attend_fused(leaf, layout, dropout=dropout), leaf, given),
        "flash": lambda: torch.autograd.grad(flash(leaf, layout, AttentionMask(), dropout=dropout), leaf, given),
    }
    timed = time_in_turns(ways, device="cuda", seconds=2.0, warm=3)
    return 1e3 * timed["ours"].median, 1e3 * timed["flash"].median


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--heads", type=int, default=12)
    chosen = parser.parse_args()
    if not torch.cuda.is_available() or not supports_fused_attention(torch.device("cuda"), SIZE):
        raise SystemExit("this wants a GPU of the Hopper generation, and Triton")
    check()
    for full, dropout in product((True, False), (0.0, 0.1)):
        lengths = lengths_of(chosen.tokens, chosen.length, full=full)
        ours, theirs = compared(lengths, chosen.length, chosen.heads, dropout)
        rows = "full rows" if full else "ragged rows"
        print(f"{rows}, dropout {dropout}: ours {ours:.3f} ms, torch's flash {theirs:.3f} ms: {theirs / ours:.2f} ×")


if __name__ == "__main__":
    main()
