"""Input embeddings (BERT, Devlin et al. 2019, §3 and figure 2): word + position + segment, then norm and dropout.

    x_i = dropout(norm(words[id_i] + positions[i] + segments[s_i]))

A model without learnt positions has max_positions = 0 here, one without segments has segments = 0. `words` is also the
output matrix of the masked-LM head (tied weights). N tokens, D hidden size.

    >>> import torch
    >>> from larvatus.batch import TokenBatch
    >>> batch = TokenBatch.of([[2, 5, 3], [2, 3]]).map(torch.from_numpy)
    >>> Embeddings(vocabulary=8, hidden=4, max_positions=16, segments=2, norm_epsilon=1e-12, dropout=0.0)(batch).shape
    torch.Size([5, 4])
"""

from __future__ import annotations

from torch import Tensor, nn

from larvatus.batch import TokenBatch
from larvatus.nn.dropout import Dropout


class Embeddings(nn.Module):
    def __init__(
        self,
        *,
        vocabulary: int,
        hidden: int,
        max_positions: int,
        segments: int,
        norm_epsilon: float,
        dropout: float,
        biases: bool = True,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(max_positions, hidden) if max_positions else None
        self.segments = nn.Embedding(segments, hidden) if segments else None
        self.norm = nn.LayerNorm(hidden, eps=norm_epsilon, bias=biases)
        self.dropout = Dropout(dropout)

    def forward(self, batch: TokenBatch[Tensor]) -> Tensor:
        x_ND = self.words(batch.ids)
        if self.positions is not None:
            x_ND = x_ND + self.positions(batch.positions)
        if self.segments is not None:
            x_ND = x_ND + self.segments(batch.segments)
        y_ND: Tensor = self.dropout(self.norm(x_ND))
        return y_ND
