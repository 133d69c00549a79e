"""Linear layers with a low-rank addition (LoRA), and in 8-bit integers for inference on a CPU.

h = W x + (α / r) B A x            A [r, in], B [out, r]: LoRA (Hu et al. 2022), which `lora.py` adds and merges

>>> plain = nn.Linear(4, 6)
>>> adapted = LoRALinear(plain, {"query": slice(0, 2)}, rank=1, alpha=2.0)
>>> full_weight(adapted).shape, adapted.weight is plain.weight
(torch.Size([6, 4]), True)
"""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from typing import Any, NoReturn, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.errors import UsageError
from larvatus.models.nn.device import has_int8_products
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


ROWS = 512
"""Rows at a time, so that intermediate results stay in the caches."""
OFFSET = 128
"""Added to signed integers to make them unsigned."""
LEAST = 1e-30
"""Smallest maximum of a row, so that rows of zeros have a scale."""


def takes_unsigned() -> bool:
    """Whether oneDNN's fast integer products take unsigned inputs: on x86; on ARM they are signed."""
    return platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")


def supports_int8() -> bool:
    """Whether torch has such a product."""
    return hasattr(torch.ops.onednn, "qlinear_pointwise") and bool(torch.backends.mkldnn.is_available())


def check_int8() -> None:
    """Refuse if torch has no such product."""
    if not supports_int8():
        raise UsageError("int8 needs a torch with oneDNN, which this one lacks; leave out quantise")


class Int8Linear(nn.Module):
    """The output of a linear layer, up to rounding. It has no weights to train or save.

    y_o = a · w_o · Σ_i X_i W_oi + b_o        X = round(x / a), a = max |x| / 127 for each row of the input
                                              W = round(w / w_o), w_o = max |w_oi| / 127 for each output, once

    The integer product is exact (32 bits), so only the rounding of weights and inputs is lost. Each row has its own
    scale, so a text's result does not depend on other texts in the batch. oneDNN computes the product. On x86 its fast
    kernels take unsigned inputs (signed ones run in a reference kernel, a thousand times slower, where there is no
    AMX), so X + 128 is multiplied there, and 128 Σ_i W_oi is subtracted again with the scales.

    >>> layer = Int8Linear(nn.Linear(64, 32))
    >>> layer(torch.ones(3, 64)).shape
    torch.Size([3, 32])
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight_OI = full_weight(linear).detach().float()
        # without 8-bit products in the processor, pairs are added in 16 bits: 63 · 255 · 2 still fits
        largest = 127 if has_int8_products() else 63
        scale_O = weight_OI.abs().amax(1).clamp_min(LEAST) / largest
        whole_OI = (weight_OI / scale_O[:, None]).round().to(torch.int8)
        # no buffers: these stay where they are when the model is moved
        self._weight = torch.ops.onednn.qlinear_prepack(whole_OI, None)
        self._scale = scale_O / 127  # includes the 127 of the rows
        self._zero = torch.zeros(self.out_features, dtype=torch.int32)
        # what the 128 that is added to unsigned inputs adds to the product
        self._shift = -OFFSET * self._scale * whole_OI.sum(1) if takes_unsigned() else None
        self._bias: Tensor | None = None if linear.bias is None else linear.bias.detach().float()
        self.training = False

    @property
    def weights(self) -> int:
        """Number of weights that it represents."""
        return self.in_features * self.out_features + (0 if self._bias is None else self.out_features)

    def forward(self, x: Tensor) -> Tensor:
        """[…, in] → […, out]."""
        rows = x.reshape(-1, self.in_features)
        parts = [self._product(part) for part in rows.split(ROWS)]
        y = torch.cat(parts) if len(parts) > 1 else parts[0]
        return y.view(*x.shape[:-1], self.out_features)

    def _product(self, x_NI: Tensor) -> Tensor:
        largest_N1 = torch.maximum(x_NI.amax(1, keepdim=True), x_NI.amin(1, keepdim=True).neg_())
        largest_N1 = largest_N1.float().clamp_min_(LEAST)
        whole_NI = (x_NI * (127 / largest_N1)).round_().to(torch.int8)
        if self._shift is not None:
            whole_NI = whole_NI.view(torch.uint8).bitwise_xor_(OFFSET)  # + 128
        y_NO: Tensor = torch.ops.onednn.qlinear_pointwise(
            whole_NI, 1.0, 0, self._weight, self._scale, self._zero, self._shift, 1.0, 0, torch.float32, "none", [], ""
        )
        if self._bias is None:
            return y_NO.mul_(largest_N1)
        return torch.addcmul(self._bias, y_NO, largest_N1, out=y_NO)

    def train(self, mode: bool = True) -> Self:
        if mode:
            raise UsageError("an int8 model is for inference and cannot be trained; load it without quantise")
        return super().train(mode)

    def _save_to_state_dict(self, *_: Any) -> NoReturn:
        raise UsageError(
            "an int8 model has no float weights to save, convert or train; load it without quantise for that"
        )
