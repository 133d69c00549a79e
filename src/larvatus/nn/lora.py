"""LoRA (Hu et al. 2022): the weights stay as they are, and beside some of them a product of two thin matrices learns.

    h = W x + (α / r) B A x            A [r, in] drawn at random, B [out, r] zero: training starts where the model was

Queries, keys and values are one matrix here (`attention.qkv`), so a pair may belong to a third of its rows. Weights
keep their names; the pairs come beside them (``attention.qkv.lora.query.a``), and merging leaves no trace but the sum:

    >>> from larvatus.nn.transformer import Transformer, TransformerConfig
    >>> encoder = Transformer(TransformerConfig(layers=2, hidden=8, heads=2), vocabulary=10)
    >>> add_lora(encoder, LoRAConfig(rank=2), seed=1)
    >>> parameter_counts(encoder).trained                  # 2 layers × 2 targets × (2 × 8 + 8 × 2)
    128
    >>> merge_lora(encoder)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, get_args

import torch
import torch.nn.functional as F
from msgspec import Struct
from torch import Tensor, nn

from larvatus import rng
from larvatus.errors import UsageError, did_you_mean
from larvatus.nn.dropout import Dropout
from larvatus.ranges import DropoutRate, Factor, Size, check_ranges

if TYPE_CHECKING:  # its attention asks `full_weight`
    from larvatus.nn.transformer import Transformer

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
"""Where in a block: the layer, its matrix, and which third of its rows."""


class LoRAConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rank: Size = 8
    """Rank r of what is added to a matrix."""
    alpha: Factor = 16.0
    """What is added is scaled by α / r, so that the rank can change and the learning rate stay."""
    targets: tuple[Target, ...] = ("query", "value")
    """Matrices of each block that learn: query, key, value, out (of attention), up, down (of the feedforward layer)."""
    dropout: DropoutRate = 0.0
    """On what A reads."""

    def __post_init__(self) -> None:
        check_ranges(self, "LoRA: ")
        for target in self.targets:
            if target not in TARGETS:
                raise UsageError(f"LoRA has no target {target!r}{did_you_mean(target, TARGETS)}")
        if not self.targets or len(set(self.targets)) < len(self.targets):
            raise UsageError(f"LoRA wants one target or more, each named once, not {list(self.targets)}")


class LowRank(nn.Module):
    """B A, added to some rows of a matrix."""

    a: nn.Parameter  # [r, in]
    b: nn.Parameter  # [rows, r]

    def __init__(self, *, inputs: int, rows: slice, rank: int, like: Tensor) -> None:
        super().__init__()
        self.rows = rows
        self.a = nn.Parameter(like.new_empty(rank, inputs))
        self.b = nn.Parameter(like.new_zeros(rows.stop - rows.start, rank))

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """A normal, as wide as the authors' code draws it (variance 1 / (3 in)); B zero. Drawn on the CPU."""
        drawn = torch.empty(self.a.shape, dtype=torch.float32)
        self.a.copy_(drawn.normal_(std=1 / math.sqrt(3 * self.a.shape[1]), generator=generator))
        self.b.zero_()


class LoRALinear(nn.Linear):
    """A linear layer with low-rank additions; its weight and bias are those of the layer it stands for, not copies."""

    def __init__(self, base: nn.Linear, parts: Mapping[Target, slice], config: LoRAConfig) -> None:
        super().__init__(base.in_features, base.out_features, bias=base.bias is not None, device="meta")
        self.weight, self.bias = base.weight, base.bias
        self.training = base.training
        self.scale = config.alpha / config.rank
        self.lora_dropout = Dropout(config.dropout).train(base.training)
        self.lora = nn.ModuleDict(
            {
                name: LowRank(inputs=self.in_features, rows=rows, rank=config.rank, like=base.weight)
                for name, rows in parts.items()
            }
        )

    def factors(self) -> tuple[Tensor, Tensor]:
        """All pairs as one: A [R, in], and (α / r) B [out, R], zero in rows that are not a pair's; R = pairs × r."""
        pairs = [cast(LowRank, pair) for pair in self.lora.values()]
        rank = len(pairs[0].a)
        b = self.weight.new_zeros(self.out_features, len(pairs) * rank)
        for number, pair in enumerate(pairs):
            b[pair.rows, number * rank : (number + 1) * rank] = self.scale * pair.b
        return torch.cat([pair.a for pair in pairs]), b

    def forward(self, input: Tensor) -> Tensor:
        """[N, in] → [N, out]. One product for all pairs: adding to rows of the output would copy its gradient."""
        a, b = self.factors()
        return torch.addmm(F.linear(input, self.weight, self.bias), F.linear(self.lora_dropout(input), a), b.T)

    def full_weight(self) -> Tensor:
        """W + (α / r) B A: what computes the same without dropout."""
        a, b = self.factors()
        return torch.addmm(self.weight, b, a)

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """A plain layer, with this one's parameters, changed in place."""
        self.weight.copy_(self.full_weight())
        plain = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None, device="meta")
        plain.weight, plain.bias = self.weight, self.bias
        return plain.train(self.training)


def full_weight(linear: nn.Linear) -> Tensor:
    """The matrix that a layer multiplies with, for those that take a part of it."""
    return linear.full_weight() if isinstance(linear, LoRALinear) else linear.weight


def add_lora(transformer: Transformer, config: LoRAConfig, *, seed: int) -> None:
    """In place: freeze all of the encoder, and give the targets of every block pairs that learn, on its device.

    A block that all layers share has one pair for all of them. The same numbers for the same seed.
    """
    if any(isinstance(module, LoRALinear) for module in transformer.modules()):
        raise UsageError("the model has LoRA already; merge it before adding another")
    transformer.requires_grad_(False)
    for number, block in enumerate(transformer.blocks):
        found: dict[tuple[str, str], dict[Target, slice]] = {}
        for target in config.targets:
            layer, name, third = _PLACES[target]
            size = cast(nn.Linear, block.get_submodule(f"{layer}.{name}")).out_features
            rows = slice(0, size) if third is None else slice(third * size // 3, (third + 1) * size // 3)
            found.setdefault((layer, name), {})[target] = rows
        for (layer, name), parts in found.items():
            with_lora = LoRALinear(cast(nn.Linear, block.get_submodule(f"{layer}.{name}")), parts, config)
            for part, pair in with_lora.lora.items():
                generator = torch.Generator().manual_seed(rng.derive(seed, f"lora {number} {part}"))
                cast(LowRank, pair).initialise(generator)
            setattr(block.get_submodule(layer), name, with_lora)


def merge_lora(transformer: Transformer) -> None:
    """In place: the plain encoder again, its weights what LoRA arrived at. Nothing happens where there is none."""
    for parent in list(transformer.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, LoRALinear):
                setattr(parent, name, child.merged())


class ParameterCounts(NamedTuple):
    trained: int
    total: int


def parameter_counts(module: nn.Module) -> ParameterCounts:
    """How many numbers learn, and how many there are; shared ones count once."""
    parameters = list(module.parameters())
    return ParameterCounts(sum(p.numel() for p in parameters if p.requires_grad), sum(p.numel() for p in parameters))
