"""The decoding half of an encoder–decoder: a stack of blocks that reads what is written so far, and the memory.

    memory = Memory(states_MD, lengths_B)                      # what the encoder has read
    z_ND = decoder(embedded_ND, lengths_B, memory)             # from which the word vectors say what comes next

A token sees the tokens of its own sequence up to itself, and all that the encoder has read of that sequence; nothing of
another. N tokens of the decoder, M tokens of the encoder, B sequences, D hidden size.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from larvatus.core.errors import UsageError
from larvatus.models.nn.attention.crossing import Paired
from larvatus.models.nn.attention.sight import Sight
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.encoder_decoder_block import Distances, EncoderDecoderBlock, norm_of
from larvatus.models.nn.encoder_decoder_settings import EncoderDecoderSettings
from larvatus.models.nn.recompute import Recomputes


class Memory(NamedTuple):
    """What the encoder has read."""

    states_MD: Tensor
    lengths_B: Tensor


class DecoderStack(Recomputes):
    def __init__(self, config: EncoderDecoderSettings) -> None:
        super().__init__()
        self.config = config
        self.blocks = nn.ModuleList(EncoderDecoderBlock(config, cross=True) for _ in range(config.decoder_blocks))
        self.relative = Distances(config, bidirectional=False)
        self.final_norm = norm_of(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_ND: Tensor, lengths_B: Tensor, memory: Memory) -> Tensor:
        pairs: Paired = Paired.of(lengths_B, memory.lengths_B)
        if pairs.longest > self.config.max_positions:
            raise UsageError(
                f"a text of {pairs.longest} tokens is longer than the {self.config.max_positions} that the decoder "
                "writes; give shorter ones"
            )
        read_MD = memory.states_MD.index_select(0, pairs.read)
        sight = Sight(causal=True, bias=self.relative.table(pairs.longest))
        x_ND = self.dropout(x_ND.index_select(0, pairs.order))
        for block in self.blocks:
            x_ND = self.layer(block, x_ND, pairs.itself, sight, read_MD, pairs.across)
        return self.finished(x_ND).index_select(0, pairs.inverse)

    def finished(self, x_ND: Tensor) -> Tensor:
        """After the last block: as the word vectors want it. Tied ones are about √D long, which is divided by."""
        z_ND: Tensor = self.dropout(self.final_norm(x_ND))
        return z_ND * self.config.hidden**-0.5 if self.config.tied else z_ND
