"""The weight files of a model, in floating point or in int8, and whether they belong to its settings.

    files = WeightFiles.open(find_weights(directory), layout)     # headers only: nothing is allocated yet
    unused = files.check(layout, wanted)                          # one error that lists everything that does not fit
    tensors = files.read(layout, allow_nan=False)

`model.int8.safetensors` holds weights in a quarter of the space, as 8-bit integers with a scale for each row
(`quantise_tensors` writes it, `iter_int8` reads it). A row w of a matrix becomes q = round(w / s), from -127 to 127,
with s = max|w| / 127, and is read back as s · q:

    encoder.embeddings.word.weight          I8  [12288, 384]
    encoder.embeddings.word.weight.scale    F32 [12288]
    encoder.final_norm.weight               F32 [384]            tensors that are not matrices stay unchanged

Reading gives float32, so an int8 model can do everything that others can. The file has a name of its own, so that
`transformers` does not find it and mistake the integers for weights.

A config.json of another model, or a hostile one, states layers, tokens or segments that the other files lack.
`check_sizes` refuses it before memory is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from larvatus.core.errors import ArtefactError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.huggingface import Architecture, ModelLayout
from larvatus.models.bundle.weights import INT8, TensorEntry, check_fit, check_float, iter_tensors, read_header

NAME = INT8
SCALE = ".scale"
LARGEST = 127
MOST = 128
"""Largest magnitude that a file may hold."""
SHORTEST_ROW = 16
"""Shortest row that gets a scale, which takes four bytes."""


def quantise_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The contents of the file: matrices as integers with their scales, the rest in float32."""
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        weights = tensor.detach().float()
        if weights.ndim < 2 or math.prod(weights.shape[1:]) < SHORTEST_ROW:
            stored[name] = weights
            continue
        rows = weights.flatten(1)
        scale = (rows.abs().amax(1) / LARGEST).clamp_min(torch.finfo(torch.float32).tiny)
        stored[name] = (rows / scale[:, None]).round().to(torch.int8).view(weights.shape)
        stored[name + SCALE] = scale
    return stored


def int8_header(path: Path) -> dict[str, TensorEntry]:
    """The tensors that reading the file will give; refused if a scale is missing or fits no matrix."""
    entries = read_header(path)
    whole: dict[str, TensorEntry] = {}
    for name, entry in entries.items():
        if entry.dtype == "I8":
            scale = entries.get(name + SCALE)
            if len(entry.shape) < 2 or scale is None or scale.dtype != "F32" or scale.shape != entry.shape[:1]:
                raise ArtefactError(f"{path}: {name} has no scale for each of its rows; fetch or save it again")
            whole[name] = TensorEntry("F32", entry.shape, entry.data_offsets)
        elif not _is_scale(name, entries):
            whole[name] = entry
    return whole


