"""A vector for each text, as sentence encoders have it (Sentence-BERT, Reimers & Gurevych 2019, §3).

    v = normalise(f(W · pool(z_1 … z_N) + b))        each part if the settings have it

The pooling is the mean or the maximum of the tokens, special tokens included, or [CLS]. These are the modules of
`sentence-transformers`: Pooling, Dense, Normalize (`models/bundle/sentence_modules.py` reads and writes them).

A text longer than a window is several sequences. Every token counts once, in the window where it sees most, so the mean
of a long text is over all its tokens; [CLS] is the mean over the windows. Which tokens of a sequence count is `kept` of
`SentenceTargets`. N tokens, B sequences, T texts, E examples, D hidden size.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import UsageError
from larvatus.core.ranges import Size, Temperature, Weight
from larvatus.core.settings import Settings
from larvatus.core.targets import SentenceTargets
from larvatus.models.heads.head import DENSE, Dense
from larvatus.models.heads.pooling import owners
from larvatus.models.heads.text_head import TextHead, TextHeadConfig, counted_tokens
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.objectives.sentence.losses import Matryoshka, MultipleNegatives, PlainLoss

TextPool = Literal["mean", "cls", "max"]


class DenseProjection(Settings):
    """A linear layer after the pooling, and what follows it."""

    size: Size
    activation: Dense = "tanh"
    bias: bool = True


class EmbeddingConfig(TextHeadConfig, path="embedding: ", tag="embedding"):
    vector_kind: ClassVar = "dense"

    pool: TextPool = "mean"
    """How the tokens of a text become one vector."""
    projections: tuple[DenseProjection, ...] = ()
    """Layers after the pooling."""
    normalise: bool = False
    """Scale vectors to length 1."""
    loss: PlainLoss | Matryoshka = MultipleNegatives()
    """Loss that training minimises."""
    temperature: Temperature = 1.0
    weight: Weight = 1.0

    def build(self, model: EncoderConfig, vocabulary: int) -> Embedding:
        return Embedding(self, model)

    def describe(self) -> str:
        sizes = "".join(f", then {layer.size} dimensions" for layer in self.projections)
        pooled = {"mean": "the mean of the tokens", "cls": "[CLS]", "max": "the maximum of the tokens"}[self.pool]
        return f"a vector for each text, {pooled}{sizes}{', scaled to length 1' if self.normalise else ''}"

    def width(self, hidden: int) -> int:
        """Size of a vector, for an encoder of this hidden size."""
        return self.projections[-1].size if self.projections else hidden


class Embedding(TextHead):
    config: EmbeddingConfig

    def __init__(self, config: EmbeddingConfig, model: EncoderConfig) -> None:
        super().__init__(config, model)
        sizes = [model.hidden, *(layer.size for layer in config.projections)]
        self.projections = nn.ModuleList(
            nn.Linear(read, layer.size, bias=layer.bias)
            for read, layer in zip(sizes[:-1], config.projections, strict=True)
        )
        self.size_of_vector = sizes[-1]
        wanted = max(config.loss.dimensions) if isinstance(config.loss, Matryoshka) else 0
        if wanted > sizes[-1]:
            raise UsageError(f"Matryoshka trains {wanted} dimensions, but vectors have {sizes[-1]}; leave it out")

    def rows(self, tokens: TokenBatch[Ints], *, learning: bool = False) -> Ints:
        """Each sequence is a row: the windows of a text are joined after them."""
        return np.ones(tokens.count, np.int64)

    def pooled(self, z_ND: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """What each sequence adds to the vector of its text: [N, D] → [B, D]."""
        targets: SentenceTargets[Tensor] = batch.targets[SentenceTargets]
        lengths_B, count = batch.tokens.lengths, batch.tokens.count
        owner_N = owners(lengths_B, len(z_ND))
        inside_N1 = counted_tokens(batch, owner_N)[:, None]
        z_ND = z_ND.float()
        if self.config.pool == "max":
            low_ND = z_ND.masked_fill(~inside_N1, -torch.inf)
            start_BD = z_ND.new_full((count, z_ND.shape[1]), -torch.inf)
            return start_BD.scatter_reduce(0, owner_N[:, None].expand_as(low_ND), low_ND, "amax")
        tokens_B = (targets.kept[:, 1] - targets.kept[:, 0]).float()
        text_B = owners(targets.windows, count)
        total_B = tokens_B.new_zeros(len(targets.windows)).index_add(0, text_B, tokens_B)[text_B]
        shares_N1 = inside_N1 / total_B[owner_N][:, None]
        return z_ND.new_zeros(count, z_ND.shape[1]).index_add(0, owner_N, z_ND * shares_N1)

    def vectors(self, x_BD: Tensor, targets: SentenceTargets[Tensor]) -> Tensor:
        """The vector of each text from what its sequences add: [B, D] → [T, size]."""
        text_B = owners(targets.windows, len(x_BD))
        if self.config.pool == "max":
            start_TD = x_BD.new_full((len(targets.windows), x_BD.shape[1]), -torch.inf)
            x_TD = start_TD.scatter_reduce(0, text_B[:, None].expand_as(x_BD), x_BD, "amax")
        else:
            x_TD = x_BD.new_zeros(len(targets.windows), x_BD.shape[1]).index_add(0, text_B, x_BD)
        projected = self.project(x_TD)
        return F.normalize(projected, dim=-1) if self.config.normalise else projected

    def project(self, x_TD: Tensor) -> Tensor:
        """Pooled texts through the linear layers: [T, D] → [T, size]."""
        for layer, config in zip(self.projections, self.config.projections, strict=True):
            x_TD = layer(x_TD)
            x_TD = x_TD if config.activation == "none" else DENSE[config.activation](x_TD)
        return x_TD.float()
