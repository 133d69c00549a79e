"""What a model's size is: figures that can be counted again from its directory alone.

claims = size_claims(bundle.network, vocabulary=bundle.tokenizer.size)
"""

from __future__ import annotations

from larvatus.models.bundle.claims import Claim, make_claim
from larvatus.models.network import Network

SIZES = ("layers", "hidden", "heads", "max_positions")
"""Settings of an encoder that a card states, where it has them."""


def size_claims(network: Network, *, vocabulary: int) -> list[Claim]:
    config = network.encoder.config
    sizes = {name: getattr(config, name) for name in SIZES if isinstance(getattr(config, name, None), int)}
    sizes |= {"parameters": sum(p.numel() for p in network.parameters()), "vocabulary": vocabulary}
    return [make_claim(name, size, command="model") for name, size in sizes.items()]
