"""Attention masks: which tokens attend to which, and biases on the scores. Where tokens are is `layout.py`.

    AttentionMask()                        every token attends to all tokens of its sequence (BERT)
    AttentionMask(window=64)               token i attends to j if |i − j| ≤ 64 (Beltagy et al. 2020, *Longformer*)
    AttentionMask(causal=True)             token i attends to j if j ≤ i (a left-to-right model)
    AttentionMask(bias=table)              a number is added to each score (`relative_bias.py`)

It may differ between layers; layers with equal settings share one. N tokens, H heads, L tokens of a sequence.

    >>> AttentionMask(window=1, causal=True).seen(3, torch.device("cpu")).int().tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from larvatus.models.nn.positions import Rotation


@dataclass(frozen=True, eq=False)
class AttentionMask:
    window: int = 0  # tokens on either side; 0: the whole sequence
    causal: bool = False  # no token attends to a later one
    rotation: Rotation | None = (
        None  # rotation of queries and keys, by the positions of the tokens in the layout's order
    )
    bias: Tensor | None = None  # [H, L, L] on the scores of the longest sequence; a shorter one uses its corner

    @property
    def plain(self) -> bool:
        """Whether all tokens attend to each other, without a bias."""
        return not (self.window or self.causal) and self.rotation is None and self.bias is None

    def seen(self, length: int, device: torch.device) -> Tensor | None:
        """A mask [L, L], true where the query of a row attends to the key of a column; None if it always does."""
        return band(length, self.window, device, causal=self.causal)

    def bias_of(self, length: int) -> Tensor | None:
        """The bias of a sequence of this length, [H, L, L]."""
        return None if self.bias is None else self.bias[:, :length, :length]


FULL = AttentionMask()
"""Every token attends to all tokens of its sequence."""


def band(length: int, window: int, device: torch.device, *, causal: bool = False) -> Tensor | None:
    """A mask [L, L] of tokens at most `window` apart. None if that is all of them."""
    if length <= 1 or (not causal and (window == 0 or length <= window + 1)):
        return None
    return _wide_band(1 << (length - 1).bit_length(), window, device, causal)[:length, :length]


@functools.lru_cache(maxsize=8)
def _wide_band(length: int, window: int, device: torch.device, causal: bool) -> Tensor:
    """Masks of all shorter lengths are corners of this one, so few are cached."""
    with torch.inference_mode(False):  # created during an evaluation, it must still work in training afterwards
        places_L = torch.arange(length, device=device)
        back_LL = places_L[:, None] - places_L[None, :]  # how far before the query the key is
        seen_LL = back_LL.abs() <= (window or length)
        return seen_LL & (back_LL >= 0) if causal else seen_LL
