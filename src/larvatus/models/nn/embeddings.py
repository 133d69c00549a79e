"""Input embeddings (BERT, Devlin et al. 2019, §3 and figure 2): word + position + segment, then norm and dropout.

    x_i = dropout(norm(words[id_i] + positions[i] + segments[s_i]))

Factorised (ALBERT, Lan et al. 2020, §3.1): all this in a smaller width E, then x_i ← P x_i + b, so a large vocabulary
costs V × E + E × D weights instead of V × D.

A model without learned positions has max_positions = 0 here, one without segments has segments = 0; with a single
segment, every token has it, whatever the batch contains. `words` is also the output matrix of the masked-LM head (tied
weights). N tokens, E width of the embeddings, D hidden size.

    >>> import torch
    >>> from larvatus.core.batch import TokenBatch
    >>> batch = TokenBatch.of([[2, 5, 3], [2, 3]]).map(torch.from_numpy)
    >>> sizes = {"vocabulary": 8, "width": 2, "hidden": 4, "max_positions": 16, "segments": 2}
    >>> Embeddings(**sizes, norm_epsilon=1e-12, dropout=0.0)(batch).shape
    torch.Size([5, 4])
"""

from __future__ import annotations

from torch import Tensor, nn

from larvatus.core.batch import TokenBatch
from larvatus.models.nn.dropout import Dropout


class Embeddings(nn.Module):
    def __init__(
        self,
        *,
        vocabulary: int,
        width: int,
        hidden: int,
        max_positions: int,
        segments: int,
        norm_epsilon: float,
        dropout: float,
        biases: bool = True,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(max_positions, width) if max_positions else None
        self.segments = nn.Embedding(segments, width) if segments else None
        self.norm = nn.LayerNorm(width, eps=norm_epsilon, bias=biases)
        self.dropout = Dropout(dropout)
        self.project = nn.Linear(width, hidden, bias=biases) if width != hidden else nn.Identity()

    def share(self, other: Embeddings) -> None:
        """Share the tables and the norm of another; only the projection stays separate (ELECTRA's generator)."""
        self.words, self.positions, self.segments, self.norm = other.words, other.positions, other.segments, other.norm

    def forward(self, batch: TokenBatch[Tensor]) -> Tensor:
        x_NE = self.words(batch.ids)
        if self.positions is not None:
            x_NE = x_NE + self.positions(batch.positions)
        if self.segments is not None:
            alone = self.segments.num_embeddings == 1  # such models read pairs too, whose second text has no row
            x_NE = x_NE + (self.segments.weight[0] if alone else self.segments(batch.segments))
        y_ND: Tensor = self.project(self.dropout(self.norm(x_NE)))
        return y_ND
