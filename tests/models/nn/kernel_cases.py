"""Inputs for the kernels, shared by the program that runs them and by the test that computes them in float64."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor


@dataclass(frozen=True)
class Heads:
    """Sequences of these lengths, end to end."""

    lengths: tuple[int, ...] = (5, 70)
    heads: int = 2
    size: int = 32
    dropout: float = 0.0
    window: int | None = None
    causal: bool = False
    seed: int = 0

    def edges(self) -> Tensor:
        return torch.tensor([0, *accumulate(self.lengths)], dtype=torch.int32)

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v with the bias added, the bias, and the gradient of the output."""
        draw = torch.Generator().manual_seed(7)
        tokens = sum(self.lengths)
        qkv = torch.randn(tokens, 3, self.heads, self.size, generator=draw)
        bias = 0.1 * torch.randn(3 * self.heads * self.size, generator=draw)
        given = torch.randn(tokens, self.heads, self.size, generator=draw)
        return qkv, bias, given


@dataclass(frozen=True)
class Feed:
    """A feedforward layer, of sizes that are no multiples of the kernels' blocks."""

    gated: bool
    rows: int = 45
    hidden: int = 12
    inner: int = 150

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        draw = torch.Generator().manual_seed(8)
        x = torch.randn(self.rows, self.hidden, generator=draw)
        up = torch.randn(self.inner * (1 + self.gated), self.hidden, generator=draw)
        bias = torch.randn(self.inner, generator=draw)
        down = torch.randn(self.hidden, self.inner, generator=draw)
        return x, up, bias, down, torch.randn(self.rows, self.hidden, generator=draw)


ATTENTION = {
    "plain": Heads(),
    "window": Heads(window=6),
    "causal": Heads(causal=True),
    "dropout": Heads(dropout=0.3, lengths=(5, 33, 140)),
    "other seed": Heads(dropout=0.3, seed=1, lengths=(5, 33)),
    "dropout and window": Heads(dropout=0.5, window=6),
}
FEEDFORWARD = {"feedforward": Feed(gated=False), "gated feedforward": Feed(gated=True)}


def hash_inputs() -> Tensor:
    """Unsigned numbers of 32 bits, and their complements."""
    numbers = torch.randint(0, 1 << 32, (512,), generator=torch.Generator().manual_seed(9))
    return torch.cat([numbers, numbers ^ 0xFFFFFFFF])
