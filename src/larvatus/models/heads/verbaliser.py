"""Classifying through a blank (Schick & Schütze 2021, PET): the scores of classes are those of words at a masked token.

    s(y | x) = m(v(y) | P(x))        P(x): the text in a pattern with one blank; v(y): the word of label y; m: masked-lm

The head is the model's own masked-lm head, so nothing of it is newly initialised, and it works before any training. The
output word vectors are the encoder's: tied, as in pretraining. A word of several tokens has as many blanks; a sequence
then has as many as the longest word, and the rest of shorter words is ignored (PET with multiple masks, Schick &
Schütze 2021b, §3.1, the single pass that they train with; they use a hinge loss, we cross-entropy):

    s(y | x) = Σ_i log q_i(t_i | P(x))        t_1 … t_n the tokens of v(y), q_i the distribution at blank i

Several words of a label count with the mean of their scores. `offsets` are subtracted: log probabilities of the labels
for a neutral text (Zhao et al. 2021). B sequences, M blanks of each, W words, K labels, E width of word vectors.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import UsageError
from larvatus.core.ranges import CountOrNone, Score, Size
from larvatus.core.targets import ClassTargets
from larvatus.models.heads.classification import Classification, ClassificationConfig
from larvatus.models.heads.head import Trunk
from larvatus.models.nn.encoder import Encoder, EncoderConfig
from larvatus.models.objectives.masked_lm import MaskedLM, MaskedLMConfig

Demonstration = tuple[str, str | None, str]
"""A text, the second of a pair, and the label."""


class VerbaliserConfig(ClassificationConfig, tag="verbaliser"):
    needs: ClassVar = ClassTargets
    suffix: ClassVar[str | None] = None
    begins_as: ClassVar = "masked-lm"

    pattern: str
    """The text with its blank: ``{text} It was {blank}.``"""
    words: tuple[str, ...]
    """Words that represent labels."""
    owners: tuple[CountOrNone, ...]
    """The number of the label of each word."""
    sizes: tuple[Size, ...]
    """Tokens of each word."""
    ids: tuple[CountOrNone, ...]
    """The tokens of all words, concatenated."""
    mask: CountOrNone
    """The token of a blank."""
    offsets: tuple[Score, ...] = ()
    """Offset subtracted from the score of each label (calibration by a neutral text); empty: none."""
    demonstrations: tuple[Demonstration, ...] = ()
    """Labelled texts shown before the text to classify, as many as fit."""
    in_turn: bool = False
    """Whether words of several tokens are filled token by token (`tasks/prompt/prompted.py`), which suits a model that
    was not trained with the prompt; a trained one is scored as in training, in one pass.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind != "multi-class" or self.mix:
            raise UsageError("words at a blank tell classes apart, from the last layer; leave out kind and mix")
        if not len(self.words) == len(self.owners) == len(self.sizes) or sum(self.sizes) != len(self.ids):
            raise UsageError("a verbaliser has a label, a size and tokens for each word")
        if set(self.owners) != set(range(len(self.labels))):
            raise UsageError("a verbaliser has a word for each label, and none for others")
        if self.offsets and len(self.offsets) != len(self.labels):
            raise UsageError(f"{len(self.labels)} labels, but {len(self.offsets)} offsets; give one each")

    @property
    def blanks(self) -> int:
        """Masked tokens of a sequence: as many as the longest word has."""
        return max(self.sizes)

    def tokens(self) -> list[tuple[int, ...]]:
        """The tokens of each word."""
        ends = np.cumsum(self.sizes).tolist()
        return [self.ids[end - size : end] for end, size in zip(ends, self.sizes, strict=True)]

    def words_of(self, label: int) -> tuple[str, ...]:
        return tuple(word for word, owner in zip(self.words, self.owners, strict=True) if owner == label)

    def build(self, model: EncoderConfig, vocabulary: int) -> Verbaliser:
        return Verbaliser(self, model, vocabulary)

    def describe(self) -> str:
        said = [f"{label} = {' or '.join(self.words_of(n))}" for n, label in enumerate(self.labels[:12])]
        more = f" and {len(self.labels) - 12} more" if len(self.labels) > 12 else ""
        return f"{', '.join(said)}{more} at the blank of {self.pattern!r}"


