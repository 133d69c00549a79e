"""A transformer over padded sequences, with the weights of one that reads flat batches: for ONNX, which has no others.

    states_BLD = PaddedEncoder(encoder)(ids_BL, mask_BL, segments_BL)

The same numbers at every token; what stands at padding means nothing. It costs what padding costs: sequences shorter
than the longest of their batch are computed to its length.
B sequences of L places, H heads, K size of a head.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import UsageError
from larvatus.models.nn.attention.attention import Attention
from larvatus.models.nn.attention.sight import Sight
from larvatus.models.nn.encoder_base import Encoder
from larvatus.models.nn.transformer import Transformer


class PaddedEncoder(nn.Module):
    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        if not isinstance(encoder, Transformer):
            raise UsageError(
                f"a {type(encoder).__name__} has no padded form to export; bidirectional transformers such as bert have"
            )
        self.encoder = encoder

    def forward(self, ids_BL: Tensor, mask_BL: Tensor, segments_BL: Tensor) -> Tensor:
        """[B, L] ids, 1 at tokens and 0 at padding, segments → [B, L, D]."""
        count, length = ids_BL.shape
        positions_N = torch.arange(length, device=ids_BL.device).expand(count, -1).reshape(-1)
        batch = TokenBatch(
            ids=ids_BL.reshape(-1),
            lengths=mask_BL.sum(1),
            positions=positions_N,
            segments=segments_BL.reshape(-1),
            words=positions_N,
        )
        x_ND: Tensor = self.encoder.embeddings(batch)
        sights = self.encoder.sights(positions_N, longest=length)
        for layer, sight in enumerate(sights):
            block = self.encoder._block(layer)
            x_ND = block.through(x_ND, partial(_attend, block.attention, sight, _seen(mask_BL, sight)))
        z_BLD: Tensor = self.encoder.final_norm(x_ND).reshape(count, length, -1)
        return z_BLD


def _seen(mask_BL: Tensor, sight: Sight) -> Tensor:
    """What is added to the scores, [B, 1 or H, 1 or L, L]: a number so low that no weight is left where nothing is
    seen."""
    seen = mask_BL[:, None, None, :] > 0
    if sight.window:
        places_L = torch.arange(mask_BL.shape[1], device=mask_BL.device)
        seen = seen & ((places_L[:, None] - places_L[None, :]).abs() <= sight.window)
    low = torch.finfo(torch.float32).min
    added = torch.where(seen, 0.0, low)
    return added if sight.bias is None else added + sight.bias


def _attend(attention: Attention, sight: Sight, added: Tensor, x_ND: Tensor) -> Tensor:
    count, length = added.shape[0], added.shape[3]
    qkv_N3HK = attention.project(x_ND, sight)
    q, k, v = qkv_N3HK.reshape(count, length, 3, attention.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
    y_BHLK = F.scaled_dot_product_attention(q, k, v, attn_mask=added)
    out_ND: Tensor = attention.out(y_BHLK.transpose(1, 2).reshape(count * length, -1))
    return out_ND
