"""The bidirectional transformer encoder (Devlin et al. 2019): embeddings, then a stack of blocks, over a flat batch.

    >>> from larvatus.batch import TokenBatch
    >>> config = TransformerConfig(layers=2, hidden=8, heads=2)
    >>> batch = TokenBatch.of([[2, 7, 8, 3], [2, 9, 3]]).map(torch.from_numpy)
    >>> Transformer(config, vocabulary=10)(batch).shape           # one vector a token
    torch.Size([7, 8])

The defaults are BERT's. ModernBERT (Warner et al. 2024) is: pre-norm, rotary positions, a gated feedforward layer, no
biases, and local attention but in every third layer.
N tokens in the flat batch, D hidden size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal, TypeVar, cast, overload

import torch
from msgspec import Struct
from torch import Tensor, nn

from larvatus.batch import TokenBatch
from larvatus.errors import RecipeError, UsageError
from larvatus.nn.attention import Attention
from larvatus.nn.block import Block, NormOrder
from larvatus.nn.embeddings import Embeddings
from larvatus.nn.feedforward import Activation, FeedForward
from larvatus.nn.layout import Grouped, Layout, Packed
from larvatus.nn.relative import RelativeBias
from larvatus.nn.rotary import rotation
from larvatus.ranges import Deviation, DropoutRate, Epsilon, Layers, RotaryBase, Size, SizeOrNone, check_ranges

L = TypeVar("L", bound=Layout)


class TransformerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    layers: Layers = 12
    """Blocks."""
    hidden: Size = 768
    """Size of a token's vector."""
    heads: Size = 12
    """Attention heads; they share the hidden size equally."""
    feedforward: SizeOrNone = 0
    """Inner size of the feedforward layer; 0 means 4 × hidden, and two thirds of that if gated (as many weights)."""
    activation: Activation = "gelu"
    """Nonlinearity of the feedforward layer."""
    norm: NormOrder = "post"
    """Norm after each residual connection (post) or before each layer (pre)."""
    norm_epsilon: Epsilon = 1e-12
    """Added to the variance in norms."""
    positions: Literal["learned", "rotary"] = "learned"
    """How a token knows its place: an embedding is added (learned), or queries and keys are turned (rotary)."""
    max_positions: Size = 512
    """Longest sequence, in tokens."""
    segments: SizeOrNone = 2
    """Kinds of segment embedded; 0 for none."""
    dropout: DropoutRate = 0.1
    """Dropout on embeddings and on the output of each layer."""
    attention_dropout: DropoutRate = 0.1
    """Dropout on attention weights."""
    init: Deviation = 0.02
    """Standard deviation of the initial weights."""
    rotary_base: RotaryBase = 10_000.0
    """Base of the rotary angles in global layers; larger for longer contexts."""
    rotary_base_local: RotaryBase = 10_000.0
    """The same in local layers."""
    gated: bool = False
    """A gate on the feedforward layer: with gelu, GeGLU."""
    biases: bool = True
    """Biases in linear layers and norms; each word of the masked-lm head keeps its own in any case."""
    local_attention: SizeOrNone = 0
    """Tokens in the window of local layers, half on either side; 0: every layer sees the whole sequence."""
    global_every: Layers = 1
    """With local attention, layers 0, n, 2n … are global."""
    first_norm: bool = True
    """With pre-norm: false leaves out the norm before the first attention, which follows that of the embeddings."""
    embedding: SizeOrNone = 0
    """Size of the input embeddings, where they are smaller and projected to `hidden` (factorised); 0 means `hidden`."""
    shared: bool = False
    """All layers have the same weights (ALBERT)."""
    relative_buckets: SizeOrNone = 0
    """Buckets of distances with a learnt bias on the scores of attention, besides positions (MPNet: 32); 0: none."""
    relative_distance: Size = 128
    """From this distance on, all tokens share the last bucket."""

    def __post_init__(self) -> None:
        check_ranges(self, "model.", RecipeError)
        if self.hidden % self.heads:
            fit = [heads for heads in range(1, self.hidden + 1) if self.hidden % heads == 0]
            near = min(fit, key=lambda heads: abs(heads - self.heads))
            raise RecipeError(
                f"model.hidden = {self.hidden} cannot be shared by model.heads = {self.heads}; set model.heads = {near}"
            )
        _check_positions(self)
        _check_windows(self)
        _check_relative(self)
        if self.norm == "post" and not self.first_norm:
            raise RecipeError('model.first_norm = false needs pre-norm; set model.norm = "pre"')
        if self.shared and not self.first_norm:
            raise RecipeError("model.shared = true needs layers that are all alike; set model.first_norm = true")

    @property
    def inner(self) -> int:
        """Inner size of the feedforward layer, in numbers."""
        if self.gated:
            return self.feedforward or -(-8 * self.hidden // (3 * 64)) * 64  # up to whole 64s, which kernels like
        return self.feedforward or 4 * self.hidden

    @property
    def width(self) -> int:
        """Size of the input embeddings, in numbers; heads that are tied to them end in it."""
        return self.embedding or self.hidden

    def window(self, layer: int) -> int:
        """How many tokens a layer sees on either side; 0: all of them."""
        return self.local_attention // 2 if layer % self.global_every else 0


def _check_positions(config: TransformerConfig) -> None:
    if config.positions == "rotary" and (config.hidden // config.heads) % 2:
        raise RecipeError(
            f"rotary positions turn pairs, but model.hidden = {config.hidden} over model.heads = {config.heads} gives "
            f"heads of {config.hidden // config.heads} numbers; set model.hidden = {2 * config.hidden}"
        )


def _check_windows(config: TransformerConfig) -> None:
    if config.local_attention % 2:
        raise RecipeError(
            f"model.local_attention = {config.local_attention} must be even, half on either side; "
            f"set model.local_attention = {config.local_attention + 1}"
        )
    if config.local_attention and config.global_every == 1:
        raise RecipeError(
            f"model.local_attention = {config.local_attention} has no effect, as model.global_every = 1 makes every "
            "layer global; set model.global_every = 3"
        )
    if config.global_every > 1 and not config.local_attention:
        raise RecipeError(
            f"model.global_every = {config.global_every} has no effect without a window; "
            "set model.local_attention = 128"
        )


def _check_relative(config: TransformerConfig) -> None:
    buckets, distance = config.relative_buckets, config.relative_distance
    if buckets % 2 or buckets == 2:
        raise RecipeError(
            f"model.relative_buckets = {buckets} must be even, half on either side, and at least 4, or 0 for none; "
            "set model.relative_buckets = 32"
        )
    if buckets and distance <= buckets // 4:
        raise RecipeError(
            f"model.relative_distance = {distance} leaves no distance to share a bucket; "
            f"set it above {buckets // 4}, such as 128"
        )
    if not buckets and distance != 128:
        raise RecipeError(
            f"model.relative_distance = {distance} has no effect without buckets; set model.relative_buckets = 32"
        )


class Transformer(nn.Module):
    def __init__(self, config: TransformerConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(
            vocabulary=vocabulary,
            width=config.width,
            hidden=config.hidden,
            max_positions=config.max_positions if config.positions == "learned" else 0,
            segments=config.segments,
            norm_epsilon=config.norm_epsilon,
            dropout=config.dropout,
            biases=config.biases,
        )
        self.blocks = nn.ModuleList(_block(config, layer) for layer in range(1 if config.shared else config.layers))
        # the residual stream of pre-norm blocks is never normed inside them
        self.final_norm = _norm(config) if config.norm == "pre" else nn.Identity()
        self.relative = _relative(config)

    @overload
    def forward(
        self,
        batch: TokenBatch[Tensor],
        *,
        hidden_states: Literal[False] = False,
        limit: int | None = None,
        until: int | None = None,
        heads: Tensor | None = None,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        batch: TokenBatch[Tensor],
        *,
        hidden_states: Literal[True],
        limit: int | None = None,
        until: int | None = None,
        heads: Tensor | None = None,
    ) -> tuple[Tensor, ...]: ...

    def forward(
        self,
        batch: TokenBatch[Tensor],
        *,
        hidden_states: bool = False,
        limit: int | None = None,
        until: int | None = None,
        heads: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, ...]:
        """The last layer's vectors z_ND; with `hidden_states`, those of the embeddings and of every layer.

        `limit` promises that no sequence is longer, so that on CUDA nothing has to wait for the lengths. `until` is the
        last layer wanted: those above it are not computed. `heads` [layers, H] multiplies the output of each attention
        head: 0 masks it (Michel et al. 2019).
        """
        layout = self.layout(batch.lengths, limit=limit)
        arranged = _arranged(batch, layout)
        x_ND = self.embeddings(arranged)
        layouts = self._layouts(layout, arranged.positions)
        states = [x_ND]
        last = self.config.layers if until is None else until
        for layer in range(last):
            own = layouts[self.config.window(layer)]
            x_ND = self._block(layer)(x_ND, own if heads is None else dataclasses.replace(own, heads=heads[layer]))
            if hidden_states:
                states.append(x_ND)
        if last == self.config.layers:
            x_ND = self.final_norm(x_ND)
        if hidden_states:
            return (*(layout.restore(state) for state in states[:-1]), layout.restore(x_ND))
        return layout.restore(x_ND)

    def at(self, batch: TokenBatch[Tensor], at_B: Tensor, *, limit: int | None = None) -> Tensor:
        """The last layer's vector of one token of each sequence, by its place in the flat batch: [B] → [B, D].

        Nothing of the last layer is computed that they do not need, which is most of it. Made for sequences that are
        nearly alike, such as masked copies of a text: tokens that are the same at the same position, U of N, are
        embedded and projected to the first layer's queries, keys and values once.
        """
        below = self.config.layers - 1
        layout = self.layout(batch.lengths, limit=limit)
        arranged = _arranged(batch, layout)
        layouts = self._layouts(layout, arranged.positions)
        if below and not self.training:  # dropout would not be the same for equal tokens
            distinct, rows_N = _distinct(arranged)
            x_ND = self._block(0)(self.embeddings(distinct), layouts[self.config.window(0)], rows_N)
        else:
            x_ND = self.embeddings(arranged)
            x_ND = self._block(0)(x_ND, layouts[self.config.window(0)]) if below else x_ND
        for layer in range(1, below):
            x_ND = self._block(layer)(x_ND, layouts[self.config.window(layer)])
        order = None  # sequences in the layout's order, and places there
        if isinstance(layout, Grouped) and layout.inverse is not None:
            at_B, order = layout.inverse[at_B].sort()
        z_BD: Tensor = self.final_norm(self._block(below).at(x_ND, layouts[self.config.window(below)], at_B))
        return z_BD if order is None else torch.empty_like(z_BD).index_copy_(0, order, z_BD)

    def _block(self, layer: int) -> Block:
        return cast(Block, self.blocks[0 if self.config.shared else layer])

    def attention_weights(self, batch: TokenBatch[Tensor]) -> Iterator[list[Tensor]]:
        """What every head looks at: for each layer, lowest first, α [H, L, L] of each sequence in the batch's order.

        A path of its own, beside `forward`: no fused kernel gives the weights. One layer is held at a time.
        """
        layout = self.layout(batch.lengths)
        grouped = Grouped.of(batch.lengths) if isinstance(layout, Packed) else layout
        arranged = _arranged(batch, grouped)
        layouts = self._layouts(grouped, arranged.positions)
        order = torch.argsort(batch.lengths, stable=True).tolist()
        x_ND = self.embeddings(arranged)
        for layer in range(self.config.layers):
            block = self._block(layer)
            own = layouts[self.config.window(layer)]
            found = block.attention_weights(x_ND, own)
            by_sequence = dict(zip(order, found, strict=True))
            yield [by_sequence[number] for number in range(len(order))]
            x_ND = block(x_ND, own)

    def layout(self, lengths: Tensor, *, limit: int | None = None) -> Layout:
        """How attention will see these sequences on this device, in the precision now in force."""
        device = lengths.device.type
        longest = limit if limit is not None else int(lengths.max()) if len(lengths) else 0
        if longest > self.config.max_positions:
            raise UsageError(
                f"a sequence of {longest} tokens is longer than the model's {self.config.max_positions} positions; "
                f"cut the text into windows of {self.config.max_positions}"
            )
        autocast = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if autocast else self.embeddings.words.weight.dtype
        head = self.config.hidden // self.config.heads
        flash = device == "cuda" and dtype in (torch.bfloat16, torch.float16) and head % 8 == 0 and head <= 256
        if self.relative is not None:  # the variable-length kernel has no bias
            grouped: Grouped = Grouped.of(lengths)
            return dataclasses.replace(grouped, bias=self.relative.table(longest))
        return Packed.of(lengths, limit=longest) if flash else Grouped.of(lengths)

    def _layouts(self, layout: L, positions_N: Tensor) -> dict[int, L]:
        """The layout as global layers see it (window 0), and as local layers do, each with its angles."""
        config = self.config
        bases = {0: config.rotary_base}
        if config.local_attention:
            bases[config.local_attention // 2] = config.rotary_base_local
        if config.positions == "learned":
            return {window: dataclasses.replace(layout, window=window) for window in bases}
        size, dtype = config.hidden // config.heads, self.embeddings.words.weight.dtype
        return {
            window: dataclasses.replace(
                layout, window=window, rotation=rotation(positions_N, size=size, base=base, dtype=dtype)
            )
            for window, base in bases.items()
        }


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
    found_U, rows_N = keys_N.unique(return_inverse=True)
    some_U = torch.empty_like(found_U).scatter_(0, rows_N, torch.arange(len(rows_N), device=rows_N.device))
    chosen = dataclasses.replace(
        batch, ids=batch.ids[some_U], positions=batch.positions[some_U], segments=batch.segments[some_U]
    )
    return chosen, rows_N
