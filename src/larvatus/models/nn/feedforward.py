"""The feedforward layer of a transformer block: up to a wider space, a nonlinearity, and down again.

FFN(x) = W_down f(W_up x + b_up) + b_down           f = GELU (Hendrycks & Gimpel 2016) in BERT
GLU(x) = W_down (f(W_in x) · (W_gate x))            gated, with f = GELU: GeGLU (Shazeer 2020); `up` is W_in, W_gate

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

from larvatus.models.nn.fused_feedforward import feed_fused, gate_fused, supports_fused_feedforward

Activation = Literal["gelu", "gelu-tanh", "relu"]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),  # the approximation in Google's release
    "relu": torch.relu,
}


class FeedForward(nn.Module):
    def __init__(
        self, *, hidden: int, inner: int, activation: Activation, gated: bool = False, biases: bool = True
    ) -> None:
        super().__init__()
        self.gated = gated
        self.stacked = {"up.weight": 2} if gated else {}  # as in `Attention`
        self.up = nn.Linear(hidden, 2 * inner if gated else inner, bias=biases)
        self.down = nn.Linear(inner, hidden, bias=biases)
        self.activation = ACTIVATIONS[activation]

    def inner(self, x_ND: Tensor) -> Tensor:
        """The wider space, after the nonlinearity: [N, D] → [N, inner]."""
        up: Tensor = self.up(x_ND)
        if not self.gated:
            return self.activation(up)
        inner, gate = up.chunk(2, dim=-1)
        return self.activation(inner) * gate

    def forward(self, x_ND: Tensor) -> Tensor:
        if self.activation is F.gelu and supports_fused_feedforward(x_ND, self.up, self.down, gated=self.gated):
            fused = gate_fused if self.gated else feed_fused
            return fused(x_ND, self.up, self.down)
        y_ND: Tensor = self.down(self.inner(x_ND))
        return y_ND
