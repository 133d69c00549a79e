"""The networks: attention, blocks, encoders. No I/O here; one layer a file."""

from larvatus.models.nn.compiling import fill_batch
from larvatus.models.nn.device import on_device
from larvatus.models.nn.initialise import initialise
from larvatus.models.nn.transformer import Transformer, TransformerConfig

__all__ = ["Transformer", "TransformerConfig", "fill_batch", "initialise", "on_device"]
