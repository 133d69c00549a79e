"""Tagging words (chapter §11.4.3, eq. 11.14 and 11.15): a tag for each word, from the vectors of its subwords.

    y_i = softmax(W_K z_i)        t_i = argmax_k y_i,k

Learning, the gold tag stands on every subword of a word; decoding, the first subword decides (example 11.16). Or a word
is one vector, that of its first subword, or the mean or maximum of all, and learns as one. A CRF (`nn/crf.py`) over the
words of a sequence adds a score for each pair of neighbouring tags; an LSTM may read the words first.
N tokens, P (token, word) pairs, W words, B sequences, D hidden size, K tags.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from msgspec import Struct
from torch import Tensor, nn

from larvatus.batch import TrainingBatch
from larvatus.errors import UsageError
from larvatus.heads.classification import DENSE, Dense
from larvatus.nn.bilstm import BiLSTM
from larvatus.nn.buckets import IGNORE
from larvatus.nn.crf import CRF
from larvatus.nn.dropout import Dropout
from larvatus.nn.encoder import Encoder, EncoderConfig
from larvatus.nn.layer_mix import LayerMix
from larvatus.nn.word_pool import WordPool, pool_words
from larvatus.objectives.loss import Loss
from larvatus.ranges import DropoutRate, SizeOrNone, Temperature, Weight, check_ranges
from larvatus.targets import WordTags
from larvatus.text.tag_schemes import Scheme


class TaggingConfig(Struct, tag_field="type", tag="tagging", frozen=True, kw_only=True, forbid_unknown_fields=True):
    needs: ClassVar = WordTags

    labels: tuple[str, ...]
    """The tags."""
    scheme: Scheme = "none"
    """How tags spell entities, which says what may follow what; none: anything may."""
    pool: WordPool = "first"
    """Which of a word's subwords speak for it."""
    learn: Literal["subwords", "words"] = "subwords"
    """The gold tag stands on every subword, or on the word as a whole; a CRF and an LSTM always learn words."""
    crf: bool = False
    """A conditional random field over the words."""
    lstm: SizeOrNone = 0
    """Size of a bidirectional LSTM over the words, in each direction; 0: none."""
    dense: Dense = "none"
    """A layer before the tags, in families that have one (ModernBERT)."""
    dense_norm: bool = False
    """A norm after it."""
    dropout: DropoutRate = 0.1
    mix: bool = False
    """A learned mix of all layers in place of the last (ELMo)."""
    spacing: Literal["written", "apart", "spaced"] = "written"
    """How text is read, for it to look like what was learnt: as written; with a space where a token would serve two
    words; with single spaces between all words."""
    temperature: Temperature = 1.0
    """Scores are divided by it to give probabilities (fitted on held-out examples)."""
    weight: Weight = 1.0

    def __post_init__(self) -> None:
        check_ranges(self, "tagging: ")
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise UsageError(f"tagging wants two tags or more, each named once, not {list(self.labels)}")
        if self.mix and self.pool == "max":
            raise UsageError("a mix of layers is pooled by first or mean, not max")

    @property
    def whole_words(self) -> bool:
        """Whether words, not subwords, carry the loss."""
        return self.learn == "words" or self.crf or bool(self.lstm) or self.mix

    def build(self, model: EncoderConfig, vocabulary: int) -> Tagging:
        return Tagging(self, model)


class Tagging(nn.Module):
    needs = WordTags

    def __init__(self, config: TaggingConfig, model: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.mix = LayerMix(model.layers) if config.mix else None
        biases = model.biases
        self.dense = nn.Linear(model.hidden, model.hidden, bias=biases) if config.dense != "none" else None
        self.norm = nn.LayerNorm(model.hidden, eps=model.norm_epsilon, bias=biases) if config.dense_norm else None
        self.lstm = BiLSTM(size=model.hidden, hidden=config.lstm) if config.lstm else None
        self.dropout = Dropout(config.dropout)
        self.classifier = nn.Linear(self.lstm.width if self.lstm is not None else model.hidden, len(config.labels))
        self.crf = CRF(len(config.labels)) if config.crf else None

    def features(self, states: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """A vector for each word: [N, D] → [W, D], or [layers + 1, N, D] → [layers + 1, W, D] for a mix."""
        words = batch.targets[WordTags]
        if states.ndim == 3:
            return torch.stack([self._pool(z_ND, words) for z_ND in states])
        return self._pool(states, words)

    def _pool(self, z_ND: Tensor, words: WordTags[Tensor]) -> Tensor:
        return pool_words(z_ND, words.rows, words.words, count=len(words.tags), pool=self.config.pool)

    def _transform(self, x: Tensor) -> Tensor:
        """Through the dense layer and the norm, where there are any: […, D] → […, D]."""
        if self.dense is not None:
            x = DENSE[self.config.dense](self.dense(x))
        return self.norm(x) if self.norm is not None else x

    def logits(self, x: Tensor, counts_B: Tensor) -> Tensor:
        """Scores of the tags of each word from features: [W, D] (or a stack of layers) → [W, K]."""
        x_WD = self._transform(self.mix(x) if self.mix is not None else x)
        if self.lstm is not None:
            x_WD = self.lstm(self.dropout(x_WD), counts_B)
        scores_WK: Tensor = self.classifier(self.dropout(x_WD))
        return scores_WK.float() if scores_WK.dtype == torch.bfloat16 else scores_WK

    def scores(self, states: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """Scores of the tags for each word, from the encoder's vectors: → [W, K]."""
        return self.logits(self.features(states, batch), batch.targets[WordTags].counts)

    def size(self, targets: WordTags[Any]) -> float:
        """By how much the sum of losses is divided: tags that are known, on subwords or on words."""
        known = targets.tags != IGNORE
        return float(known.sum() if self.config.whole_words else known[targets.words].sum())

    def forward(self, x: Tensor, targets: WordTags[Tensor], *, accuracy: bool = False) -> Loss:
        """The loss from features of whole words."""
        return self.score_loss(self.logits(x, targets.counts), targets, accuracy=accuracy)

    def score_loss(self, scores_WK: Tensor, targets: WordTags[Tensor], *, accuracy: bool = False) -> Loss:
        """The loss from the tags' scores of whole words."""
        if self.crf is not None:
            # a chain of tiny operations, each of which a GPU would have to be asked for: the host makes them
            own = scores_WK.cpu(), targets.tags.cpu(), targets.counts.cpu()
            total = -self.crf.log_likelihood(*own).sum().to(scores_WK.device)
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

    def loss(self, z_ND: Tensor, batch: TrainingBatch[Tensor], encoder: Encoder, *, accuracy: bool = False) -> Loss:
        targets: WordTags[Tensor] = batch.targets[WordTags]
        if self.config.whole_words:
            loss: Loss = self(self.features(z_ND, batch), targets, accuracy=accuracy)
            return loss
        scores_PK = self.classifier(self.dropout(self._transform(z_ND.index_select(0, targets.rows))))
        scores_PK = scores_PK.float() if scores_PK.dtype == torch.bfloat16 else scores_PK
        tags_P = targets.tags[targets.words]
        total = F.cross_entropy(scores_PK, tags_P, reduction="sum", ignore_index=IGNORE)
        return self._loss(total, scores_PK, tags_P, accuracy=accuracy)
