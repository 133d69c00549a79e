"""A linear layer in whole numbers of 8 bits, for inference on a CPU.

    y_o = a · w_o · Σ_i X_i W_oi + b_o        X = round(x / a), a = max |x| / 127 for each row of the input
                                              W = round(w / w_o), w_o = max |w_oi| / 127 for each output, once

The product of whole numbers is exact (32 bits), so what is lost is the rounding of weights and inputs alone. A row has
a scale of its own: what a text gives does not depend on the texts beside it. oneDNN computes the product.

>>> layer = Int8Linear(nn.Linear(64, 32))
>>> layer(torch.ones(3, 64)).shape
torch.Size([3, 32])
"""

from __future__ import annotations

from typing import Any, NoReturn, Self

import torch
from torch import Tensor, nn

from larvatus.core.errors import UsageError
from larvatus.models.nn.device import has_int8_products
from larvatus.models.nn.linear import full_weight

ROWS = 512
"""Rows at a time: what is between input and output stays in the caches."""
LEAST = 1e-30
"""Of a row's largest number, so that rows of zeros have a scale."""


def check_int8() -> None:
    """Refuse where torch has no such product."""
    if not hasattr(torch.ops.onednn, "qlinear_pointwise") or not torch.backends.mkldnn.is_available():
        raise UsageError("int8 wants a torch with oneDNN, which this one lacks; leave out quantise")


class Int8Linear(nn.Module):
    """What a linear layer gives, but for rounding. It has no weights to train or save."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight_OI = full_weight(linear).detach().float()
        # without products of 8 bits in the processor, pairs of them are added in 16: 63 · 255 · 2 still fits
        largest = 127 if has_int8_products() else 63
        scale_O = weight_OI.abs().amax(1).clamp_min(LEAST) / largest
        whole_OI = (weight_OI / scale_O[:, None]).round().to(torch.int8)
        # no buffers: these stay where they are, whatever is done to the model
        self._weight = torch.ops.onednn.qlinear_prepack(whole_OI, None)
        self._scale = scale_O / 127  # with the 127 of the rows
        self._zero = torch.zeros(self.out_features, dtype=torch.int32)
        self._bias: Tensor | None = None if linear.bias is None else linear.bias.detach().float()
        self.training = False

    @property
    def weights(self) -> int:
        """How many numbers it stands for."""
        return self.in_features * self.out_features + (0 if self._bias is None else self.out_features)

    def forward(self, x: Tensor) -> Tensor:
        """[…, in] → […, out]."""
        rows = x.reshape(-1, self.in_features)
        y = torch.empty(len(rows), self.out_features)
        for part, out in zip(rows.split(ROWS), y.split(ROWS), strict=True):
            self._product(part, out)
        return y.view(*x.shape[:-1], self.out_features)

    def _product(self, x_NI: Tensor, out_NO: Tensor) -> None:
        """Written into `out`."""
        largest_N1 = torch.maximum(x_NI.amax(1, keepdim=True), x_NI.amin(1, keepdim=True).neg_())
        largest_N1 = largest_N1.float().clamp_min_(LEAST)
        whole_NI = (x_NI * (127 / largest_N1)).round_().to(torch.int8)
        y_NO = torch.ops.onednn.qlinear_pointwise(
            whole_NI, 1.0, 0, self._weight, self._scale, self._zero, None, 1.0, 0, torch.float32, "none", [], ""
        )
        if self._bias is None:
            torch.mul(y_NO, largest_N1, out=out_NO)
        else:
            torch.addcmul(self._bias, y_NO, largest_N1, out=out_NO)

    def train(self, mode: bool = True) -> Self:
        if mode:
            raise UsageError("an int8 model is for inference and cannot be trained; load it without quantise")
        return super().train(mode)

    def _save_to_state_dict(self, *_: Any) -> NoReturn:
        raise UsageError(
            "an int8 model has no float weights to save, convert or train; load it without quantise for that"
        )
