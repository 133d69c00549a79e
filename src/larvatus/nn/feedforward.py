"""The feedforward layer of a transformer block: up to a wider space, a nonlinearity, and down again.

FFN(x) = W_down f(W_up x + b_up) + b_down           f = GELU (Hendrycks & Gimpel 2016) in BERT

>>> FeedForward(hidden=4, inner=16, activation="gelu")(torch.zeros(3, 4)).shape
torch.Size([3, 4])
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Activation = Literal["gelu", "gelu-tanh", "relu"]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),  # the approximation in Google's release
    "relu": torch.relu,
}


class FeedForward(nn.Module):
    def __init__(self, *, hidden: int, inner: int, activation: Activation) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, inner)
        self.down = nn.Linear(inner, hidden)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x_ND: Tensor) -> Tensor:
        y_ND: Tensor = self.down(self.activation(self.up(x_ND)))
        return y_ND
