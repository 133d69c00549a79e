"""Floating-point operations of training, for model FLOP utilisation (MFU; Chowdhery et al. 2022)."""

from __future__ import annotations

import torch

from larvatus.objectives import Pretraining
from larvatus.recipes import Recipe

# Dense bf16 peaks from the vendors' data sheets; a device that is not listed shows no MFU.
_PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "RTX 4090": 165e12}


def flops_per_token(model: Pretraining, recipe: Recipe, length: int) -> float:
    """Forward and backward of one token: 6 per weight of the blocks, attention to tokens seen, share of the head."""
    weights = sum(p.numel() for p in model.encoder.blocks.parameters())
    blocks = weights * recipe.model.layers // len(model.encoder.blocks)  # shared weights are used in every layer
    blocks += sum(p.numel() for p in model.encoder.embeddings.project.parameters())
    windows = [recipe.model.window(layer) for layer in range(recipe.model.layers)]
    seen = sum(min(length, 2 * window + 1) if window else length for window in windows)
    attention = 12 * recipe.model.hidden * seen
    head = 6 * recipe.corruption.rate * recipe.model.width * model.encoder.embeddings.words.num_embeddings
    return 6 * blocks + attention + head


def peak_flops(device: str) -> float | None:
    if not device.startswith("cuda"):
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for key, peak in _PEAKS.items() if key in name), None)
