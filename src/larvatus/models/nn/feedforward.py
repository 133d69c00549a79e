"""The feedforward layer of a transformer block: up to a wider space, a nonlinearity, and down again.

FFN(x) = W_down f(W_up x + b_up) + b_down           f = GELU (Hendrycks & Gimpel 2016) in BERT
GLU(x) = W_down (f(W_in x) · (W_gate x))            gated, with f = GELU: GeGLU (Shazeer 2020); `up` is W_in, W_gate

>>> FeedForward(hidden=4, inner=16, activation="gelu")(torch.zeros(3, 4)).shape
torch.Size([3, 4])

On Hopper GPUs the layer is one operation, which no compiler fuses for us:

    feed_fused(x_ND, up, down)         # the two linear layers of `FeedForward`: down(GELU(up(x)))
    gate_fused(x_ND, up, down)         # gated, without a bias: down(GELU(a) · b), where a, b are the halves of up(x)

One kernel in each direction runs between its products (`feedforward_kernels.py`). Only the output of the first product
is stored for the backward pass. Products run in autocast's precision.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.models.nn.attention.fused import HOPPER, TRITON

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


ROWS, COLUMNS, WARPS = 32, 128, 4
"""Block size in the forward pass."""
ROWS_BACK, BLOCKS = 4, 32
"""Rows of a block backward, and blocks per program: the fastest of 16 on an H200."""
ROWS_GATED = 16
"""Rows of a block backward, gated."""


def supports_fused_feedforward(x_ND: Tensor, up: nn.Module, down: nn.Module, *, gated: bool = False) -> bool:
    """Whether the operation may replace two layers: in mixed precision, if nothing else was added to them."""
    return (
        TRITON
        and x_ND.device.type == "cuda"
        and torch.is_autocast_enabled("cuda")
        and torch.is_grad_enabled()
        and type(up) is nn.Linear
        and type(down) is nn.Linear
        and (up.bias is None) == gated
        and up.weight.requires_grad
        and down.weight.requires_grad
        and torch.cuda.get_device_properties(x_ND.device).major == HOPPER
    )


def feed_fused(x_ND: Tensor, up: nn.Linear, down: nn.Linear) -> Tensor:
    """[N, D] → [N, D]."""
    dtype = torch.get_autocast_dtype("cuda")
    x, w_up, w_down = (tensor.to(dtype) for tensor in (x_ND, up.weight, down.weight))
    y_ND, _ = _forward(x, w_up, up.bias, w_down)
    return cast(Tensor, y_ND) if down.bias is None else cast(Tensor, y_ND) + down.bias.to(dtype)


def gate_fused(x_ND: Tensor, up: nn.Linear, down: nn.Linear) -> Tensor:
    """[N, D] → [N, D]."""
    dtype = torch.get_autocast_dtype("cuda")
    x, w_up, w_down = (tensor.to(dtype) for tensor in (x_ND, up.weight, down.weight))
    y_ND, _ = _gated(x, w_up, w_down)
    return cast(Tensor, y_ND) if down.bias is None else cast(Tensor, y_ND) + down.bias.to(dtype)


@torch.library.custom_op("larvatus::feedforward", mutates_args=())
def _forward(x_ND: Tensor, up_FD: Tensor, bias_F: Tensor, down_DF: Tensor) -> tuple[Tensor, Tensor]:
    """The output, and that of the first product, [N, F]."""
    from larvatus.models.nn import feedforward_kernels as kernels  # needs Triton

    h_NF = x_ND @ up_FD.T
    inner_NF = torch.empty_like(h_NF)
    rows, columns = h_NF.shape
    grid = -(-rows // ROWS), -(-columns // COLUMNS)
    with torch.cuda.device(x_ND.device):
        kernels.forward[grid](h_NF, bias_F, inner_NF, rows, columns, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS)
    return inner_NF @ down_DF.T, h_NF


@_forward.register_fake
def _(x_ND: Tensor, up_FD: Tensor, bias_F: Tensor, down_DF: Tensor) -> tuple[Tensor, Tensor]:
    return x_ND.new_empty(len(x_ND), len(down_DF)), x_ND.new_empty(len(x_ND), len(up_FD))


@torch.library.custom_op("larvatus::feedforward_backward", mutates_args=())
def _backward(
    grad_ND: Tensor, x_ND: Tensor, h_NF: Tensor, up_FD: Tensor, bias_F: Tensor, down_DF: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, up, its bias (in 32 bits), and down."""
    from larvatus.models.nn import feedforward_kernels as kernels  # needs Triton

    rows, columns = h_NF.shape
    programs = -(-rows // (ROWS_BACK * BLOCKS))
    dz_NF = grad_ND @ down_DF
    inner_NF = torch.empty_like(h_NF)
    sums = bias_F.new_empty(programs, columns, dtype=torch.float32)
    with torch.cuda.device(x_ND.device):
        kernels.backward[programs, -(-columns // COLUMNS)](
            h_NF, bias_F, dz_NF, inner_NF, sums, rows, columns,
            ROWS=ROWS_BACK, COLUMNS=COLUMNS, BLOCKS=BLOCKS, num_warps=WARPS,
        )  # fmt: skip
    down_grad = grad_ND.T @ inner_NF
    del inner_NF
    return dz_NF @ up_FD, dz_NF.T @ x_ND, sums.sum(0), down_grad


@_backward.register_fake
def _(
    grad_ND: Tensor, x_ND: Tensor, h_NF: Tensor, up_FD: Tensor, bias_F: Tensor, down_DF: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    bias = torch.empty_like(bias_F, dtype=torch.float32)
    return torch.empty_like(x_ND), torch.empty_like(up_FD), bias, torch.empty_like(down_DF)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x_ND, up_FD, bias_F, down_DF = inputs
    ctx.save_for_backward(x_ND, output[1], up_FD, bias_F, down_DF)


def _gradient(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, ...]:
    x, up, bias, down = _backward(grad.contiguous(), *ctx.saved_tensors)
    return x, up, bias.to(ctx.saved_tensors[3].dtype), down


_forward.register_autograd(_gradient, setup_context=_save)


@torch.library.custom_op("larvatus::gated_feedforward", mutates_args=())
def _gated(x_ND: Tensor, up_GD: Tensor, down_DF: Tensor) -> tuple[Tensor, Tensor]:
    """The output, and that of the first product: [N, G], both halves of the wider space."""
    from larvatus.models.nn import feedforward_kernels as kernels  # needs Triton

    h_NG = x_ND @ up_GD.T
    rows, columns = len(h_NG), h_NG.shape[1] // 2
    inner_NF = h_NG.new_empty(rows, columns)
    grid = -(-rows // ROWS), -(-columns // COLUMNS)
    with torch.cuda.device(x_ND.device):
        kernels.gated_forward[grid](h_NG, inner_NF, rows, columns, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS)
    return inner_NF @ down_DF.T, h_NG


@_gated.register_fake
def _(x_ND: Tensor, up_GD: Tensor, down_DF: Tensor) -> tuple[Tensor, Tensor]:
    return x_ND.new_empty(len(x_ND), len(down_DF)), x_ND.new_empty(len(x_ND), len(up_GD))


@torch.library.custom_op("larvatus::gated_feedforward_backward", mutates_args=())
def _gated_backward(
    grad_ND: Tensor, x_ND: Tensor, h_NG: Tensor, up_GD: Tensor, down_DF: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, up and down."""
    from larvatus.models.nn import feedforward_kernels as kernels  # needs Triton

    dy_NF = grad_ND @ down_DF
    dh_NG, inner_NF = torch.empty_like(h_NG), torch.empty_like(dy_NF)
    rows, columns = dy_NF.shape
    grid = -(-rows // ROWS_GATED), -(-columns // COLUMNS)
    with torch.cuda.device(x_ND.device):
        kernels.gated_backward[grid](
            h_NG, dy_NF, dh_NG, inner_NF, rows, columns, ROWS=ROWS_GATED, COLUMNS=COLUMNS, num_warps=WARPS
        )
    down_grad = grad_ND.T @ inner_NF
    del inner_NF, dy_NF
    return dh_NG @ up_GD, dh_NG.T @ x_ND, down_grad


@_gated_backward.register_fake
def _(grad_ND: Tensor, x_ND: Tensor, h_NG: Tensor, up_GD: Tensor, down_DF: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(x_ND), torch.empty_like(up_GD), torch.empty_like(down_DF)


def _save_gated(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x_ND, up_GD, down_DF = inputs
    ctx.save_for_backward(x_ND, output[1], up_GD, down_DF)


def _gradient_gated(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, ...]:
    return cast(tuple[Tensor, ...], _gated_backward(grad.contiguous(), *ctx.saved_tensors))


_gated.register_autograd(_gradient_gated, setup_context=_save_gated)
