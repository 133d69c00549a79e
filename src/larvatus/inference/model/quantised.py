"""int8 inference: the linear layers of a loaded network that are quantised.

    quantise_network(bundle.network)          # the layers of blocks, and the dense layers of heads

Embeddings, norms, attention between projections, and the last layer of a head (classes, words of the vocabulary) stay
float32: they decide the answer, and take little of the time.
"""

from __future__ import annotations

from typing import Literal

from torch import nn

from larvatus.models.heads.head import Trunk
from larvatus.models.network import Network
from larvatus.models.nn.attention.attention import Attention
from larvatus.models.nn.attention.cross_attention import CrossAttention
from larvatus.models.nn.attention.relative_attention import RelativeAttention
from larvatus.models.nn.block_stack import Block
from larvatus.models.nn.feedforward import FeedForward
from larvatus.models.nn.linear import ROWS, Int8Linear, check_int8
from larvatus.models.nn.transformer import Embeddings
from larvatus.models.objectives import MaskedLM

Quantise = Literal["int8"]
PLACES: dict[type[nn.Module], tuple[str, ...]] = {
    Attention: ("qkv", "out"),
    RelativeAttention: ("out",),  # its other matrices are used in parts
    CrossAttention: ("q", "kv", "out"),
    FeedForward: ("up", "down"),
    Embeddings: ("project",),
    MaskedLM: ("dense",),
    Trunk: ("dense",),
}
"""Names of linear layers that are only ever called, by the class of their module."""


def int8_weights(network: Network) -> int:
    """Number of quantised weights."""
    return sum(module.weights for module in network.modules() if isinstance(module, Int8Linear))


def quantise_network(network: Network) -> None:
    """Replace weights by int8; the network then runs only on a CPU."""
    check_int8()
    made: dict[nn.Module, Int8Linear] = {}
    for module in list(network.modules()):
        if isinstance(module, Block):
            module.rows_at_once = ROWS
        for name in (name for kind, names in PLACES.items() if isinstance(module, kind) for name in names):
            linear = getattr(module, name)
            if isinstance(linear, nn.Linear):
                if linear not in made:  # layers may share one
                    made[linear] = Int8Linear(linear)
                setattr(module, name, made[linear])
