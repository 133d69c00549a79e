"""int8 inference: which linear layers of a loaded network become whole numbers.

    quantise_network(bundle.network)          # the layers of blocks, and the dense layers of heads

Embeddings, norms, attention between projections, and the last layer of a head (classes, words of the vocabulary) stay
float32: they decide on the answer, and take little of the time.
"""

from __future__ import annotations

from typing import Literal

from torch import nn

from larvatus.models.heads.head import Trunk
from larvatus.models.network import Network
from larvatus.models.nn.attention.attention import Attention
from larvatus.models.nn.attention.cross_attention import CrossAttention
from larvatus.models.nn.attention.relative_attention import RelativeAttention
from larvatus.models.nn.block import Block
from larvatus.models.nn.embeddings import Embeddings
from larvatus.models.nn.feedforward import FeedForward
from larvatus.models.nn.int8 import ROWS, Int8Linear, check_int8
from larvatus.models.objectives import MaskedLM

Quantise = Literal["int8"]
PLACES: dict[type[nn.Module], tuple[str, ...]] = {
    Attention: ("qkv", "out"),
    RelativeAttention: ("out",),  # parts of its other matrices are read one by one
    CrossAttention: ("q", "kv", "out"),
    FeedForward: ("up", "down"),
    Embeddings: ("project",),
    MaskedLM: ("dense",),
    Trunk: ("dense",),
}
"""Where linear layers that are only ever called stand, by the module that has them."""


def int8_weights(network: Network) -> int:
    """How many weights were replaced."""
    return sum(module.weights for module in network.modules() if isinstance(module, Int8Linear))


def quantise_network(network: Network) -> None:
    """Put whole numbers in place of weights; it then computes on a CPU only."""
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
