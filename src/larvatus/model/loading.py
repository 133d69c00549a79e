"""Where a model comes from: a directory, or the local cache of the Hugging Face hub.

model = load("runs/law", device="cpu")
"""

from __future__ import annotations

from pathlib import Path

import torch

from larvatus.bundle.directory import load_bundle
from larvatus.model.model import Model
from larvatus.nn.device import choose_device
from larvatus.nn.memory import saying_what_to_lower


def load(
    path: str | Path,
    *,
    device: str | torch.device = "auto",
    allow_nan: bool = False,
    revision: str | None = None,
    online: bool = False,
) -> Model:
    """Load a model directory, ours or one that `transformers` saved, or a model of the Hugging Face hub by its name.

    Args:
        path: A directory, or `org/name` or `org/name@COMMIT`, which is looked up in the local cache.
        device: `auto`, `cpu`, `cuda`, or a device of torch.
        allow_nan: Take weights that are no numbers, rather than refuse them.
        revision: The commit of a hub model, 40 digits.
        online: Download a hub model that is not in the cache; wants a revision.

    Returns:
        The model, in evaluation mode.

    Example:
        >>> load("runs/mine", device="cpu").encoder.config.layers
        2
    """
    chosen = choose_device(device)
    with saying_what_to_lower("take a smaller model, or end other programs"):
        return Model(load_bundle(path, allow_nan=allow_nan, revision=revision, online=online), chosen)
