"""What a head of a task is: settings (`HeadConfig`) and a module (`Head`) that scores rows of features.

    states = head.states(encoder, batch.tokens)         # of the last layer, or of all layers for a mix
    x = head.features(states, batch)                    # a row for each text, word or token
    scores = head.logits(x, batch)                      # a row of scores for each of these
    loss = head(head.features(states, batch, learning=True), batch)      # or head.loss(states, batch, encoder)

A row is what the head speaks of: a sequence, a word, a token. `rows` says how many each sequence has, so that features
can be kept and scores put in order without knowing the kind of head. What a head has besides (CRF, spans) is its own.

What all heads of tasks have before their scores: a mix of layers, a dense layer, a norm, dropout.

    x → Σ_l w_l x_l (ELMo) → f(W x + b) → norm → dropout → the head's own scores

Each part is there where the head's settings ask for it. A head *is* a trunk, so that its parameters keep their names:
``objectives.classification.dense.weight``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch, WordTokens
from larvatus.core.errors import UsageError
from larvatus.core.settings import Settings
from larvatus.models.heads.pooling import SummaryPool, summary_places
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.encoder import Encoder, EncoderConfig
from larvatus.models.nn.layer_mix import LayerMix, LearnedMix, read_layers
from larvatus.models.objectives.loss import Loss

Dense = Literal["tanh", "gelu", "relu", "none"]
DENSE: dict[Dense, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "gelu": F.gelu, "relu": torch.relu}


class Trunk(nn.Module):
    """From features of the encoder to what scores are told from: […, D] → […, width]."""

    def __init__(
        self,
        model: EncoderConfig,
        *,
        mix: bool | str,
        dropout: float,
        dense: Dense = "none",
        dense_norm: bool = False,
        read: int | None = None,
    ) -> None:
        """`read` is the size of a row of features, where it is not the encoder's."""
        super().__init__()
        self.mix = read_layers(mix, layers=model.layers)
        self.activation = DENSE.get(dense)
        read = read or model.hidden * (self.mix.wide if self.mix is not None else 1)
        self.dense = nn.Linear(read, model.hidden, bias=model.biases) if dense != "none" else None
        self.width = read if self.dense is None else model.hidden
        """Of what scores are told from."""
        self.norm = nn.LayerNorm(model.hidden, eps=model.norm_epsilon, bias=model.biases) if dense_norm else None
        self.dropout = Dropout(dropout)

    @property
    def learnt_mix(self) -> LearnedMix | None:
        """How much it wants of each layer; None where it learns none of that."""
        return self.mix.learnt if isinstance(self.mix, LayerMix) else None

    def mixed(self, x: Tensor) -> Tensor:
        """One vector for each row, of a stack of layers too, through dense layer and norm, before dropout."""
        x_RD: Tensor = self.mix(x) if self.mix is not None else x
        if self.dense is not None and self.activation is not None:
            x_RD = self.activation(self.dense(x_RD))
        return self.norm(x_RD) if self.norm is not None else x_RD

    def trunk(self, x: Tensor) -> Tensor:
        """The whole way: features of rows [R, D], or [layers, R, D] for a mix → [R, D]."""
        dropped: Tensor = self.dropout(self.mixed(x))
        return dropped


def to_float32(scores: Tensor) -> Tensor:
    """Losses are told from scores in float32 (or better), whatever they were computed in."""
    return scores.float() if scores.dtype == torch.bfloat16 else scores


@dataclass(frozen=True, kw_only=True)
class FamilyHead:
    """One kind of head in one family of models, as `transformers` writes it."""

    names: Mapping[str, str]
    """Our modules → theirs."""
    fixed: Mapping[str, Any]
    """Settings of ours that are always so in this family."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Settings of ours → the field of config.json that says them."""
    dropout: float | None = None
    """Where no field says it; None: that of the encoder."""


class HeadConfig(Settings, tag_field="type"):
    """Settings of a head. Its `tag` is its name in files and in the names of parameters: ``classification``."""

    needs: ClassVar[Any]
    """The kind of target that it learns from (`core/targets.py`)."""
    suffix: ClassVar[str | None] = None
    """How the classes of `transformers` with such a head end: ``ForSequenceClassification``; None: there are none."""
    begins_as: ClassVar[str | None] = None
    """The objective of pretraining whose weights it begins with; None: it is new."""
    families: ClassVar[Mapping[str, FamilyHead]] = {}
    """By the prefix of their classes (``Bert``): what such a head is there."""

    if TYPE_CHECKING:  # what all heads have, each in its own place among its settings

        @property
        def labels(self) -> tuple[str, ...]: ...
        @property
        def mix(self) -> bool | str: ...
        @property
        def temperature(self) -> float: ...
        @property
        def weight(self) -> float: ...

    def build(self, model: EncoderConfig, vocabulary: int) -> Head:
        raise NotImplementedError

    def describe(self) -> str:
        """For people, who are told what is trained: ``3 classes``."""
        raise NotImplementedError

    @property
    def names_labels(self) -> bool:
        """Whether labels have names that the examples gave; starts, ends and scores of endings have none."""
        return "labels" in self.__struct_fields__

    @property
    def writes(self) -> int:
        """Tokens that it writes for a text at most; 0 of heads that write none."""
        return 0

    def same_labels(self, other: HeadConfig) -> bool:
        """Whether weights of the other head may be gone on with: it is of this kind, and tells the same."""
        return type(self) is type(other) and self.labels == other.labels

    def stated(self) -> dict[str, Any]:
        """Fields of config.json that `transformers` gives this kind of head, beside those of the family."""
        names = self.labels
        return {
            "id2label": {str(n): name for n, name in enumerate(names)},
            "label2id": {m: n for n, m in enumerate(names)},
        }

    @classmethod
    def read_stated(cls, labels: list[str], problem_type: str | None) -> dict[str, Any]:
        """The opposite: settings that those fields say; ValueError where they do not go together."""
        return {"labels": labels}

    @classmethod
    def said_by_stated(cls) -> frozenset[str]:
        """The settings that `read_stated` gives."""
        return frozenset({"labels"})


