"""The networks: attention, blocks, the transformer. No I/O here; one layer a file."""

from larvatus.nn.buckets import IGNORE, fill
from larvatus.nn.device import on_device
from larvatus.nn.initialise import initialise
from larvatus.nn.transformer import Transformer, TransformerConfig

__all__ = ["IGNORE", "Transformer", "TransformerConfig", "fill", "initialise", "on_device"]
