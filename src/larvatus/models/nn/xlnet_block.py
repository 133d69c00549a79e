"""One block of XLNet (Yang et al. 2019, §2.3): relative attention, then the feedforward layer, in two streams.

    content   h ← norm(h + attention(q of h, keys and values of h)),   then h ← norm(h + feedforward(h))
    query     g ← norm(g + attention(q of g, keys and values of h)),   then g ← norm(g + feedforward(g))

Both use the same weights, and the same keys and values, which are computed once.
N tokens, M places asked at, T remembered states, D hidden size.
"""

from __future__ import annotations

from torch import Tensor, nn

from larvatus.models.nn.attention.relative import RelativeAttention, Surroundings
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.feedforward import Activation, FeedForward


class XLNetBlock(nn.Module):
    def __init__(
        self, *, hidden: int, heads: int, inner: int, activation: Activation, norm_epsilon: float, dropout: float
    ) -> None:
        super().__init__()
        self.attention = RelativeAttention(hidden=hidden, heads=heads, dropout=dropout)
        self.attention_norm = nn.LayerNorm(hidden, eps=norm_epsilon)
        self.feedforward = FeedForward(hidden=hidden, inner=inner, activation=activation)
        self.feedforward_norm = nn.LayerNorm(hidden, eps=norm_epsilon)
        self.dropout = Dropout(dropout)

    def forward(self, h_ND: Tensor, memory_TD: Tensor | None, around: Surroundings) -> Tensor:
        """The content stream alone."""
        mixed_ND, _ = self.attention.content(h_ND, memory_TD, around)
        return self._rest(h_ND, mixed_ND)

    def both(self, h_ND: Tensor, g_MD: Tensor, memory_TD: Tensor | None, around: Surroundings) -> tuple[Tensor, Tensor]:
        """Both streams: content, queries."""
        mixed_ND, keys = self.attention.content(h_ND, memory_TD, around)
        return self._rest(h_ND, mixed_ND), self._rest(g_MD, self.attention.query(g_MD, keys, around))

    def query(self, h_ND: Tensor, g_MD: Tensor, memory_TD: Tensor | None, around: Surroundings) -> Tensor:
        """The query stream alone: of the content no layer above reads, only keys and values are needed."""
        keys = self.attention.keys_of(h_ND, memory_TD, around)
        return self._rest(g_MD, self.attention.query(g_MD, keys, around))

    def _rest(self, x: Tensor, mixed: Tensor) -> Tensor:
        """What follows attention, of either stream."""
        y = self.attention_norm(x + self.dropout(mixed))
        inner = self.dropout(self.feedforward.activation(self.feedforward.up(y)))
        z: Tensor = self.feedforward_norm(y + self.dropout(self.feedforward.down(inner)))
        return z
