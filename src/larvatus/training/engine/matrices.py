"""Which numbers of a model are matrices: those of its blocks, several in one parameter, alike ones updated together.

stacked_matrices(model)        {qkv.weight: 3, up.weight: 2, …}
hidden_matrices(model)         [qkv.weight, out.weight, up.weight, …]: of blocks, not of embeddings or heads
alike(items, key)              lists of items with one key, as many as may be updated together
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from torch import Tensor, nn

TOGETHER = 1 << 25
"""Numbers of parameters that are updated together, at most: what a step needs for a while grows with them."""
T = TypeVar("T")


def stacked_matrices(model: nn.Module) -> dict[Tensor, int]:
    """The parameters of a model that hold several matrices, and how many; modules name theirs in `stacked`."""
    named = ((module, getattr(module, "stacked", {})) for module in model.modules())
    return {module.get_parameter(name): count for module, parts in named for name, count in parts.items()}


def hidden_matrices(model: nn.Module) -> list[Tensor]:
    """The weights of linear layers in the blocks of a model, each once: shared ones stand in several blocks."""
    stacks = (getattr(module, "blocks", None) for module in model.modules())
    layers = (layer for stack in stacks if isinstance(stack, nn.Module) for layer in stack.modules())
    return list(dict.fromkeys(layer.weight for layer in layers if isinstance(layer, nn.Linear)))


def group_alike(items: Iterable[T], *, key: Callable[[T], Hashable], numbers: Callable[[T], int]) -> Iterator[list[T]]:
    """Items of one key, in lists that have at most `TOGETHER` numbers, or a single item."""
    kinds: defaultdict[Hashable, list[T]] = defaultdict(list)
    for item in items:
        kinds[key(item)].append(item)
    for members in kinds.values():
        most = max(1, TOGETHER // max(1, numbers(members[0])))
        yield from (members[start : start + most] for start in range(0, len(members), most))