class WordTables(NamedTuple):
    """The words as tensors."""

    ids_WM: Tensor
    there_WM: Tensor
    """1 where a word has a token, 0 where it is shorter than others."""
    share_WK: Tensor
    """1 / words of the label, for the label of each word."""


class Verbaliser(Classification):
    config: VerbaliserConfig

    def __init__(self, config: VerbaliserConfig, model: EncoderConfig, vocabulary: int) -> None:
        Trunk.__init__(self, model)  # it has words instead of a classifier
        self.config = config
        self.words = MaskedLM(MaskedLMConfig(), model, vocabulary)
        self._encoder: tuple[Encoder, ...] = ()  # in a tuple, so that its weights are not counted as the head's
        self._tables: dict[torch.device, WordTables] = {}

    def tie(self, encoder: Encoder) -> None:
        self._encoder = (encoder,)

    def places(self, tokens: TokenBatch[Tensor]) -> Tensor | None:
        return self.blanks(tokens) if self.config.blanks == 1 else None

    def blanks(self, tokens: TokenBatch[Tensor]) -> Tensor:
        """The masked tokens: [B M]. Their number is known, so that no GPU has to be waited for."""
        hidden_N = tokens.ids == self.config.mask
        count = len(tokens.lengths) * self.config.blanks
        return torch.argsort(hidden_N.to(torch.int8), descending=True, stable=True)[:count]

    def pooled(self, z_ND: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        return z_ND.index_select(0, self.blanks(batch.tokens))

    def logits(self, x: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """Scores of the labels from vectors of the blanks: [B M, D] → [B, K]."""
        words_VE, tables = self._encoder[0].word_vectors, self.tables(x.device)
        h_RE = self.words.transform(x)
        if self.config.blanks == 1:
            ids_W = tables.ids_WM[:, 0]
            scores_BW = F.linear(h_RE, words_VE[ids_W], self.words.bias[ids_W]).float()
        else:
            logits_BMV = F.linear(h_RE, words_VE, self.words.bias).float().unflatten(0, (-1, self.config.blanks))
            log_BMV = torch.log_softmax(logits_BMV, -1)
            at_BWM = _at(log_BMV, tables.ids_WM)
            scores_BW = (at_BWM * tables.there_WM).sum(-1)
        return self.of_labels(scores_BW)

    def of_labels(self, scores_BW: Tensor) -> Tensor:
        """Scores of labels from those of words: [B, W] → [B, K]."""
        scores_BK = scores_BW @ self.tables(scores_BW.device).share_WK.to(scores_BW.dtype)
        return scores_BK - scores_BK.new_tensor(self.config.offsets) if self.config.offsets else scores_BK

    def tables(self, device: torch.device) -> WordTables:
        if device not in self._tables:
            config = self.config
            longest = config.blanks
            ids = [[*word, *([0] * (longest - len(word)))] for word in config.tokens()]
            there = [[1.0] * size + [0.0] * (longest - size) for size in config.sizes]
            counts = [config.owners.count(label) for label in range(len(config.labels))]
            share = [[float(owner == n) / counts[n] for n in range(len(counts))] for owner in config.owners]
            self._tables[device] = WordTables(
                torch.tensor(ids, device=device), torch.tensor(there, device=device), torch.tensor(share, device=device)
            )
        return self._tables[device]

    def replaced(self, **settings: Any) -> Verbaliser:
        self._tables = {}
        return super().replaced(**settings)


def _at(log_BMV: Tensor, ids_WM: Tensor) -> Tensor:
    """log q_i(t_i) of every word: [B, W, M]."""
    rows_M = torch.arange(ids_WM.shape[1], device=ids_WM.device)
    return log_BMV[:, rows_M[None, :], ids_WM]