class Head(Trunk):
    """A module with scores. Subclasses say what a row is, how rows are scored, and what a row costs."""

    needs: ClassVar[Any]
    config: Any

    @property
    def outputs(self) -> int:
        """Scores of a row."""
        return len(self.config.labels)

    @property
    def summary(self) -> SummaryPool | None:
        """The one token of each sequence that says all, where one does: the last layer is computed for it alone."""
        return None

    def tie(self, encoder: Encoder) -> None:
        """Told of the encoder that it stands on, for heads whose scores are those of words of the vocabulary."""

    def parts(self, encoder: Encoder) -> list[tuple[int, nn.Module]]:
        """What of the encoder it learns with, each with the number of layers above it."""
        return encoder.parts()

    def places(self, tokens: TokenBatch[Tensor]) -> Tensor | None:
        """The tokens that say all, by their places in the flat batch; None: all tokens of a sequence are needed."""
        return None if self.summary is None else summary_places(tokens.lengths, self.summary)

    def added(self, x: Tensor) -> Tensor:
        """Rows from the vectors at `places`: as they are, or added where several sequences are one row."""
        return x

    def rows(self, tokens: TokenBatch[Ints], *, learning: bool = False) -> Ints:
        """[B] rows of features that each sequence has."""
        raise NotImplementedError

    def states(self, encoder: Encoder, tokens: TokenBatch[Tensor], *, limit: int | None = None) -> Tensor:
        """The encoder's vectors as the head wants them: [N, D] of the last layer, or of all layers for a mix."""
        if self.mix is None:
            z_ND: Tensor = encoder(tokens, limit=limit)
            return z_ND
        return torch.stack(encoder(tokens, layers=self.mix.layers, limit=limit))

    def features(self, states: Tensor, batch: TrainingBatch[Tensor], *, learning: bool = False) -> Tensor:
        """A vector for each row: [N, D] → [R, D], or [layers + 1, N, D] → [layers + 1, R, D] for a mix."""
        if states.ndim == 3:
            return torch.stack([self.pooled(z_ND, batch) for z_ND in states])
        return self.pooled(states, batch)

    def pooled(self, z_ND: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """Of one layer: [N, D] → [R, D]."""
        raise NotImplementedError

    def logits(self, x: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """Scores from features: [R, D] (or a stack of layers) → [R, K]."""
        raise NotImplementedError

    def padded_logits(self, z_BLD: Tensor, mask_BL: Tensor) -> Tensor:
        """Scores from the last layer of padded sequences, for programs that know no flat batches (ONNX): [B, …, K].

        `mask` is 1 at tokens and 0 at padding.
        """
        raise UsageError(f"scores of {self.config.describe()} cannot be exported; export vectors: --output vectors")

    def scores(self, states: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """Scores from the encoder's vectors."""
        return self.logits(self.features(states, batch), batch)

    def size(self, batch: TrainingBatch[Any]) -> float:
        """By how much the sum of losses of a step is divided."""
        raise NotImplementedError

    def score_loss(self, scores: Tensor, targets: Any, *, accuracy: bool = False) -> Loss:
        """The loss from scores of the rows that are answered; what of it has no likelihood is left out before."""
        raise NotImplementedError

    def forward(self, x: Tensor, batch: TrainingBatch[Tensor], *, accuracy: bool = False) -> Loss:
        """The loss from features that are for learning."""
        raise NotImplementedError

    def loss(self, states: Tensor, batch: TrainingBatch[Tensor], encoder: Encoder, *, accuracy: bool = False) -> Loss:
        """The loss from the encoder's vectors, of all layers where the head mixes them (see `states`)."""
        loss: Loss = self(self.features(states, batch, learning=True), batch, accuracy=accuracy)
        return loss

    def replaced(self, **settings: Any) -> Self:
        """Itself with other settings that its weights do not depend on: a temperature, a threshold."""
        self.config = msgspec.structs.replace(self.config, **settings)
        return self


def require_words(batch: TrainingBatch[Any]) -> WordTokens[Any]:
    """The words of a batch for a head that scores words."""
    pieces = batch.tokens.word_tokens
    assert pieces is not None, "the batch has no words"
    return pieces
