"""Linear layers in whole numbers: against the formula worked out in double precision, row by row."""

import numpy as np
import pytest
import torch
from torch import nn

from larvatus.core.errors import UsageError
from larvatus.models.nn import linear as linear_layers
from larvatus.models.nn.device import has_int8_products
from larvatus.models.nn.linear import Int8Linear, LoRALinear


@pytest.fixture
def linear():
    torch.manual_seed(0)
    return nn.Linear(96, 40)


def by_hand(linear, x, largest):
    """The formula of `models/nn/linear.py`, with NumPy's whole numbers."""
    weight, x = linear.weight.detach().double().numpy(), x.double().numpy()
    scales = np.abs(weight).max(1) / largest
    steps = np.abs(x).max(1) / 127
    product = np.rint(x / steps[:, None]).astype(np.int64) @ np.rint(weight / scales[:, None]).astype(np.int64).T
    return steps[:, None] * scales * product + linear.bias.detach().double().numpy()


@pytest.mark.parametrize("unsigned", [True, False])
@torch.inference_mode()
def test_the_product_is_that_of_rounded_numbers_and_near_that_of_floats(linear, monkeypatch, unsigned):
    monkeypatch.setattr(linear_layers, "ROWS", 8)  # several portions
    monkeypatch.setattr(linear_layers, "takes_unsigned", lambda: unsigned)
    x = torch.randn(21, 96) * torch.logspace(-3, 3, 21)[:, None]  # rows of very different size
    y = Int8Linear(linear)(x)
    wanted = by_hand(linear, x, 127 if has_int8_products() else 63)
    size = np.abs(wanted).max(1, keepdims=True)
    # a number half way between two may be rounded to either: one step of 127 × 127 for some inputs
    assert (np.abs(y.numpy() - wanted) / size).max() < 2e-3
    assert ((y - linear(x)).abs().amax(1) / linear(x).abs().amax(1)).max() < 0.03


@torch.inference_mode()
def test_a_row_does_not_depend_on_the_rows_beside_it(linear):
    layer = Int8Linear(linear)
    x = torch.randn(7, 96)
    x[3] *= 1000  # would set the scale of all, were there one for all
    alone = torch.cat([layer(row[None]) for row in x])
    assert torch.equal(layer(x), alone)
    assert layer(x.view(7, 1, 96)).shape == (7, 1, 40)
    assert torch.equal(layer(torch.zeros(2, 96)), linear.bias.expand(2, -1))
    assert layer(torch.empty(0, 96)).shape == (0, 40)


@torch.inference_mode()
def test_without_products_of_8_bits_weights_have_7_so_that_no_sum_of_16_bits_overflows(linear, monkeypatch):
    monkeypatch.setattr(linear_layers, "has_int8_products", lambda: False)
    x = torch.randn(5, 96)
    assert np.allclose(Int8Linear(linear)(x).numpy(), by_hand(linear, x, 63), atol=2e-3)


@torch.inference_mode()
def test_what_lora_adds_is_in_it(linear):
    adapted = LoRALinear(linear, {"all": slice(0, 40)}, rank=2, alpha=4.0).eval()
    nn.init.normal_(adapted.lora["all"].a)
    nn.init.normal_(adapted.lora["all"].b)
    x = torch.randn(5, 96)
    assert (Int8Linear(adapted)(x) - adapted(x)).abs().max() < 0.03 * adapted(x).abs().max()


def test_it_is_neither_trained_nor_saved(linear):
    model = nn.Sequential(Int8Linear(linear)).eval()
    with pytest.raises(UsageError, match="cannot be trained"):
        model.train()
    with pytest.raises(UsageError, match="no float weights"):
        model.state_dict()
