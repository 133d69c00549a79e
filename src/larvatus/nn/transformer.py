"""The bidirectional transformer encoder (Devlin et al. 2019): embeddings, then a stack of blocks, over a flat batch.

    >>> from larvatus.batch import TokenBatch
    >>> encoder = TransformerConfig(layers=2, hidden=8, heads=2).build(vocabulary=10)
    >>> batch = TokenBatch.of([[2, 7, 8, 3], [2, 9, 3]]).map(torch.from_numpy)
    >>> encoder(batch).shape                                      # one vector a token
    torch.Size([7, 8])
    >>> len(encoder(batch, layers=[0, 2]))                        # of the embeddings and of the second layer
    2

N tokens in the flat batch, D hidden size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import cast

import msgspec
import torch
from torch import Tensor, nn

from larvatus.batch import TokenBatch
from larvatus.errors import RecipeError, UsageError
from larvatus.nn.attention.attention import Attention
from larvatus.nn.attention.layout import Grouped, Layout, Packed
from larvatus.nn.attention.sight import Sight
from larvatus.nn.block import Block
from larvatus.nn.embeddings import Embeddings
from larvatus.nn.encoder_base import Encoder
from larvatus.nn.feedforward import FeedForward
from larvatus.nn.relative import RelativeBias
from larvatus.nn.rotary import rotation
from larvatus.nn.transformer_settings import TransformerSettings


class TransformerConfig(
    TransformerSettings, tag_field="type", tag="transformer", frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What a recipe says of a transformer (`transformer_settings.py`), and what it builds."""

    def build(self, vocabulary: int) -> Transformer:
        return Transformer(self, vocabulary)

    def narrowed(self, share: float) -> TransformerConfig:
        """The same transformer, narrower: hidden and feedforward sizes shrink, heads become fewer and stay as large.

        The embeddings keep their size, so that both can share them. That is ELECTRA's release, whose heads always have
        64 numbers; a generator narrower than a head has one.
        """
        hidden = max(1, round(self.hidden * share))
        most = max(1, hidden // (self.hidden // self.heads))
        return msgspec.structs.replace(
            self,
            hidden=hidden,
            heads=next(heads for heads in range(most, 0, -1) if hidden % heads == 0),
            feedforward=max(1, round(self.feedforward * share)) if self.feedforward else 0,
            embedding=self.word_width,
        )


class Transformer(Encoder):
    config: TransformerConfig

    def __init__(self, config: TransformerConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(
            vocabulary=vocabulary,
            width=config.word_width,
            hidden=config.hidden,
            max_positions=config.max_positions if config.positions == "learned" else 0,
            segments=config.segments,
            norm_epsilon=config.norm_epsilon,
            dropout=config.dropout,
            biases=config.biases,
        )
        self.blocks = nn.ModuleList(_block(config, layer) for layer in range(config.blocks))
        # the residual stream of pre-norm blocks is never normed inside them
        self.final_norm = _norm(config) if config.norm == "pre" else nn.Identity()
        self.relative = _relative(config)

    @property
    def word_vectors(self) -> Tensor:
        return self.embeddings.words.weight

    @property
    def heads(self) -> int:
        return self.config.heads

    def forward(
        self, batch: TokenBatch[Tensor], *, layers: Sequence[int] | None = None, limit: int | None = None
    ) -> Tensor | list[Tensor]:
        """As every encoder's. A layer below the last is given as the next one reads it, before any final norm."""
        return self._forward(batch, layers=layers, limit=limit)

    def with_heads(self, batch: TokenBatch[Tensor], kept_LH: Tensor) -> Tensor:
        return cast(Tensor, self._forward(batch, kept_LH=kept_LH))

    def _forward(
        self,
        batch: TokenBatch[Tensor],
        *,
        layers: Sequence[int] | None = None,
        limit: int | None = None,
        kept_LH: Tensor | None = None,
    ) -> Tensor | list[Tensor]:
        layout, arranged, sights = self._seen(batch, limit)
        x_ND = self.embeddings(arranged)
        top = self.depth
        wanted = [top] if layers is None else layers
        states = {0: x_ND} if 0 in wanted else {}
        for layer in range(max(wanted, default=0)):
            sight = sights[self.config.window(layer)]
            if kept_LH is not None:
                sight = dataclasses.replace(sight, heads=kept_LH[layer])
            x_ND = self._block(layer)(x_ND, layout, sight)
            if layer + 1 in wanted:
                states[layer + 1] = self.final_norm(x_ND) if layer + 1 == top else x_ND
        if layers is None:
            return layout.restore(states[top])
        return [layout.restore(states[layer]) for layer in layers]

    def at(self, batch: TokenBatch[Tensor], places_B: Tensor, *, limit: int | None = None) -> Tensor:
        """As every encoder's, for one token of each sequence.

        Nothing of the last layer is computed that they do not need, which is most of it. Made for sequences that are
        nearly alike, such as masked copies of a text: tokens that are the same at the same position, U of N, are
        embedded and projected to the first layer's queries, keys and values once.
        """
        below = self.config.layers - 1
        layout, arranged, sights = self._seen(batch, limit)
        if below and not self.training:  # dropout would not be the same for equal tokens
            distinct, rows_N = _distinct(arranged)
            x_ND = self._block(0)(self.embeddings(distinct), layout, sights[self.config.window(0)], rows_N)
        else:
            x_ND = self.embeddings(arranged)
            x_ND = self._block(0)(x_ND, layout, sights[self.config.window(0)]) if below else x_ND
        for layer in range(1, below):
            x_ND = self._block(layer)(x_ND, layout, sights[self.config.window(layer)])
        order = None  # sequences in the layout's order, and places there
        if isinstance(layout, Grouped) and layout.inverse is not None:
            places_B, order = layout.inverse[places_B].sort()
        last = self._block(below).at(x_ND, layout, sights[self.config.window(below)], places_B)
        z_BD: Tensor = self.final_norm(last)
        return z_BD if order is None else torch.empty_like(z_BD).index_copy_(0, order, z_BD)

    def _block(self, layer: int) -> Block:
        return cast(Block, self.blocks[0 if self.config.shared else layer])

    def attention(self, batch: TokenBatch[Tensor]) -> Iterator[list[Tensor]]:
        """A path of its own, beside `forward`: no fused kernel gives the weights. One layer is held at a time."""
        longest = _longest(batch.lengths, None)
        layout = self.layout(batch.lengths, limit=longest)
        grouped = Grouped.of(batch.lengths) if isinstance(layout, Packed) else layout
        arranged = _arranged(batch, grouped)
        sights = self.sights(arranged.positions, longest=longest)
        order = torch.argsort(batch.lengths, stable=True).tolist()
        x_ND = self.embeddings(arranged)
        for layer in range(self.config.layers):
            block, sight = self._block(layer), sights[self.config.window(layer)]
            by_sequence = dict(zip(order, block.attention_weights(x_ND, grouped, sight), strict=True))
            yield [by_sequence[number] for number in range(len(order))]
            x_ND = block(x_ND, grouped, sight)

    @torch.no_grad()
    def zero_heads(self, heads: Sequence[tuple[int, int]]) -> None:
        layers, size = self.config.layers, self.config.hidden // self.config.heads
        if self.config.shared:
            for head in {head for _, head in heads}:
                if {layer for layer, other in heads if other == head} != set(range(1, layers + 1)):
                    raise UsageError(
                        f"the layers of this model share their weights, so head {head} goes from all of them or none: "
                        f"name it in layers 1 to {layers}"
                    )
        for layer, head in heads:
            self._block(layer - 1).attention.out.weight[:, (head - 1) * size : head * size] = 0

    def share_embeddings(self, other: Encoder) -> None:
        """All but the projection, where embeddings are factorised."""
        if not isinstance(other, Transformer):
            raise RecipeError("a transformer shares its embeddings with another transformer only")
        self.embeddings.share(other.embeddings)

    def parts(self) -> list[tuple[int, nn.Module]]:
        count = len(self.blocks)
        lowest: list[nn.Module] = [self.embeddings]
        if self.relative is not None:  # read by every layer
            lowest.append(self.relative)
        blocks = [(count - 1 - number, block) for number, block in enumerate(self.blocks)]
        return [*((count, part) for part in lowest), *blocks, (0, self.final_norm)]

    def flops(self, length: int) -> int:
        config = self.config
        weights = sum(p.numel() for p in self.blocks.parameters())
        blocks = weights * config.layers // len(self.blocks)  # shared weights are used in every layer
        blocks += sum(p.numel() for p in self.embeddings.project.parameters())
        windows = [config.window(layer) for layer in range(config.layers)]
        seen = sum(min(length, 2 * window + 1) if window else length for window in windows)
        return 6 * blocks + 12 * config.hidden * seen

    def _seen(
        self, batch: TokenBatch[Tensor], limit: int | None
    ) -> tuple[Layout, TokenBatch[Tensor], dict[int, Sight]]:
        """Where the tokens lie, what the embeddings read in that order, and who sees whom, by window."""
        longest = _longest(batch.lengths, limit)
        layout = self.layout(batch.lengths, limit=longest)
        arranged = _arranged(batch, layout)
        return layout, arranged, self.sights(arranged.positions, longest=longest)

    def layout(self, lengths: Tensor, *, limit: int | None = None) -> Layout:
        """How these sequences lie on this device, in the precision now in force."""
        device, longest = lengths.device.type, _longest(lengths, limit)
        if longest > self.config.max_positions:
            raise UsageError(
                f"a sequence of {longest} tokens is longer than the model's {self.config.max_positions} positions; "
                f"cut the text into windows of {self.config.max_positions}"
            )
        autocast = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if autocast else self.embeddings.words.weight.dtype
        head = self.config.hidden // self.config.heads
        flash = device == "cuda" and dtype in (torch.bfloat16, torch.float16) and head % 8 == 0 and head <= 256
        if flash and self.relative is None:  # the variable-length kernel has no bias
            return Packed.of(lengths, limit=longest)
        grouped: Grouped = Grouped.of(lengths)
        return grouped

    def sights(self, positions_N: Tensor, *, longest: int) -> dict[int, Sight]:
        """What global layers see (window 0), and what local layers do, each with its angles."""
        config = self.config
        bases = {0: config.rotary_base}
        if config.local_attention:
            bases[config.local_attention // 2] = config.rotary_base_local
        bias = None if self.relative is None else self.relative.table(longest)
        if config.positions == "learned":
            return {window: Sight(window=window, bias=bias) for window in bases}
        size, dtype = config.hidden // config.heads, self.embeddings.words.weight.dtype
        return {
            window: Sight(window=window, bias=bias, rotation=rotation(positions_N, size=size, base=base, dtype=dtype))
            for window, base in bases.items()
        }


def _longest(lengths: Tensor, limit: int | None) -> int:
    """`limit` where it is promised; else the lengths are read, for which CUDA has to wait."""
    return limit if limit is not None else int(lengths.max()) if len(lengths) else 0


def _norm(config: TransformerConfig) -> nn.Module:
    return nn.LayerNorm(config.hidden, eps=config.norm_epsilon, bias=config.biases)


def _relative(config: TransformerConfig) -> RelativeBias | None:
    if not config.relative_buckets:
        return None
    return RelativeBias(buckets=config.relative_buckets, distance=config.relative_distance, heads=config.heads)


def _block(config: TransformerConfig, layer: int) -> Block:
    return Block(
        attention=Attention(
            hidden=config.hidden, heads=config.heads, dropout=config.attention_dropout, biases=config.biases
        ),
        attention_norm=_norm(config) if layer or config.first_norm else nn.Identity(),
        feedforward=FeedForward(
            hidden=config.hidden,
            inner=config.inner,
            activation=config.activation,
            gated=config.gated,
            biases=config.biases,
        ),
        feedforward_norm=_norm(config),
        norm=config.norm,
        dropout=config.dropout,
    )


def _arranged(batch: TokenBatch[Tensor], layout: Layout) -> TokenBatch[Tensor]:
    """What the embeddings read, in the layout's order."""
    return dataclasses.replace(
        batch,
        ids=layout.arrange(batch.ids),
        positions=layout.arrange(batch.positions),
        segments=layout.arrange(batch.segments),
    )


def _distinct(batch: TokenBatch[Tensor]) -> tuple[TokenBatch[Tensor], Tensor]:
    """What the embeddings read, each kind of token once, and for every token which of them it is: U tokens, [N]."""
    keys_N = torch.stack([batch.ids, batch.positions, batch.segments])
    widths = keys_N.amax(1) + 1
    keys_N = (keys_N[0] * widths[1] + keys_N[1]) * widths[2] + keys_N[2]
    kinds_U, rows_N = keys_N.unique(return_inverse=True)
    some_U = torch.empty_like(kinds_U).scatter_(0, rows_N, torch.arange(len(rows_N), device=rows_N.device))
    chosen = dataclasses.replace(
        batch, ids=batch.ids[some_U], positions=batch.positions[some_U], segments=batch.segments[some_U]
    )
    return chosen, rows_N
