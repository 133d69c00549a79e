"""A left-to-right stack of blocks that goes on with prompts: the prompts are read once, then one token a step.

    under_way = CausalGenerationState(stack, prompts, room=20, head=head)
    under_way.logits()                       # [B, V] of the next token of each
    under_way.extend(ids_B)                  # B tokens go through the blocks, whatever the length of the prompts

Keys and values of all tokens are kept (`attention/cache.py`). B sequences, N tokens of the prompts, M tokens of the
continuations, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, edges, ranges
from larvatus.core.errors import UsageError
from larvatus.models.nn.attention.attention import Attention
from larvatus.models.nn.attention.attention_mask import AttentionMask
from larvatus.models.nn.attention.grouped import attend_grouped
from larvatus.models.nn.attention.kv_cache import KeyValueCache
from larvatus.models.nn.attention.layout import GroupedLayout
from larvatus.models.nn.block import Block
from larvatus.models.nn.block_stack import BlockStack

Attend = Callable[[int, Attention, Tensor, AttentionMask], Tensor]


class CausalGenerationState:
    """What the `Continuing` protocol of `generation/` asks for."""

    def __init__(
        self, stack: BlockStack, prompts: TokenBatch[Tensor], *, room: int, head: Callable[[Tensor], Tensor]
    ) -> None:
        lengths = prompts.lengths.cpu().numpy()
        if not len(lengths) or lengths.min() < 1:
            raise UsageError("a prompt without a token cannot be gone on with; give it at least a start token")
        self.stack = stack
        self.head = head
        self.cache = KeyValueCache.of(lengths, room=room, device=prompts.ids.device)
        self.logits_BV = self._read(prompts)

    def logits(self) -> Tensor:
        return self.logits_BV

    def extend(self, ids_B: Tensor) -> None:
        lengths, order_B = self.cache.lengths, _on(self.cache.order, ids_B.device)
        positions_B = _on(lengths, ids_B.device)
        newest = _batch(ids_B[order_B], lengths=torch.ones_like(positions_B), positions=positions_B)
        z_BD = self._through(newest, self._attend_newest, longest=int(lengths.max()) + 1)
        self.cache.advance()
        self.logits_BV = self._scored(torch.empty_like(z_BD).index_copy_(0, order_B, z_BD))

    def take(self, rows_R: Tensor) -> None:
        rows = rows_R.cpu().numpy()
        if np.array_equal(rows, np.arange(len(self.cache.order))):
            return
        self.cache.take(rows)
        self.logits_BV = self.logits_BV[rows_R.to(self.logits_BV.device)]

    def _read(self, prompts: TokenBatch[Tensor]) -> Tensor:
        """The prompts go through the blocks, and their keys and values into the cache. → [B, V]"""
        layout: GroupedLayout = GroupedLayout.of(prompts.lengths)

        def attend(layer: int, attention: Attention, x_ND: Tensor, sight: AttentionMask) -> Tensor:
            qkv_N3HK = attention.project(x_ND, sight)
            self.cache.keep(qkv_N3HK[:, 1:])
            y_NHK: Tensor = attend_grouped(qkv_N3HK, layout, sight)
            return y_NHK

        longest = int(self.cache.lengths.max())
        ids_N, positions_N = layout.arrange(prompts.ids), layout.arrange(prompts.positions)
        by_length = _batch(ids_N, lengths=prompts.lengths, positions=positions_N)
        z_ND = layout.restore(self._through(by_length, attend, longest=longest))
        return self._scored(z_ND[prompts.lengths.cumsum(0) - 1])

    def _attend_newest(self, layer: int, attention: Attention, x_BD: Tensor, sight: AttentionMask) -> Tensor:
        return self.cache.attend(layer, attention.project(x_BD, sight), window=sight.window)

    def _through(self, batch: TokenBatch[Tensor], attend: Attend, *, longest: int) -> Tensor:
        """Tokens of the batch through all blocks, attention computed by `attend` up to the heads' outputs."""
        x_ND = self.stack.embeddings(batch)
        for layer, sight in enumerate(self.stack.sights(batch.positions, longest=longest)):
            block = cast(Block, self.stack.blocks[layer % len(self.stack.blocks)])
            x_ND = block.through(x_ND, partial(_attended, attend, layer, block.attention, sight))
        z_ND: Tensor = self.stack.final_norm(x_ND)
        return z_ND

    def _scored(self, z_BD: Tensor) -> Tensor:
        return self.head(z_BD).float()


def _attended(attend: Attend, layer: int, attention: Attention, sight: AttentionMask, x_ND: Tensor) -> Tensor:
    out_ND: Tensor = attention.out(attend(layer, attention, x_ND, sight).flatten(-2))
    return out_ND


def continuation_states(stack: BlockStack, prompts: TokenBatch[Tensor], continuations: TokenBatch[Tensor]) -> Tensor:
    """The state that predicts each token of the continuations, [M, D]: one pass over prompts and continuations.

    The last token of a continuation predicts nothing, and is not read.
    """
    before, after = prompts.lengths.cpu().numpy(), continuations.lengths.cpu().numpy()
    if len(before) and before.min() < 1:
        raise UsageError("a continuation needs a token to follow; give the prompt at least a start token")
    lengths = before + np.maximum(after - 1, 0)
    within, device = ranges(lengths), prompts.ids.device
    of_prompt = within + np.repeat(edges(before)[:-1], lengths)
    of_continuation = within + np.repeat(edges(after)[:-1] - before, lengths) + prompts.size
    sources = np.where(within < np.repeat(before, lengths), of_prompt, of_continuation)
    ids_N = torch.cat([prompts.ids, continuations.ids])[_on(sources, device)]
    whole = _batch(ids_N, lengths=_on(lengths, device), positions=_on(within, device))
    z_ND: Tensor = stack(whole, limit=int(lengths.max(initial=0)))
    predicting = np.repeat(edges(lengths)[:-1] + before - 1, after) + ranges(after)
    return z_ND[_on(predicting, device)]


def _batch(ids_N: Tensor, *, lengths: Tensor, positions: Tensor) -> TokenBatch[Tensor]:
    nothing_N = torch.zeros_like(positions)
    return TokenBatch(ids=ids_N, lengths=lengths, positions=positions, segments=nothing_N, words=nothing_N)


def _on(array: Ints, device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device)
