"""XLNet (Yang et al. 2019): a transformer that predicts tokens in any order, and is bidirectional through that.

    z           an order of the tokens: z_1 is predicted first, z_T last, each from those before it in z
    content     h_t, as in any transformer, but sees only what comes no later than t in z
    query       g_t, knows its place and what comes earlier in z, but not its own token: predicts x_t

Fine-tuned and used as an encoder, it has no order: the content stream sees everything (`forward`). Places are told by
distance alone (`attention/relative.py`), so no position is embedded.

    >>> from larvatus.core.batch import TokenBatch
    >>> encoder = XLNetConfig(layers=2, hidden=8, heads=2).build(vocabulary=10)
    >>> batch = TokenBatch.of([[7, 8, 4, 3], [9, 4, 3]]).map(torch.from_numpy)
    >>> encoder(batch).shape                                      # one vector a token
    torch.Size([7, 8])
    >>> order, places = torch.tensor([0, 2, 0, 0, 1, 0, 0]), torch.tensor([1, 4])
    >>> encoder.two_streams(batch, order, places).shape           # one vector a predicted token
    torch.Size([2, 8])

N tokens in the flat batch, M predicted places, D hidden size, V vocabulary.
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
from larvatus.core.ranges import Deviation, DropoutRate, Epsilon, Layers, Size, SizeOrNone
from larvatus.core.settings import Settings
from larvatus.models.nn.attention.relative_attention import RelativeContext, sinusoids
from larvatus.models.nn.attention.streams import StreamLayout
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.encoder_base import Encoder
from larvatus.models.nn.feedforward import Activation
from larvatus.models.nn.xlnet_layers import SegmentMemory, SequenceHalves, XLNetBlock


class XLNetConfig(Settings, path="model.", error=RecipeError, tag_field="type", tag="xlnet"):
    layers: Layers = 12
    """Blocks."""
    hidden: Size = 768
    """Size of a token's vector."""
    heads: Size = 12
    """Attention heads; they share the hidden size equally."""
    feedforward: SizeOrNone = 0
    """Inner size of the feedforward layer; 0 means 4 × hidden."""
    activation: Activation = "gelu"
    """Nonlinearity of the feedforward layer."""
    norm_epsilon: Epsilon = 1e-12
    """Added to the variance in norms."""
    max_positions: Size = 512
    """Longest sequence, in tokens. Distances have no limit of their own; this is what it is trained and used for."""
    memory: SizeOrNone = 0
    """States remembered of the segment before; 0: none. In pretraining the second half of each sequence then remembers
    the first."""
    dropout: DropoutRate = 0.1
    """Dropout on embeddings, distances, attention weights and the output of each layer."""
    init: Deviation = 0.02
    """Standard deviation of the initial weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden % self.heads:
            fit = [heads for heads in range(1, self.hidden + 1) if self.hidden % heads == 0]
            near = min(fit, key=lambda heads: abs(heads - self.heads))
            raise RecipeError(
                f"model.hidden = {self.hidden} cannot be shared by model.heads = {self.heads}; set model.heads = {near}"
            )
        if self.hidden % 2:
            raise RecipeError(
                f"model.hidden = {self.hidden} must be even: distances are sines and cosines; "
                f"set model.hidden = {self.hidden + 1}"
            )

    @property
    def inner(self) -> int:
        """Inner size of the feedforward layer, in numbers."""
        return self.feedforward or 4 * self.hidden

    @property
    def segments(self) -> int:
        """As many as its vocabularies number (two texts, <cls>, <sep>, padding): it only asks whether two are equal."""
        return 5

    @property
    def enclosed(self) -> bool:
        """Its vocabularies put nothing before a text."""
        return False

    @property
    def word_width(self) -> int:
        return self.hidden

    @property
    def biases(self) -> bool:
        """Of heads."""
        return True

    @property
    def blocks(self) -> int:
        return self.layers

    @property
    def kept_numbers(self) -> int:
        return self.layers * (4 * self.hidden + self.inner)

    def least_weights(self, vocabulary: int) -> int:
        return self.layers * (5 * self.hidden**2 + 2 * self.hidden * self.inner) + vocabulary * self.hidden

    def build(self, vocabulary: int) -> XLNet:
        return XLNet(self, vocabulary)

    def narrowed(self, share: float) -> XLNetConfig:
        hidden = max(2, 2 * round(self.hidden * share / 2))
        most = max(1, hidden // (self.hidden // self.heads))
        heads = next(heads for heads in range(most, 0, -1) if hidden % heads == 0)
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
    """What the query stream begins with: all that it knows of the token at its place."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.unknown = nn.Parameter(torch.empty(hidden))

    def forward(self, count: int) -> Tensor:
        return self.unknown.expand(count, -1)