def iter_int8(path: Path, *, allow_nan: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Each tensor in turn, as float32."""
    entries = read_header(path)
    scales = {
        name.removesuffix(SCALE): tensor
        for name, tensor in iter_tensors(path, allow_nan=allow_nan, integers=True)
        if _is_scale(name, entries)
    }
    for name, tensor in iter_tensors(path, allow_nan=allow_nan, integers=True):
        if name in scales:
            if not allow_nan and not bool(torch.isfinite(MOST * scales[name]).all()):
                raise ArtefactError(f"{path}: the scales of {name} are too large for float32; fetch or save it again")
            yield name, (tensor.flatten(1).float() * scales[name][:, None]).view(tensor.shape)
        elif not _is_scale(name, entries):
            yield name, tensor


def _is_scale(name: str, entries: Mapping[str, TensorEntry]) -> bool:
    matrix = entries.get(name.removesuffix(SCALE)) if name.endswith(SCALE) else None
    return matrix is not None and matrix.dtype == "I8"


@dataclass(frozen=True)
class Reconstruction:
    """Relative error of the weights, |ŵ - w| / |w|, over all numbers of a tensor or of the model."""

    error: float
    worst: str
    """The tensor with the largest error."""
    worst_error: float

    @classmethod
    def of(cls, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> Reconstruction:
        """Compare the tensors that both have."""
        gaps, norms = dict[str, float](), dict[str, float]()
        for name in before.keys() & after.keys():
            was = before[name].double()
            gaps[name], norms[name] = float((after[name].double() - was).square().sum()), float(was.square().sum())
        share = {name: math.sqrt(gap / norms[name]) if norms[name] else 0.0 for name, gap in gaps.items()}
        worst = max(sorted(share), key=lambda name: share[name])
        return cls(math.sqrt(sum(gaps.values()) / max(sum(norms.values()), 1e-300)), worst, share[worst])


@dataclass(frozen=True)
class WeightFiles:
    """The tensors of one or several files, under canonical names."""

    paths: list[Path]
    entries: dict[str, TensorEntry]

    @property
    def name(self) -> Path:
        return self.paths[0] if len(self.paths) == 1 else self.paths[0].parent

    @classmethod
    def open(cls, paths: list[Path], layout: ModelLayout) -> WeightFiles:
        entries: dict[str, TensorEntry] = {}
        for path in paths:
            header = int8_header(path) if path.name == NAME else read_header(path)
            for name, entry in header.items():
                known = layout.canonical_name(name)
                if known in entries:
                    raise ArtefactError(f"{path}: tensor {name} occurs twice, under two names or in two files")
                if known is not None:
                    check_float(path, name, entry)
                    entries[known] = entry
        return cls(paths, entries)

    def check(self, layout: ModelLayout, wanted: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
        """Refuse tensors that do not fit, before anything is allocated; returns the names that stay unused."""
        shapes = {name: entry.shape for name, entry in self.entries.items()}
        for alias, original in layout.aliases.items():
            if alias in shapes:
                shapes.setdefault(original, shapes[alias])
                del shapes[alias]
        unused = tuple(sorted(name for name in shapes if name in layout.optional and name not in wanted))
        check_fit(self.name, stored={n: s for n, s in shapes.items() if n not in unused}, wanted=wanted)
        return unused

    def read(self, layout: ModelLayout, *, allow_nan: bool) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for path in self.paths:
            stored = (
                iter_int8(path, allow_nan=allow_nan)
                if path.name == NAME
                else iter_tensors(path, allow_nan=allow_nan, integers=True)
            )
            for name, tensor in stored:
                known = layout.canonical_name(name)
                if known is not None:
                    tensors[known] = tensor
        for alias, original in layout.aliases.items():
            if alias in tensors:
                copy = tensors.pop(alias)
                if not torch.equal(tensors.setdefault(original, copy), copy):
                    raise ArtefactError(
                        f"{self.name}: {alias} differs from {original}, to which this kind of model ties it; untied "
                        "weights are not supported"
                    )
        return tensors


# Sizes that a config.json states.

MAX_SHARED = 1_000
"""Most layers that share one block: no number of tensors limits them, so config.json may not state any number."""


def check_sizes(architecture: Architecture, tokenizer: Tokenizer, source: Path, *, tensors: int) -> None:
    """Refuse a config.json and a tokenizer that do not fit each other, or the number of stored tensors."""
    if architecture.model.layers > (MAX_SHARED if architecture.model.blocks < architecture.model.layers else tensors):
        raise ArtefactError(f"{source} states {architecture.model.layers:,} layers, but has only {tensors:,} tensors")
    if tokenizer.size > architecture.vocabulary:
        raise ArtefactError(
            f"{source} states {architecture.vocabulary:,} tokens, but its tokenizer has {tokenizer.size:,}; they "
            "belong to different models"
        )
    if architecture.model.enclosed and not tokenizer.template.encloses:
        raise ArtefactError(
            f"{source}: the tokenizer adds no special token before a text, or none after it, and the model needs "
            "both; correct post_processor in tokenizer.json, or cls_token and sep_token in tokenizer_config.json"
        )
    if tokenizer.library.post_processor is not None and architecture.model.segments > 1:
        highest = tokenizer.template.highest_segment
        if highest >= architecture.model.segments:
            raise ArtefactError(
                f"{source} states {architecture.model.segments} segments, but its tokenizer numbers them up to "
                f"{highest}; they belong to different models"
            )
