"""Answering a question from a passage (Rajpurkar et al. 2016; Devlin et al. 2019, §4.2 and 4.3).

The answer is a span of the passage. Two learned vectors, S and E, score its start and end:

    P_start(i) = exp(S·z_i) / Σ_j exp(S·z_j)        score(i, j) = S·z_i + E·z_j,  j ≥ i

The training loss is the mean of the two cross-entropies, over all tokens of a sequence; a sequence without the answer
is trained on the span of [CLS]. With `null` (SQuAD 2) that span also predicts that there is no answer. N tokens, B
sequences, D hidden size.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from msgspec import UNSET, UnsetType
from torch import Tensor, nn

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.ranges import DropoutRate, Score, Size, SizeOrNone, Temperature, Weight
from larvatus.core.targets import AnswerSpans
from larvatus.models.heads.head import Dense, Head, HeadConfig, to_float32
from larvatus.models.heads.pooling import owners
from larvatus.models.nn.compiling import IGNORE
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.nn.lstm import BiLSTM
from larvatus.models.objectives.linear_cross_entropy import Loss


class QuestionAnsweringConfig(HeadConfig, path="answering: ", tag="answering"):
    needs: ClassVar = AnswerSpans
    suffix: ClassVar = "ForQuestionAnswering"
    labels: ClassVar[tuple[str, str]] = ("start", "end")

    null: bool = False
    """Whether the passage may not answer the question, which [CLS] then predicts (SQuAD 2)."""
    threshold: Score = 0.0
    """With `null`: margin by which the score of [CLS] must exceed that of the best span for there to be no answer."""
    longest: Size = 30
    """Tokens of the longest answer."""
    whole_words: bool = True
    """Whether an answer that begins or ends inside a word is widened to the word. Not if annotators mark parts of
    words, as in Korean, whose particles are attached to the noun.
    """
    dense: Dense = "none"
    """A layer before the scores, in families that have one (ModernBERT)."""
    dense_norm: bool = False
    """A norm after it."""
    dropout: DropoutRate = 0.0
    mix: bool | str = False
    """A learned mix of all layers instead of the last (ELMo), or the layers to read (`models/nn/layer_mix.py`)."""
    temperature: Temperature = 1.0
    """Scores are divided by it to give probabilities (fitted on validation examples)."""
    weight: Weight = 1.0
    lstm: SizeOrNone | UnsetType = UNSET
    """Size of a bidirectional LSTM over the tokens, in each direction; 0 or unset: none."""

    def build(self, model: EncoderConfig, vocabulary: int) -> QuestionAnswering:
        return QuestionAnswering(self, model)

    @classmethod
    def from_hf_fields(cls, labels: list[str], problem_type: str | None) -> dict[str, Any]:
        if len(labels) != len(cls.labels):
            raise ValueError(f"a head for answers has a start and an end, not {len(labels)} labels")
        return {}

    def describe(self) -> str:
        return f"first and last token of an answer{', or none' if self.null else ''}"


class QuestionAnswering(Head):
    config: QuestionAnsweringConfig

    def __init__(self, config: QuestionAnsweringConfig, model: EncoderConfig) -> None:
        super().__init__(config, model)
        self.lstm = BiLSTM(size=self.width, hidden=config.lstm) if config.lstm else None
        self.classifier = nn.Linear(self.lstm.width if self.lstm is not None else self.width, 2)  # S and E

    def rows(self, tokens: TokenBatch[Ints], *, learning: bool = False) -> Ints:
        """Each token is a row."""
        return tokens.lengths

    def features(self, states: Tensor, batch: TrainingBatch[Tensor], *, learning: bool = False) -> Tensor:
        """The vectors of all tokens, unchanged."""
        return states

    def padded_logits(self, z_BLD: Tensor, mask_BL: Tensor) -> Tensor:
        """[B, L, 2]: start and end of each token."""
        whole = self.mix is None and self.lstm is None
        return to_float32(self.classifier(self.trunk(z_BLD))) if whole else super().padded_logits(z_BLD, mask_BL)

    def logits(self, x: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """Start and end score of each token: [N, D] (or a stack of layers) → [N, 2]."""
        x_ND = self.trunk(x)
        if self.lstm is not None:
            x_ND = self.dropout(self.lstm(x_ND, batch.tokens.lengths))
        return to_float32(self.classifier(x_ND))

    def size(self, batch: TrainingBatch[Any]) -> float:
        """Divisor of the sum of losses: sequences, each counted with its weight."""
        targets: AnswerSpans[Any] = batch.targets[AnswerSpans]
        return float((targets.weights * (targets.starts != IGNORE)).sum())

    def score_loss(self, scores_N2: Tensor, targets: AnswerSpans[Tensor], *, accuracy: bool = False) -> Loss:
        """The loss from the scores of tokens. A sequence is correct if both its start and its end are."""
        known_B = targets.starts != IGNORE
        weights_B = targets.weights.to(scores_N2.dtype) * known_B
        places_B2 = torch.stack([targets.starts, targets.ends], dim=1).clamp(min=0)
        losses_B2 = segment_cross_entropy(scores_N2, places_B2, targets.lengths)
        right = None
        if accuracy:
            right = ((segment_argmax(scores_N2, targets.lengths) == places_B2).all(1) & known_B).sum()
        return Loss(
            total=(losses_B2.mean(1) * weights_B).sum(),
            count=weights_B.sum(),
            correct=right,
            weight=self.config.weight,
        )


def _owners(scores_NK: Tensor, lengths_B: Tensor) -> Tensor:
    """[N, K] the sequence of each token."""
    return owners(lengths_B, len(scores_NK))[:, None].expand_as(scores_NK)


def _highest(scores_NK: Tensor, owner_NK: Tensor, sequences: int) -> Tensor:
    start_BK = scores_NK.new_full((sequences, scores_NK.shape[1]), -torch.inf)
    return start_BK.scatter_reduce(0, owner_NK, scores_NK, "amax")


def segment_cross_entropy(scores_NK: Tensor, places_BK: Tensor, lengths_B: Tensor) -> Tensor:
    """−log softmax over the tokens of each sequence, at one place of it: K softmaxes side by side, unpadded. [B, K]"""
    owner_NK = _owners(scores_NK, lengths_B)
    highest_BK = _highest(scores_NK.detach(), owner_NK, len(lengths_B))
    shifted_NK = scores_NK - highest_BK.gather(0, owner_NK)
    sums_BK = torch.zeros_like(highest_BK).scatter_add(0, owner_NK, shifted_NK.exp())
    firsts_B = lengths_B.cumsum(0) - lengths_B
    return sums_BK.log() - shifted_NK.gather(0, firsts_B[:, None] + places_BK)


def segment_argmax(scores_NK: Tensor, lengths_B: Tensor) -> Tensor:
    """The place of the highest score in each sequence, the first of equals: [B, K]."""
    owner_NK = _owners(scores_NK, lengths_B)
    best_NK = scores_NK == _highest(scores_NK, owner_NK, len(lengths_B)).gather(0, owner_NK)
    row_N1 = torch.arange(len(scores_NK), device=scores_NK.device)[:, None]
    rows_NK = torch.where(best_NK, row_N1, len(scores_NK))
    start_BK = rows_NK.new_full((len(lengths_B), scores_NK.shape[1]), len(scores_NK))
    firsts_B = lengths_B.cumsum(0) - lengths_B
    return start_BK.scatter_reduce(0, owner_NK, rows_NK, "amin") - firsts_B[:, None]
