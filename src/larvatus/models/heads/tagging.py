"""Tagging words (chapter §11.4.3, eq. 11.14 and 11.15): a tag for each word, from the vectors of its subwords.

    y_i = softmax(W_K z_i)        t_i = argmax_k y_i,k

In training, every subword of a word has the gold tag; in decoding, the first subword decides (example 11.16). Or a word
is one vector, that of its first subword, or the mean or maximum of all, in both. A CRF (`models/nn/crf.py`) over the
words of a sequence adds a score for each pair of neighbouring tags; an LSTM may read the words first. N tokens, P
(token, word) pairs, W words, B sequences, D hidden size, K tags.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import UsageError
from larvatus.core.ranges import DropoutRate, SizeOrNone, Temperature, Weight
from larvatus.core.targets import WordTags
from larvatus.data.text.tag_schemes import Scheme
from larvatus.models.heads.head import Dense, HeadConfig, WordHead, require_words, to_float32
from larvatus.models.heads.pooling import WordPool
from larvatus.models.nn.compiling import IGNORE
from larvatus.models.nn.crf import CRF
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.nn.lstm import BiLSTM
from larvatus.models.objectives.linear_cross_entropy import Loss


class TaggingConfig(HeadConfig, path="tagging: ", tag="tagging"):
    needs: ClassVar = WordTags
    suffix: ClassVar = "ForTokenClassification"

    labels: tuple[str, ...]
    """The tags."""
    scheme: Scheme = "none"
    """Tag scheme of the entities, which defines the allowed transitions; none: all are allowed."""
    pool: WordPool = "first"
    """Which of a word's subwords represent it."""
    learn: Literal["subwords", "words"] = "subwords"
    """Whether every subword has the gold tag, or the word as a whole; a CRF and an LSTM always train on words."""
    crf: bool = False
    """A conditional random field over the words."""
    lstm: SizeOrNone = 0
    """Size of a bidirectional LSTM over the words, in each direction; 0: none."""
    dense: Dense = "none"
    """A layer before the tags, in families that have one (ModernBERT)."""
    dense_norm: bool = False
    """A norm after it."""
    dropout: DropoutRate = 0.1
    mix: bool | str = False
    """A learned mix of all layers instead of the last (ELMo), or the layers to read (`models/nn/layer_mix.py`)."""
    spacing: Literal["written", "apart", "spaced"] = "written"
    """How text is read, to look like the training data: as written; with a space where a token would cover two words;
    with single spaces between all words.
    """
    temperature: Temperature = 1.0
    """Scores are divided by it to give probabilities (fitted on validation examples)."""
    weight: Weight = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise UsageError(f"tagging needs at least two tags, each named once, not {list(self.labels)}")
        if self.mix and self.pool == "max":
            raise UsageError("a mix of layers is pooled by first or mean, not max")

    @property
    def whole_words(self) -> bool:
        """Whether words, not subwords, have a loss."""
        return self.learn == "words" or self.crf or bool(self.lstm) or bool(self.mix)

    def build(self, model: EncoderConfig, vocabulary: int) -> Tagging:
        return Tagging(self, model)

    def describe(self) -> str:
        scheme = "" if self.scheme == "none" else f" ({self.scheme})"
        size = f"{len(self.labels):,} tags{scheme}{', CRF' if self.crf else ''}"
        return f"{size}, BiLSTM of {self.lstm}" if self.lstm else size


class Tagging(WordHead):
    config: TaggingConfig

    def __init__(self, config: TaggingConfig, model: EncoderConfig) -> None:
        super().__init__(config, model)
        self.lstm = BiLSTM(size=self.width, hidden=config.lstm) if config.lstm else None
        self.classifier = nn.Linear(self.lstm.width if self.lstm is not None else self.width, len(config.labels))
        self.crf = CRF(len(config.labels)) if config.crf else None

    def rows(self, tokens: TokenBatch[Ints], *, learning: bool = False) -> Ints:
        """Each word is a row; if subwords are trained, each (token, word) pair is one."""
        pieces = tokens.word_tokens
        assert pieces is not None
        if not learning or self.config.whole_words:
            return pieces.counts
        sequences_W = np.repeat(np.arange(len(pieces.counts)), pieces.counts)
        return np.bincount(sequences_W[pieces.words], minlength=len(pieces.counts)).astype(np.int64)

    def features(self, states: Tensor, batch: TrainingBatch[Tensor], *, learning: bool = False) -> Tensor:
        if learning and not self.config.whole_words:
            return states.index_select(0, require_words(batch).rows)
        return super().features(states, batch)

    def logits(self, x: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """Scores of the tags of each word from features: [W, D] (or a stack of layers) → [W, K]."""
        x_WD = self.trunk(x)
        if self.lstm is not None:
            x_WD = self.dropout(self.lstm(x_WD, require_words(batch).counts))
        return to_float32(self.classifier(x_WD))

    def padded_logits(self, z_BLD: Tensor, mask_BL: Tensor) -> Tensor:
        """[B, L, K]: a word has the scores of its first token."""
        whole = self.mix is None and self.lstm is None and self.crf is None and self.config.pool == "first"
        return to_float32(self.classifier(self.trunk(z_BLD))) if whole else super().padded_logits(z_BLD, mask_BL)

    def size(self, batch: TrainingBatch[Any]) -> float:
        """Divisor of the sum of losses: known tags, on subwords or on words."""
        known = batch.targets[WordTags].tags != IGNORE
        return float(known.sum() if self.config.whole_words else known[require_words(batch).words].sum())

    def forward(self, x: Tensor, batch: TrainingBatch[Tensor], *, accuracy: bool = False) -> Loss:
        """The loss from features of words, or of subwords if these are trained."""
        targets: WordTags[Tensor] = batch.targets[WordTags]
        scores = self.logits(x, batch)
        if self.config.whole_words:
            return self.score_loss(scores, targets, accuracy=accuracy)
        tags_P = targets.tags[require_words(batch).words]
        total = F.cross_entropy(scores, tags_P, reduction="sum", ignore_index=IGNORE)
        return self._loss(total, scores, tags_P, accuracy=accuracy)

    def score_loss(self, scores_WK: Tensor, targets: WordTags[Tensor], *, accuracy: bool = False) -> Loss:
        """The loss from the tags' scores of whole words."""
        if self.crf is not None:
            # a chain of tiny operations, each of them a kernel launch on a GPU: computed on the host
            on_cpu = scores_WK.cpu(), targets.tags.cpu(), targets.counts.cpu()
            total = -self.crf.log_likelihood(*on_cpu).sum().to(scores_WK.device)
        else:
            total = F.cross_entropy(scores_WK, targets.tags, reduction="sum", ignore_index=IGNORE)
        return self._loss(total, scores_WK, targets.tags, accuracy=accuracy)

    def _loss(self, total: Tensor, scores: Tensor, tags: Tensor, *, accuracy: bool) -> Loss:
        return Loss(
            total=total,
            count=(tags != IGNORE).sum(),
            correct=(scores.argmax(-1) == tags).sum() if accuracy else None,
            weight=self.config.weight,
        )
