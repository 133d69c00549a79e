"""Heads that turn a text into a vector, or into a vector for each token, and learn from comparing texts.

    x = head.features(states, batch)                  # from the tokens of each sequence
    vectors = head.vectors(x, targets)                # [T, K] of texts, or [N, K] of tokens
    loss = head.score_loss(vectors, targets)          # of all texts of a step

The loss compares all texts of a step, so microbatches need its gradients beforehand (`trainer/step_parts.py`).

**One vector** for each text (`Embedding`), as sentence encoders have it (Sentence-BERT, Reimers & Gurevych 2019, §3):

    v = normalise(f(W · pool(z_1 … z_N) + b))        each part if the settings have it

The pooling is the mean or the maximum of the tokens, special tokens included, or [CLS]. These are the modules of
`sentence-transformers`: Pooling, Dense, Normalize (`models/bundle/sentence_modules.py` reads and writes them). A text
longer than a window is several sequences. Every token counts once, in the window where it sees most, so the mean of a
long text is over all its tokens; [CLS] is the mean over the windows. Which tokens of a sequence count is `kept` of
`SentenceTargets`.

**A vector for each token** (`LateInteraction`; ColBERT, Khattab & Zaharia 2020, §3.2):

    v_i = normalise(W z_i)        for every token i of the text, special tokens included; no bias, no activation

Queries and documents are read alike: there are no marker tokens before them, and a query is not filled up with [MASK].
These are the modules Dense and Normalize of `sentence-transformers`, applied to tokens (`MultiVectorEncoder`;
`models/bundle/token_modules.py` reads and writes them). `objectives/late_interaction.py` compares texts.

The head of weights of the vocabulary is in `sparse.py`. N tokens, T texts, E examples, B sequences, D hidden size, K
size of a vector.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

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
from larvatus.models.heads.head import DENSE, Dense, Head, HeadConfig
from larvatus.models.heads.pooling import owners
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.objectives.late_interaction import TokenVectors
from larvatus.models.objectives.linear_cross_entropy import Loss
from larvatus.models.objectives.sentence_losses import Matryoshka, MultipleNegatives, PlainLoss, Texts


class TextHeadConfig(HeadConfig):
    """What the settings of these heads have in common: `modules.json` states all of them, and config.json nothing."""

    needs: ClassVar = SentenceTargets
    labels: ClassVar[tuple[str, ...]] = ()
    mix: ClassVar[bool] = False
    in_modules: ClassVar = True

    def hf_fields(self) -> dict[str, Any]:
        return {}


class TextHead(Head):
    """A head whose rows are vectors that a loss compares."""

    progress = 1.0
    """Share of the training steps that are done; the trainer sets it."""
    size_of_vector: int

    @property
    def outputs(self) -> int:
        return self.size_of_vector

    @property
    def whole_step(self) -> bool:
        """Whether the loss is of a whole step, so that microbatches need its gradients beforehand."""
        return bool(self.config.loss.whole)

    def vectors(self, x: Tensor, targets: SentenceTargets[Tensor]) -> Tensor:
        """The vectors of texts from their features."""
        raise NotImplementedError

    def vector_rows(self, targets: SentenceTargets[Any]) -> int:
        """Rows of `vectors`: one for each text."""
        return len(targets.windows)

    def compared(self, vectors: Tensor, targets: SentenceTargets[Tensor]) -> Texts:
        """The texts as the loss compares them."""
        return vectors

    def logits(self, x: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """The vectors of texts."""
        return self.vectors(x, batch.targets[SentenceTargets])

    def size(self, batch: TrainingBatch[Any]) -> float:
        """Divisor of the sum of losses: examples."""
        return float(batch.targets[SentenceTargets].count)

    def forward(self, x: Tensor, batch: TrainingBatch[Tensor], *, accuracy: bool = False) -> Loss:
        targets: SentenceTargets[Tensor] = batch.targets[SentenceTargets]
        return self.score_loss(self.vectors(x, targets), targets)

    def score_loss(self, scores: Tensor, targets: SentenceTargets[Tensor], *, accuracy: bool = False) -> Loss:
        """The loss from vectors, times the number of examples."""
        count = torch.tensor(float(targets.count), device=scores.device)
        mean = self.mean_loss(self.compared(scores, targets), targets)
        return Loss(total=mean * count, count=count, weight=self.config.weight)

    def mean_loss(self, texts: Texts, targets: SentenceTargets[Tensor]) -> Tensor:
        """The mean loss of the examples."""
        loss: Tensor = self.config.loss(texts, targets)
        return loss


class TokenHead(TextHead):
    """A head that reads all tokens of a text. Each counts once, in the window where it sees most."""

    def rows(self, tokens: TokenBatch[Ints], *, learning: bool = False) -> Ints:
        return np.asarray(tokens.lengths)

    def pooled(self, z_ND: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """The tokens that count: [N, D] → [N', D]."""
        return z_ND[counted_tokens(batch, owners(batch.tokens.lengths, len(z_ND)))]


def counted_tokens(batch: TrainingBatch[Tensor], owner_N: Tensor) -> Tensor:
    """[N] whether each token counts in its sequence, whose number is its owner."""
    lengths_B, targets = batch.tokens.lengths, batch.targets[SentenceTargets]
    place_N = torch.arange(len(owner_N), device=owner_N.device) - (torch.cumsum(lengths_B, 0) - lengths_B)[owner_N]
    kept_N2: Tensor = targets.kept[owner_N]
    return (place_N >= kept_N2[:, 0]) & (place_N < kept_N2[:, 1])


def text_lengths(targets: SentenceTargets[Any]) -> Tensor:
    """[T] tokens of each text that count, on the CPU."""
    kept_B2 = torch.as_tensor(targets.kept).cpu()
    windows_T = torch.as_tensor(targets.windows).cpu()
    text_B = torch.repeat_interleave(torch.arange(len(windows_T)), windows_T)
    return windows_T.new_zeros(len(windows_T)).index_add(0, text_B, (kept_B2[:, 1] - kept_B2[:, 0]).to(windows_T.dtype))


# A vector for each text.

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


# A vector for each token.


class LateInteractionConfig(TextHeadConfig, path="late-interaction: ", tag="late-interaction"):
    vector_kind: ClassVar = "late"

    size: Size = 128
    """Size of a token's vector."""
    loss: PlainLoss = MultipleNegatives(scale=1.0)
    """Loss that training minimises, from MaxSim scores."""
    temperature: Temperature = 1.0
    weight: Weight = 1.0

    def build(self, model: EncoderConfig, vocabulary: int) -> LateInteraction:
        return LateInteraction(self, model)

    def describe(self) -> str:
        return f"a vector of {self.size} dimensions for each token, compared by MaxSim"


class LateInteraction(TokenHead):
    config: LateInteractionConfig

    def __init__(self, config: LateInteractionConfig, model: EncoderConfig) -> None:
        super().__init__(config, model)
        self.projections = nn.ModuleList([nn.Linear(model.hidden, config.size, bias=False)])
        self.size_of_vector = config.size

    def vectors(self, x: Tensor, targets: SentenceTargets[Tensor]) -> Tensor:
        """Unit vectors of all tokens: [N, D] → [N, K]."""
        return F.normalize(self.projections[0](x).float(), dim=-1)

    def vector_rows(self, targets: SentenceTargets[Any]) -> int:
        return int(text_lengths(targets).sum())

    def compared(self, vectors: Tensor, targets: SentenceTargets[Tensor]) -> TokenVectors:
        return TokenVectors(vectors, text_lengths(targets))
