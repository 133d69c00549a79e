"""A linear layer with an optional low-rank addition, and the full matrix it multiplies with.

h = W x + (α / r) B A x            A [r, in], B [out, r]: LoRA (Hu et al. 2022), which `lora.py` adds and merges

>>> plain = nn.Linear(4, 6)
>>> adapted = LoRALinear(plain, {"query": slice(0, 2)}, rank=1, alpha=2.0)
>>> full_weight(adapted).shape, adapted.weight is plain.weight
(torch.Size([6, 4]), True)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.models.nn.dropout import Dropout


class LowRank(nn.Module):
    """B A, added to some rows of a matrix."""

    a: nn.Parameter  # [r, in]
    b: nn.Parameter  # [rows, r]

    def __init__(self, *, inputs: int, rows: slice, rank: int, like: Tensor) -> None:
        super().__init__()
        self.rows = rows
        self.a = nn.Parameter(like.new_empty(rank, inputs))
        self.b = nn.Parameter(like.new_zeros(rows.stop - rows.start, rank))

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """A normal, with the variance of the authors' code (1 / (3 in)); B zero. Sampled on the CPU."""
        drawn = torch.empty(self.a.shape, dtype=torch.float32)
        self.a.copy_(drawn.normal_(std=1 / math.sqrt(3 * self.a.shape[1]), generator=generator))
        self.b.zero_()


class LoRALinear(nn.Linear):
    """A linear layer with low-rank additions; its weight and bias are those of the layer it replaces, not copies."""

    def __init__(
        self, base: nn.Linear, parts: Mapping[str, slice], *, rank: int, alpha: float, dropout: float = 0.0
    ) -> None:
        """`parts` names the pairs, with the rows of the matrix that each adds to."""
        super().__init__(base.in_features, base.out_features, bias=base.bias is not None, device="meta")
        self.weight, self.bias = base.weight, base.bias
        self.training = base.training
        self.scale = alpha / rank
        self.lora_dropout = Dropout(dropout).train(base.training)
        self.lora = nn.ModuleDict(
            {
                name: LowRank(inputs=self.in_features, rows=rows, rank=rank, like=base.weight)
                for name, rows in parts.items()
            }
        )

    def factors(self) -> tuple[Tensor, Tensor]:
        """All pairs as one: A [R, in], and (α / r) B [out, R], zero in rows of other pairs; R = pairs × r."""
        pairs = [cast(LowRank, pair) for pair in self.lora.values()]
        rank = len(pairs[0].a)
        b = self.weight.new_zeros(self.out_features, len(pairs) * rank)
        for number, pair in enumerate(pairs):
            b[pair.rows, number * rank : (number + 1) * rank] = self.scale * pair.b
        return torch.cat([pair.a for pair in pairs]), b

    def forward(self, input: Tensor) -> Tensor:
        """[N, in] → [N, out]. One product for all pairs: adding to rows of the output would copy its gradient."""
        a, b = self.factors()
        return torch.addmm(F.linear(input, self.weight, self.bias), F.linear(self.lora_dropout(input), a), b.T)

    def full_weight(self) -> Tensor:
        """W + (α / r) B A, which computes the same without dropout."""
        a, b = self.factors()
        return torch.addmm(self.weight, b, a)

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """A plain layer with this one's parameters, changed in place."""
        self.weight.copy_(self.full_weight())
        plain = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None, device="meta")
        plain.weight, plain.bias = self.weight, self.bias
        return plain.train(self.training)


def full_weight(linear: nn.Linear) -> Tensor:
    """The full matrix of a layer, for callers that use a part of it."""
    return linear.full_weight() if isinstance(linear, LoRALinear) else linear.weight
