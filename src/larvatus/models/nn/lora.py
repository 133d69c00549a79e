"""LoRA (Hu et al. 2022): the weights stay frozen, and a product of two thin matrices is trained next to some of them.

    h = W x + (α / r) B A x            A [r, in] random, B [out, r] zero: training starts at the pretrained model

Queries, keys and values are one matrix here (`attention.qkv`), so a pair may belong to a third of its rows. Weights
keep their names; the pairs are added (``attention.qkv.lora.query.a``), and merging leaves only the sum:

    >>> from larvatus.models.nn.transformer import TransformerConfig
    >>> encoder = TransformerConfig(layers=2, hidden=8, heads=2).build(vocabulary=10)
    >>> add_lora(encoder, LoRAConfig(rank=2), seed=1)
    >>> parameter_counts(encoder).trained                  # 2 layers × 2 targets × (2 × 8 + 8 × 2)
    128
    >>> merge_lora(encoder)

An adapter is the pairs without the encoder. `merged_copy` gives a second encoder with them that shares all tensors
which the pairs do not change, and `extract_lora` finds the pairs between an encoder and its fine-tuned copy.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeVar, cast, get_args

import torch
from torch import Tensor, nn

from larvatus.core import rng
from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.ranges import DropoutRate, Factor, Size
from larvatus.core.settings import Settings
from larvatus.models.nn.block_stack import Block
from larvatus.models.nn.linear import LoRALinear, LowRank
from larvatus.models.nn.xlnet_layers import XLNetBlock

Target = Literal["query", "key", "value", "out", "up", "down"]
TARGETS: tuple[Target, ...] = get_args(Target)
_PLACES: dict[Target, tuple[str, str, int | None]] = {
    "query": ("attention", "qkv", 0),
    "key": ("attention", "qkv", 1),
    "value": ("attention", "qkv", 2),
    "out": ("attention", "out", None),
    "up": ("feedforward", "up", None),
    "down": ("feedforward", "down", None),
}
"""Location in a block: the layer, its matrix, and which third of its rows."""


class LoRAConfig(Settings, path="LoRA: "):
    rank: Size = 8
    """Rank r of the addition to a matrix."""
    alpha: Factor = 16.0
    """The addition is scaled by α / r, so that the rank can change without changing the learning rate."""
    targets: tuple[Target, ...] = ("query", "value")
    """Matrices of each block that are trained: query, key, value, out (of attention), up, down (of the feedforward
    layer).
    """
    dropout: DropoutRate = 0.0
    """Dropout on the input of A."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for target in self.targets:
            if target not in TARGETS:
                raise UsageError(f"LoRA has no target {target!r}{did_you_mean(target, TARGETS)}")
        if not self.targets or len(set(self.targets)) < len(self.targets):
            raise UsageError(f"LoRA needs at least one target, each named once, not {list(self.targets)}")


def add_lora(encoder: nn.Module, config: LoRAConfig, *, seed: int) -> None:
    """In place: freeze the encoder, and add trainable pairs to the targets of every block, on its device.

    A block that all layers share has one pair for all of them. Equal seeds give equal numbers.
    """
    if any(isinstance(module, LoRALinear) for module in encoder.modules()):
        raise UsageError("the model has LoRA already; merge it before adding another")
    blocks = [module for module in encoder.modules() if isinstance(module, Block | XLNetBlock)]
    if not blocks:
        raise UsageError("the model has no transformer blocks to add LoRA to; train all or head")
    encoder.requires_grad_(False)
    for number, block in enumerate(blocks):
        for (layer, name), parts in _rows_of_targets(block, config.targets).items():
            linear = cast(nn.Linear, block.get_submodule(f"{layer}.{name}"))
            adapted = LoRALinear(linear, parts, rank=config.rank, alpha=config.alpha, dropout=config.dropout)
            for part, pair in adapted.lora.items():
                generator = torch.Generator().manual_seed(rng.derive(seed, f"lora {number} {part}"))
                cast(LowRank, pair).initialise(generator)
            setattr(block.get_submodule(layer), name, adapted)


