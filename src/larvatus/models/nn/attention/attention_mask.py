"""Which token sees which, and how it is weighed: what attention is told besides where tokens lie (`layout.py`).

    Sight()                        every token sees all tokens of its sequence (BERT)
    Sight(window=64)               token i sees token j where |i − j| ≤ 64 (Beltagy et al. 2020, *Longformer*)
    Sight(causal=True)             token i sees token j where j ≤ i (a left-to-right model)
    Sight(bias=table)              a number is added to each score (`relative.py`)

It may differ from layer to layer; layers with equal settings share one.
N tokens, H heads, L tokens of a sequence.

    >>> Sight(window=1, causal=True).seen(3, torch.device("cpu")).int().tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from larvatus.models.nn.rotary import Rotation


@dataclass(frozen=True, eq=False)
class AttentionMask:
    window: int = 0  # tokens seen on either side; 0: the whole sequence
    causal: bool = False  # a token sees no token after it
    rotation: Rotation | None = None  # of queries and keys, by the places of the tokens in the layout's order
    bias: Tensor | None = None  # [H, L, L] on the scores of the longest sequence; a shorter one has its corner
    heads: Tensor | None = None  # [H] what each head's output is multiplied by: 0 masks it; None: nothing is masked

    @property
    def plain(self) -> bool:
        """Whether all tokens see each other alike, by all heads."""
        return not (self.window or self.causal) and self.rotation is None and self.bias is None and self.heads is None

    def seen(self, length: int, device: torch.device) -> Tensor | None:
        """A mask [L, L], true where the query of a row sees the key of a column; None where all is seen."""
        return band(length, self.window, device, causal=self.causal)

    def bias_of(self, length: int) -> Tensor | None:
        """The bias of a sequence of this length, [H, L, L]."""
        return None if self.bias is None else self.bias[:, :length, :length]


FULL = AttentionMask()
"""Every token sees all tokens of its sequence."""


def band(length: int, window: int, device: torch.device, *, causal: bool = False) -> Tensor | None:
    """Which tokens see which, [L, L]: those at most `window` apart. None where that is all of them."""
    if length <= 1 or (not causal and (window == 0 or length <= window + 1)):
        return None
    return _wide_band(1 << (length - 1).bit_length(), window, device, causal)[:length, :length]


@functools.lru_cache(maxsize=8)
def _wide_band(length: int, window: int, device: torch.device, causal: bool) -> Tensor:
    """Bands of all shorter lengths are corners of this one, so few are kept."""
    with torch.inference_mode(False):  # made during an evaluation, it must still serve training afterwards
        places_L = torch.arange(length, device=device)
        back_LL = places_L[:, None] - places_L[None, :]  # how far before the query the key stands
        seen_LL = back_LL.abs() <= (window or length)
        return seen_LL & (back_LL >= 0) if causal else seen_LL
