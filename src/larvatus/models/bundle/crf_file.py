"""`crf.safetensors`: the CRF of a tagger, beside the weights.

No model of `transformers` has a place for it: there the directory is a tagger without one. In our own layout the CRF
stands among the other weights, and there is no such file.
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
"""How the names of its parameters begin in our model; the file leaves that out."""


def write_crf(directory: Path, tensors: Mapping[str, Tensor]) -> None:
    """Always in float32: there are few, and paths add them up over hundreds of words. None: no file."""
    if tensors:
        write_tensors(directory / NAME, {name.removeprefix(PREFIX): t.float() for name, t in tensors.items()})


def read_crf(directory: Path, wanted: Mapping[str, Shape], *, allow_nan: bool = False) -> dict[str, Tensor]:
    """The parameters that the model wants of the file, by our names; where it wants none, no file is needed."""
    if not wanted:
        return {}
    path = directory / NAME
    if not is_there(path):
        raise ArtefactError(
            f"{path} is missing, though config.json says that this tagger has a CRF; fetch it too, or set crf to false "
            "there, in larvatus_head, to tag without"
        )
    shapes = {name.removeprefix(PREFIX): shape for name, shape in wanted.items()}
    check_fit(path, stored={name: entry.shape for name, entry in read_header(path).items()}, wanted=shapes)
    tensors = read_tensors(path, allow_nan=allow_nan)
    return {f"{PREFIX}{name}": tensor.to(torch.float32, copy=True) for name, tensor in tensors.items()}
