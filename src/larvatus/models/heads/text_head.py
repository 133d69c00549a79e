"""What heads have in common that turn texts into vectors, and learn from comparing them.

    x = head.features(states, batch)                  # from the tokens of each sequence
    vectors = head.vectors(x, targets)                # [T, K] of texts, or [N, K] of tokens
    loss = head.score_loss(vectors, targets)          # of all texts of a step

| head | a text is | file |
| --- | --- | --- |
| embedding | one vector | `embedding.py` |
| late-interaction | a vector for each token | `late_interaction.py` |
| sparse | weights of the vocabulary | `sparse.py` |

The loss compares all texts of a step, so microbatches need its gradients beforehand (`trainer/cached_gradients.py`). N
tokens, T texts, E examples, B sequences, D hidden size, K size of a vector.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.targets import SentenceTargets
from larvatus.models.heads.head import Head, HeadConfig
from larvatus.models.heads.pooling import owners
from larvatus.models.objectives.loss import Loss
from larvatus.models.objectives.sentence.base import Texts


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
