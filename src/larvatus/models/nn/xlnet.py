"""XLNet (Yang et al. 2019): a transformer that predicts tokens in any order, and is bidirectional through that.

    z           an order of the tokens: z_1 is predicted first, z_T last, each from those before it in z
    content     h_t, as in any transformer, but attends only to what comes no later than t in z
    query       g_t, knows its position and what comes earlier in z, but not its own token: predicts x_t

Fine-tuned and used as an encoder, it has no order: the content stream attends to everything (`forward`). Only distances
matter (`attention/relative_attention.py`), so no position is embedded.

    >>> from larvatus.core.batch import TokenBatch
    >>> encoder = XLNetConfig(layers=2, hidden=8, heads=2).build(vocabulary=10)
    >>> batch = TokenBatch.of([[7, 8, 4, 3], [9, 4, 3]]).map(torch.from_numpy)
    >>> encoder(batch).shape                                      # one vector a token
    torch.Size([7, 8])
    >>> order, places = torch.tensor([0, 2, 0, 0, 1, 0, 0]), torch.tensor([1, 4])
    >>> encoder.two_streams(batch, order, places).shape           # one vector a predicted token
    torch.Size([2, 8])

N tokens in the flat batch, M predicted positions, D hidden size, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import cast

import msgspec
import torch
from torch import Tensor, nn

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import RecipeError, UsageError
from larvatus.core.ranges import Deviation, DropoutRate, Epsilon, Size, SizeOrNone
from larvatus.models.nn.attention.relative_attention import RelativeContext, StreamLayout, sinusoids
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.encoder_base import AttentionEncoder, AttentionSettings, Encoder, by_sequence, fewer_heads
from larvatus.models.nn.feedforward import Activation
from larvatus.models.nn.xlnet_layers import SegmentMemory, SequenceHalves, XLNetBlock


class XLNetConfig(AttentionSettings, tag_field="type", tag="xlnet"):
    """Its vocabularies add nothing before a text, so that it is not `enclosed`."""

    activation: Activation = "gelu"
    """Nonlinearity of the feedforward layer."""
    norm_epsilon: Epsilon = 1e-12
    """Added to the variance in norms."""
    max_positions: Size = 512
    """Longest sequence, in tokens. Distances have no limit; this is what the model is trained and used for."""
    memory: SizeOrNone = 0
    """States remembered from the previous segment; 0: none. In pretraining the second half of each sequence then
    remembers the first.
    """
    dropout: DropoutRate = 0.1
    """Dropout on embeddings, distances, attention weights and the output of each layer."""
    init: Deviation = 0.02
    """Standard deviation of the initial weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden % 2:
            raise RecipeError(
                f"model.hidden = {self.hidden} must be even, since distances are sines and cosines; set model.hidden "
                f"= {self.hidden + 1}"
            )

    @property
    def segments(self) -> int:
        """As many as its vocabularies number (two texts, <cls>, <sep>, padding); it only compares two for equality."""
        return 5

    def least_weights(self, vocabulary: int) -> int:
        return self.layers * (5 * self.hidden**2 + 2 * self.hidden * self.inner) + vocabulary * self.hidden

    def build(self, vocabulary: int) -> XLNet:
        return XLNet(self, vocabulary)

    def narrowed(self, share: float) -> XLNetConfig:
        hidden = max(2, 2 * round(self.hidden * share / 2))
        heads = fewer_heads(hidden, size=self.hidden // self.heads)
        inner = max(1, round(self.feedforward * share)) if self.feedforward else 0
        return msgspec.structs.replace(self, hidden=hidden, heads=heads, feedforward=inner)


class XLNetEmbeddings(nn.Module):
    def __init__(self, vocabulary: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, hidden)
        self.dropout = Dropout(dropout)

    def forward(self, ids_N: Tensor) -> Tensor:
        x_ND: Tensor = self.dropout(self.words(ids_N))
        return x_ND


class Query(nn.Module):
    """The initial query vector: the same for every position, since the token there is unknown."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.unknown = nn.Parameter(torch.empty(hidden))

    def forward(self, count: int) -> Tensor:
        return self.unknown.expand(count, -1)


class XLNet(AttentionEncoder):
    config: XLNetConfig

    def __init__(self, config: XLNetConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embeddings = XLNetEmbeddings(vocabulary, config.hidden, config.dropout)
        self.query = Query(config.hidden)
        rates = {"norm_epsilon": config.norm_epsilon, "dropout": config.dropout}
        self.blocks = nn.ModuleList(
            XLNetBlock(config, activation=config.activation, **rates) for _ in range(config.layers)
        )

    @property
    def word_vectors(self) -> Tensor:
        return self.embeddings.words.weight

    # ── the content stream

    def read(
        self, batch: TokenBatch[Tensor], layers: Sequence[int], limit: int | None, kept_LH: Tensor | None
    ) -> dict[int, Tensor]:
        """The content stream's states."""
        around = self._around(batch, limit=limit)
        states = self._content(batch, around, layers, kept_LH=kept_LH)
        if self.depth in states:
            states[self.depth] = self._last_dropout(states[self.depth])
        return {layer: around.streams.tokens.restore(x_ND) for layer, x_ND in states.items()}

    def with_memory(
        self, batch: TokenBatch[Tensor], memory: SegmentMemory | None = None, *, limit: int | None = None
    ) -> tuple[Tensor, SegmentMemory]:
        """The last layer's vectors of segments that continue the previous ones, and the memory for the next ones.

        The setting `memory` limits the remembered states; without it, the longest sequence does.
        """
        around = self._around(batch, memory=memory, limit=limit)
        states = self._content(batch, around, range(self.depth + 1), memory=memory)
        read = [around.streams.tokens.restore(states[layer]) for layer in range(self.depth + 1)]
        kept = SegmentMemory.of(read[:-1], batch.lengths, keep=self._keeps, before=memory)
        return self._last_dropout(read[-1]), kept

    @property
    def _keeps(self) -> int:
        """Most states that are remembered."""
        return self.config.memory or self.config.max_positions

    def _content(
        self,
        batch: TokenBatch[Tensor],
        around: RelativeContext,
        wanted: Sequence[int],
        *,
        memory: SegmentMemory | None = None,
        kept_LH: Tensor | None = None,
    ) -> dict[int, Tensor]:
        """The states of the requested layers, in the order of the groups."""
        x_ND: Tensor = self.embeddings(around.streams.tokens.arrange(batch.ids))
        contexts = [around] * self.depth
        if kept_LH is not None:
            contexts = [dataclasses.replace(around, heads=kept_H) for kept_H in kept_LH]
        inputs = [(_past(memory, layer, around), context) for layer, context in enumerate(contexts)]
        return self.run_blocks(x_ND, wanted, inputs)

    # ── two streams

    def two_streams(
        self, batch: TokenBatch[Tensor], order_N: Tensor, places_M: Tensor, *, limit: int | None = None
    ) -> Tensor:
        """The query stream's vector of each position, which predicts its token from those before it in the order: [M,
        D].

        `order` is when each token is predicted (equal numbers attend to each other), `places` [M], ascending, which
        are.
        """
        return self._queries(batch, order_N, places_M, limit=limit)[0]

    def in_training(
        self, batch: TokenBatch[Tensor], order_N: Tensor, places_M: Tensor, *, limit: int | None = None
    ) -> Tensor:
        """The same without a memory. With one, a sequence is read in two segments, each in the order of its own tokens,
        and the second attends to what is remembered of the first, including predicted tokens.
        """
        if not self.config.memory:
            return self.two_streams(batch, order_N, places_M, limit=limit)
        halves = SequenceHalves.of(batch, order_N, places_M)
        limit = None if limit is None else (limit + 1) // 2
        first, second = halves.first, halves.second
        early, read = self._queries(first.tokens, first.order, first.places, limit=limit, content=True)
        memory = SegmentMemory.of(read, first.tokens.lengths, keep=self._keeps)
        late, _ = self._queries(second.tokens, second.order, second.places, memory=memory, limit=limit)
        return torch.cat([early, late]).index_select(0, halves.back)

    def _queries(
        self,
        batch: TokenBatch[Tensor],
        order_N: Tensor,
        places_M: Tensor,
        *,
        memory: SegmentMemory | None = None,
        limit: int | None = None,
        content: bool = False,
    ) -> tuple[Tensor, list[Tensor]]:
        """The vector of each position, [M, D]; and, with `content`, the input of each layer, [N, D]."""
        around = self._around(batch, order_N=order_N, places_M=places_M, memory=memory, limit=limit)
        streams = around.streams
        h_ND: Tensor = self.embeddings(streams.tokens.arrange(batch.ids))
        g_MD: Tensor = self.embeddings.dropout(self.query(len(places_M)).to(h_ND.dtype))
        read = []
        for layer, module in enumerate(self.blocks):
            block, past_TD = cast(XLNetBlock, module), _past(memory, layer, around)
            if content:
                read.append(streams.tokens.restore(h_ND))
            if layer + 1 < self.depth:
                h_ND, g_MD = self.layer(block.both, h_ND, g_MD, past_TD, around)
            else:
                g_MD = self.layer(block.query, h_ND, g_MD, past_TD, around)
        return streams.queries.restore(self._last_dropout(g_MD)), read

    def _around(
        self,
        batch: TokenBatch[Tensor],
        *,
        order_N: Tensor | None = None,
        places_M: Tensor | None = None,
        memory: SegmentMemory | None = None,
        limit: int | None = None,
        padded: bool | None = None,
    ) -> RelativeContext:
        """The context that all layers share."""
        if memory is not None and (len(memory.lengths) != batch.count or len(memory.states) != self.depth):
            raise UsageError(
                f"the memory is of {len(memory.lengths)} sequences and {len(memory.states)} layers, but {batch.count} "
                f"sequences are read by {self.depth} layers; give each batch the memory of the one before"
            )
        remembered = None if memory is None else memory.lengths
        streams = StreamLayout.of(batch.lengths, places=places_M, remembered=remembered, padded=padded)
        longest = self.longest(batch.lengths, streams.longest if limit is None else limit)
        reach = max(0, longest - 1 + (0 if memory is None else self._keeps))  # equal for all batches of a run
        return RelativeContext(
            streams=streams,
            distances_ED=self.embeddings.dropout(sinusoids(reach, -longest, self.width, batch.ids.device)),
            reach=reach,
            segments_N=streams.tokens.arrange(batch.segments),
            order_N=None if order_N is None else streams.tokens.arrange(order_N),
        )

    def _last_dropout(self, x: Tensor) -> Tensor:
        """Dropout on the output of the last layer."""
        dropped: Tensor = cast(XLNetBlock, self.blocks[-1]).dropout(x)
        return dropped

    # ── optional capabilities

    def attention(self, batch: TokenBatch[Tensor]) -> Iterator[list[Tensor]]:
        around = self._around(batch, padded=False)
        x_ND: Tensor = self.embeddings(around.streams.tokens.arrange(batch.ids))
        for module in self.blocks:
            block = cast(XLNetBlock, module)
            yield by_sequence(block.attention.weights(x_ND, around), batch.lengths)
            x_ND = block(x_ND, None, around)

    def share_embeddings(self, other: Encoder) -> None:
        if not isinstance(other, XLNet) or other.width != self.width:
            raise RecipeError(
                "an xlnet shares its word vectors only with another of the same width; leave out replaced-tokens"
            )
        self.embeddings.words = other.embeddings.words

    def parts(self) -> list[tuple[int, nn.Module]]:
        """The content stream's parts: no task uses the query stream."""
        return [(len(self.blocks), self.embeddings), *self.block_parts()]

    def flops(self, length: int) -> int:
        """Operations of the content stream; those of queries depend on how many tokens are predicted."""
        blocks = sum(parameter.numel() for parameter in self.blocks.parameters())
        seen = 2 * length  # keys and values, and as much again for distances, of which there are twice as many
        return 6 * blocks + 12 * self.config.hidden * seen * self.config.layers


def _past(memory: SegmentMemory | None, layer: int, around: RelativeContext) -> Tensor | None:
    """The memory of a layer, in the order of the groups."""
    return None if memory is None else around.streams.memory.arrange(memory.states[layer])
