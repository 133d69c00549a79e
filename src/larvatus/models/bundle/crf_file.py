"""`crf.safetensors`: the CRF of a tagger, in a file next to the weights.

No model of `transformers` has a place for it: there the directory is a tagger without a CRF. In our own layout the CRF
is among the other weights, and there is no such file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from larvatus.core.errors import ArtefactError
from larvatus.core.regular_files import is_there
from larvatus.models.bundle.weights import Shape, check_fit, read_header, read_tensors, write_tensors

NAME = "crf.safetensors"
PREFIX = "objectives.tagging.crf."
"""Beginning of its parameter names in our model; the file omits it."""


def write_crf(directory: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write the CRF, always in float32: it is small, and paths sum it over hundreds of words. No tensors, no file."""
    if tensors:
        write_tensors(directory / NAME, {name.removeprefix(PREFIX): t.float() for name, t in tensors.items()})


def read_crf(directory: Path, wanted: Mapping[str, Shape], *, allow_nan: bool = False) -> dict[str, Tensor]:
    """The parameters that the model needs from the file, by our names; a model that needs none needs no file."""
    if not wanted:
        return {}
    path = directory / NAME
    if not is_there(path):
        raise ArtefactError(
            f"{path} is missing, but config.json states that this tagger has a CRF; fetch it too, or set crf to false "
            "there, in larvatus_head, to tag without"
        )
    shapes = {name.removeprefix(PREFIX): shape for name, shape in wanted.items()}
    check_fit(path, stored={name: entry.shape for name, entry in read_header(path).items()}, wanted=shapes)
    tensors = read_tensors(path, allow_nan=allow_nan)
    return {f"{PREFIX}{name}": tensor.to(torch.float32, copy=True) for name, tensor in tensors.items()}