def _rows_of_targets(block: nn.Module, targets: tuple[Target, ...]) -> dict[tuple[str, str], dict[str, slice]]:
    """The rows of each target, by the matrix that contains them."""
    rows: dict[tuple[str, str], dict[str, slice]] = {}
    for target in targets:
        layer, name, third = _PLACES[target]
        size = cast(nn.Linear, block.get_submodule(f"{layer}.{name}")).out_features
        whole = slice(0, size) if third is None else slice(third * size // 3, (third + 1) * size // 3)
        rows.setdefault((layer, name), {})[target] = whole
    return rows


def merge_lora(encoder: nn.Module) -> None:
    """In place: merge LoRA into the weights, giving a plain encoder again. Does nothing without LoRA."""
    for parent in list(encoder.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, LoRALinear):
                setattr(parent, name, child.merged())


AnyEncoder = TypeVar("AnyEncoder", bound=nn.Module)


class _Pair(NamedTuple):
    """Where a pair belongs."""

    linear: nn.Linear
    matrix: str
    """Name of the matrix in the encoder, with `weight` left out."""
    part: str
    rows: slice

    @property
    def names(self) -> tuple[str, str]:
        """Parameter names of A and B, as `add_lora` gives them."""
        return f"{self.matrix}.lora.{self.part}.a", f"{self.matrix}.lora.{self.part}.b"


def _pairs(encoder: nn.Module, targets: tuple[Target, ...]) -> Iterator[_Pair]:
    for name, block in encoder.named_modules():
        if isinstance(block, Block | XLNetBlock):
            for (layer, matrix), parts in _rows_of_targets(block, targets).items():
                place = f"{layer}.{matrix}"
                linear = cast(nn.Linear, block.get_submodule(place))
                for part, rows in parts.items():
                    yield _Pair(linear, f"{name}.{place}", part, rows)


def lora_shapes(encoder: nn.Module, config: LoRAConfig) -> dict[str, tuple[int, int]]:
    """Names and shapes of the pairs that `add_lora` would add; nothing is allocated."""
    shapes: dict[str, tuple[int, int]] = {}
    for pair in _pairs(encoder, config.targets):
        a, b = pair.names
        shapes |= {
            a: (config.rank, pair.linear.in_features),
            b: (pair.rows.stop - pair.rows.start, config.rank),
        }
    return shapes


@torch.no_grad()
def merged_copy(encoder: AnyEncoder, config: LoRAConfig, tensors: Mapping[str, Tensor]) -> AnyEncoder:
    """A second encoder with W + (α / r) B A; the first stays as it is. Both share every other tensor."""
    shared = {id(tensor): tensor for tensor in (*encoder.parameters(), *encoder.buffers())}
    second = copy.deepcopy(encoder, shared)
    changed = set[nn.Linear]()
    for pair in _pairs(second, config.targets):
        a, b = (tensors[name].to(pair.linear.weight) for name in pair.names)
        if pair.linear not in changed:
            pair.linear.weight = nn.Parameter(pair.linear.weight.detach().clone(), requires_grad=False)
            changed.add(pair.linear)
        pair.linear.weight[pair.rows].addmm_(b, a, alpha=config.alpha / config.rank)
    return second


@torch.no_grad()
def extract_lora(before: nn.Module, after: nn.Module, config: LoRAConfig) -> tuple[dict[str, Tensor], float]:
    """The pairs of this rank nearest to the difference of two encoders, and the share of its norm that they miss.

    They are the first singular vectors of W' - W (Eckart & Young 1936), which for weights that LoRA of this rank
    trained are all of it. With α = r, so that B A is the difference.
    """
    tensors: dict[str, Tensor] = {}
    missed = whole = 0.0
    for pair, tuned in zip(_pairs(before, config.targets), _pairs(after, config.targets), strict=True):
        difference = (tuned.linear.weight[pair.rows].double() - pair.linear.weight[pair.rows].double()).cpu()
        u, sizes, v = torch.linalg.svd(difference, full_matrices=False)
        rank = min(config.rank, len(sizes))
        roots = sizes[:rank].sqrt()
        a, b = difference.new_zeros(config.rank, difference.shape[1]), difference.new_zeros(len(u), config.rank)
        a[:rank], b[:, :rank] = roots[:, None] * v[:rank], u[:, :rank] * roots
        tensors |= dict(zip(pair.names, (a.float(), b.float()), strict=True))
        missed, whole = missed + float(sizes[rank:].square().sum()), whole + float(sizes.square().sum())
    return tensors, (missed / whole) ** 0.5 if whole else 0.0


class ParameterCounts(NamedTuple):
    trained: int
    total: int


def parameter_counts(module: nn.Module) -> ParameterCounts:
    """Trainable and total numbers; shared ones count once."""
    parameters = list(module.parameters())
    return ParameterCounts(sum(p.numel() for p in parameters if p.requires_grad), sum(p.numel() for p in parameters))
