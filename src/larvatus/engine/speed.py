"""Floating-point operations of training, for model FLOP utilisation (MFU; Chowdhery et al. 2022)."""

from __future__ import annotations

import torch

from larvatus.network import Network
from larvatus.recipes import Recipe

# Dense bf16 peaks from the vendors' data sheets; a device that is not listed shows no MFU.
_PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "RTX 4090": 165e12}


def flops_per_token(model: Network, recipe: Recipe, length: int) -> float:
    """Forward and backward of one token: 6 per weight of the blocks, attention to tokens seen, share of the head."""
    generator = model.generator.encoder.flops(length) if model.generator is not None else 0
    head = 6 * recipe.words_per_token * model.encoder.word_vectors.numel()
    return model.encoder.flops(length) + generator + head


def peak_flops(device: str) -> float | None:
    if not device.startswith("cuda"):
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for key, peak in _PEAKS.items() if key in name), None)
