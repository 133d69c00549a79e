"""Shells have the shapes of modules, no memory, and nothing drawn for them; outside all is as ever."""

from __future__ import annotations

import torch
from torch import nn

from larvatus.models.nn.initialise import empty_weights


def test_modules_are_on_the_meta_device_with_their_shapes() -> None:
    with empty_weights():
        made = nn.ModuleList([nn.Embedding(10, 4, padding_idx=0), nn.Linear(4, 3), nn.LayerNorm(4), nn.LSTM(4, 2)])
    plain = nn.ModuleList([nn.Embedding(10, 4, padding_idx=0), nn.Linear(4, 3), nn.LayerNorm(4), nn.LSTM(4, 2)])
    assert all(parameter.is_meta for parameter in made.parameters())
    assert [p.shape for p in made.parameters()] == [p.shape for p in plain.parameters()]
    assert not any(parameter.is_meta for parameter in plain.parameters())


def test_initialisation_is_left_out_inside_alone() -> None:
    values = torch.full((3,), 7.0)
    with empty_weights():
        assert nn.init.normal_(values) is values
        assert nn.init.constant_(tensor=values, val=1.0) is values
    assert values.tolist() == [7.0] * 3
    nn.init.constant_(values, 1.0)
    assert values.tolist() == [1.0] * 3