class XLNet(Encoder):
    config: XLNetConfig

    def __init__(self, config: XLNetConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embeddings = XLNetEmbeddings(vocabulary, config.hidden, config.dropout)
        self.query = Query(config.hidden)
        self.blocks = nn.ModuleList(
            XLNetBlock(
                hidden=config.hidden,
                heads=config.heads,
                inner=config.inner,
                activation=config.activation,
                norm_epsilon=config.norm_epsilon,
                dropout=config.dropout,
            )
            for _ in range(config.layers)
        )

    @property
    def word_vectors(self) -> Tensor:
        return self.embeddings.words.weight

    @property
    def heads(self) -> int:
        return self.config.heads

    # ── the content stream

    def forward(
        self, batch: TokenBatch[Tensor], *, layers: Sequence[int] | None = None, limit: int | None = None
    ) -> Tensor | list[Tensor]:
        around = self._around(batch, limit=limit)
        wanted = [self.depth] if layers is None else layers
        states = self._content(batch, around, wanted)
        if self.depth in wanted:
            states[self.depth] = self._last_dropout(states[self.depth])
        restored = {layer: around.streams.tokens.restore(states[layer]) for layer in wanted}
        return restored[self.depth] if layers is None else [restored[layer] for layer in layers]

    def with_memory(
        self, batch: TokenBatch[Tensor], memory: SegmentMemory | None = None, *, limit: int | None = None
    ) -> tuple[Tensor, SegmentMemory]:
        """The last layer's vectors of segments that go on from those before, and what the next ones may remember.

        As many states are remembered as the settings say (`memory`), or as a sequence may have where they say none.
        """
        around = self._around(batch, memory=memory, limit=limit)
        states = self._content(batch, around, range(self.depth + 1), memory=memory)
        read = [around.streams.tokens.restore(states[layer]) for layer in range(self.depth + 1)]
        kept = SegmentMemory.of(read[:-1], batch.lengths, keep=self._keeps, before=memory)
        return self._last_dropout(read[-1]), kept

    @property
    def _keeps(self) -> int:
        """States that are remembered at most."""
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
        """The states of the layers asked for, in the order of the groups."""
        x_ND: Tensor = self.embeddings(around.streams.tokens.arrange(batch.ids))
        states = {0: x_ND} if 0 in wanted else {}
        for layer in range(max(wanted, default=0)):
            seen = around if kept_LH is None else dataclasses.replace(around, heads=kept_LH[layer])
            x_ND = self.layer(self.blocks[layer], x_ND, _past(memory, layer, around), seen)
            if layer + 1 in wanted:
                states[layer + 1] = x_ND
        return states

    # ── two streams

    def two_streams(
        self, batch: TokenBatch[Tensor], order_N: Tensor, places_M: Tensor, *, limit: int | None = None
    ) -> Tensor:
        """What the query stream makes of each place, to predict its token from those before it in the order: [M, D].

        `order` says when each token is predicted (equal numbers see each other), `places` [M], ascending, which are.
        """
        return self._queries(batch, order_N, places_M, limit=limit)[0]

    def in_training(
        self, batch: TokenBatch[Tensor], order_N: Tensor, places_M: Tensor, *, limit: int | None = None
    ) -> Tensor:
        """The same where settings have no memory. With one, a sequence is read in two segments, each in the order of
        its own tokens, and the second sees what is remembered of the first, the predicted tokens too."""
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
        """Of each place, [M, D]; and, where `content` asks, what each layer read of the tokens, [N, D]."""
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
        """What all layers are told of the tokens."""
        if memory is not None and (len(memory.lengths) != batch.count or len(memory.states) != self.depth):
            raise UsageError(
                f"the memory is of {len(memory.lengths)} sequences and {len(memory.states)} layers, but {batch.count} "
                f"sequences are read by {self.depth} layers; give each batch the memory of the one before"
            )
        remembered = None if memory is None else memory.lengths
        streams = StreamLayout.of(batch.lengths, places=places_M, remembered=remembered, padded=padded)
        longest = streams.longest if limit is None else limit
        if longest > self.config.max_positions:
            raise UsageError(
                f"a sequence of {longest} tokens is longer than the model's {self.config.max_positions} positions; "
                f"cut the text into windows of {self.config.max_positions}"
            )
        reach = max(0, longest - 1 + (0 if memory is None else self._keeps))  # the same for all batches of a run
        return RelativeContext(
            streams=streams,
            distances_ED=self.embeddings.dropout(sinusoids(reach, -longest, self.width, batch.ids.device)),
            reach=reach,
            segments_N=streams.tokens.arrange(batch.segments),
            order_N=None if order_N is None else streams.tokens.arrange(order_N),
        )

    def _last_dropout(self, x: Tensor) -> Tensor:
        """On what the last layer gives."""
        dropped: Tensor = cast(XLNetBlock, self.blocks[-1]).dropout(x)
        return dropped

    # ── what an encoder may have besides

    def attention(self, batch: TokenBatch[Tensor]) -> Iterator[list[Tensor]]:
        around = self._around(batch, padded=False)
        order = torch.argsort(batch.lengths, stable=True).tolist()
        x_ND: Tensor = self.embeddings(around.streams.tokens.arrange(batch.ids))
        for module in self.blocks:
            block = cast(XLNetBlock, module)
            by_sequence = dict(zip(order, block.attention.weights(x_ND, around), strict=True))
            yield [by_sequence[number] for number in range(len(order))]
            x_ND = block(x_ND, None, around)

    def with_heads(self, batch: TokenBatch[Tensor], kept_LH: Tensor) -> Tensor:
        around = self._around(batch)
        top_ND = self._content(batch, around, [self.depth], kept_LH=kept_LH)[self.depth]
        return around.streams.tokens.restore(self._last_dropout(top_ND))

    @torch.no_grad()
    def zero_heads(self, heads: Sequence[tuple[int, int]]) -> None:
        size = self.config.hidden // self.config.heads
        for layer, head in heads:
            out = cast(XLNetBlock, self.blocks[layer - 1]).attention.out
            out.weight[:, (head - 1) * size : head * size] = 0

    def share_embeddings(self, other: Encoder) -> None:
        if not isinstance(other, XLNet) or other.width != self.width:
            raise RecipeError("an xlnet shares its word vectors with another as wide only; leave out replaced-tokens")
        self.embeddings.words = other.embeddings.words

    def parts(self) -> list[tuple[int, nn.Module]]:
        """Those of the content stream: no task asks at a place without having seen it."""
        count = len(self.blocks)
        blocks = [(count - 1 - number, block) for number, block in enumerate(self.blocks)]
        return [(count, self.embeddings), *blocks]

    def flops(self, length: int) -> int:
        """Of the content stream; what queries add depends on how many tokens are predicted."""
        blocks = sum(parameter.numel() for parameter in self.blocks.parameters())
        seen = 2 * length  # keys and values, and as much again for distances, of which there are twice as many
        return 6 * blocks + 12 * self.config.hidden * seen * self.config.layers


def _past(memory: SegmentMemory | None, layer: int, around: RelativeContext) -> Tensor | None:
    """What a layer remembers, in the order of the groups."""
    return None if memory is None else around.streams.memory.arrange(memory.states[layer])
