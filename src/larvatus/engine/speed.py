"""Floating-point operations of training, for model FLOP utilisation (MFU; Chowdhery et al. 2022)."""

from __future__ import annotations

import torch

from larvatus.network import Network
from larvatus.nn.transformer import Transformer
from larvatus.recipes import Recipe

# Dense bf16 peaks from the vendors' data sheets; a device that is not listed shows no MFU.
_PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "RTX 4090": 165e12}


def flops_per_token(model: Network, recipe: Recipe, length: int) -> float:
    """Forward and backward of one token: 6 per weight of the blocks, attention to tokens seen, share of the head."""
    generator = _encoder_flops(model.generator.encoder, length) if model.generator is not None else 0
    head = 6 * recipe.words_per_token * recipe.model.width * model.encoder.embeddings.words.num_embeddings
    return _encoder_flops(model.encoder, length) + generator + head


def _encoder_flops(encoder: Transformer, length: int) -> int:
    config = encoder.config
    weights = sum(p.numel() for p in encoder.blocks.parameters())
    blocks = weights * config.layers // len(encoder.blocks)  # shared weights are used in every layer
    blocks += sum(p.numel() for p in encoder.embeddings.project.parameters())
    windows = [config.window(layer) for layer in range(config.layers)]
    seen = sum(min(length, 2 * window + 1) if window else length for window in windows)
    return 6 * blocks + 12 * config.hidden * seen


def peak_flops(device: str) -> float | None:
    if not device.startswith("cuda"):
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for key, peak in _PEAKS.items() if key in name), None)
