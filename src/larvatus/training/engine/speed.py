"""Floating-point operations of training, for model FLOP utilisation (MFU; Chowdhery et al. 2022)."""

from __future__ import annotations

import torch

from larvatus.models.network import Network
from larvatus.models.recipes import Recipe

# Dense bf16 peaks from the vendors' data sheets; a device that is not listed shows no MFU.
_PEAKS = {
    "B200": 2250e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "A100": 312e12,
    "A40": 150e12,
    "A10": 125e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
}
"""The first whose name stands in the device's."""


def flops_per_token(model: Network, recipe: Recipe, length: int) -> float:
    """Forward and backward of one token: 6 per weight of the blocks, attention to tokens seen, share of the head."""
    generator = model.generator.encoder.flops(length) if model.generator is not None else 0
    head = 6 * recipe.words_per_token * model.encoder.word_vectors.numel()
    return model.encoder.flops(length) + generator + head


def peak_flops(device: str, precision: str = "bf16") -> float | None:
    """What the data sheet of a GPU promises in bf16; None elsewhere, and in other precisions."""
    if not device.startswith("cuda") or precision != "bf16":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for key, peak in _PEAKS.items() if key in name), None)
