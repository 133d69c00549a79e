"""The interface of a task head: settings (`HeadConfig`) and a module (`Head`) that scores rows of features.

    states = head.states(encoder, batch.tokens)         # of the last layer, or of all layers for a mix
    x = head.features(states, batch)                    # a row for each text, word or token
    scores = head.logits(x, batch)                      # a row of scores for each of these
    loss = head(head.features(states, batch, learning=True), batch)      # or head.loss(states, batch, encoder)

A row is the unit that the head scores: a sequence, a word, a token. `rows` is the number of rows of each sequence, so
that features can be cached and scores ordered without knowing the kind of head.

All heads have the same trunk before their scores, each part if the settings ask for it:

    x → Σ_l w_l x_l (ELMo) → f(W x + b) → norm → dropout → the head's own scores

A head *is* a trunk, so that its parameters keep their names: ``objectives.classification.dense.weight``.
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
from larvatus.models.heads.pooling import SummaryPool, pool_words, summary_places
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.encoder import Encoder, EncoderConfig
from larvatus.models.nn.layer_mix import LayerMix, LearnedMix, read_layers
from larvatus.models.objectives.linear_cross_entropy import Loss

VectorKind = Literal["dense", "late", "sparse"]
"""One vector for a text, one for each token, or weights of the vocabulary."""
Dense = Literal["tanh", "gelu", "relu", "none"]
DENSE: dict[Dense, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "gelu": F.gelu, "relu": torch.relu}


class Trunk(nn.Module):
    """From features of the encoder to the input of the scores: […, D] → […, width]."""

    def __init__(
        self,
        model: EncoderConfig,
        *,
        mix: bool | str = False,
        dropout: float = 0.0,
        dense: Dense = "none",
        dense_norm: bool = False,
        read: int | None = None,
    ) -> None:
        """`read` is the size of a row of features, if it is not the encoder's."""
        super().__init__()
        self.mix = read_layers(mix, layers=model.layers)
        self.activation = DENSE.get(dense)
        read = read or model.hidden * (self.mix.wide if self.mix is not None else 1)
        self.dense = nn.Linear(read, model.hidden, bias=model.biases) if dense != "none" else None
        self.width = read if self.dense is None else model.hidden
        """Size of the input of the scores."""
        self.norm = nn.LayerNorm(model.hidden, eps=model.norm_epsilon, bias=model.biases) if dense_norm else None
        self.dropout = Dropout(dropout)

    @property
    def learnt_mix(self) -> LearnedMix | None:
        """The learned weight of each layer; None without a learned mix."""
        return self.mix.learnt if isinstance(self.mix, LayerMix) else None

    def mixed(self, x: Tensor) -> Tensor:
        """One vector for each row, also from a stack of layers, through dense layer and norm, before dropout."""
        x_RD: Tensor = self.mix(x) if self.mix is not None else x
        if self.dense is not None and self.activation is not None:
            x_RD = self.activation(self.dense(x_RD))
        return self.norm(x_RD) if self.norm is not None else x_RD

    def trunk(self, x: Tensor) -> Tensor:
        """The whole trunk: features of rows [R, D], or [layers, R, D] for a mix → [R, D]."""
        dropped: Tensor = self.dropout(self.mixed(x))
        return dropped


def to_float32(scores: Tensor) -> Tensor:
    """Losses are computed from scores in float32 (or better), whatever the precision in force."""
    return scores.float() if scores.dtype == torch.bfloat16 else scores


@dataclass(frozen=True, kw_only=True)
class FamilyHead:
    """One kind of head in one family of models, as `transformers` stores it."""

    names: Mapping[str, str]
    """Our modules → theirs."""
    fixed: Mapping[str, Any]
    """Settings of ours that this family always has."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Settings of ours → the field of config.json that states them."""
    dropout: float | None = None
    """Default dropout if no field states it; None: that of the encoder."""


class HeadConfig(Settings, tag_field="type"):
    """Settings of a head. Its `tag` is its name in files and parameter names: ``classification``."""

    needs: ClassVar[Any]
    """The kind of target that it is trained on (`core/targets.py`)."""
    suffix: ClassVar[str | None] = None
    """Suffix of the classes of `transformers` with such a head: ``ForSequenceClassification``; None: there are none."""
    stored_as: ClassVar[str | None] = None
    """Another head that `transformers` stores in the same classes; `marked` distinguishes them."""
    begins_as: ClassVar[str | None] = None
    """The pretraining objective whose weights it starts from; None: it is new."""
    stores_labels: ClassVar[bool] = True
    """Whether config.json of `transformers` has names of its labels."""
    objectives: ClassVar[tuple[Any, ...]] = ()
    """Configs of the pretraining objectives whose layers it uses, which stay with the model."""
    vector_kind: ClassVar[VectorKind | None] = None
    """Kind of the vectors that it gives for texts; None for heads that give none."""
    in_modules: ClassVar[bool] = False
    """Whether `modules.json` describes it in every layout, and config.json does not (`bundle/sentence_modules.py`)."""
    families: ClassVar[Mapping[str, FamilyHead]] = {}
    """Names and settings of the head in each family, by the prefix of its classes (``Bert``)."""

    if TYPE_CHECKING:  # what all heads have, each at its own place among its settings

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
        """One phrase for people: ``3 classes``."""
        raise NotImplementedError

    @property
    def names_labels(self) -> bool:
        """Whether labels have names from the examples; starts, ends and scores of endings have none."""
        return "labels" in self.__struct_fields__

    @property
    def writes(self) -> int:
        """Most tokens that it generates for a text; 0 for heads that generate none."""
        return 0

    def same_labels(self, other: HeadConfig) -> bool:
        """Whether the weights of the other head can be reused: it is of the same kind, with the same labels."""
        return type(self) is type(other) and self.labels == other.labels

    def hf_fields(self) -> dict[str, Any]:
        """Fields of config.json that `transformers` uses for this kind of head, in addition to those of the family."""
        names = self.labels
        if not self.stores_labels:
            return {}
        return {
            "id2label": {str(n): name for n, name in enumerate(names)},
            "label2id": {m: n for n, m in enumerate(names)},
        }

    @classmethod
    def from_hf_fields(cls, labels: list[str], problem_type: str | None) -> dict[str, Any]:
        """The inverse: settings from those fields; ValueError if they do not agree."""
        return {"labels": labels} if cls.stores_labels else {}

    @classmethod
    def marked(cls, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """The settings in the entry of config.json that distinguishes the head from the one it is `stored_as`.

        None without this entry; ValueError if it cannot be read.
        """
        return None

    @classmethod
    def settings_in_hf_fields(cls) -> frozenset[str]:
        """The settings that `from_hf_fields` gives."""
        return frozenset({"labels"} if cls.stores_labels else ())


class Head(Trunk):
    """A module with scores. Subclasses define what a row is, how rows are scored, and the loss of a row."""

    config: Any

    @property
    def needs(self) -> Any:
        """The kind of target that it is trained on."""
        return self.config.needs

    def __init__(self, config: HeadConfig, model: EncoderConfig, *, read: int | None = None) -> None:
        """The trunk is as the settings have it; a part for which they have no field is left out."""
        parts = ("mix", "dropout", "dense", "dense_norm")
        super().__init__(model, read=read, **{name: getattr(config, name) for name in parts if hasattr(config, name)})
        self.config = config

    @property
    def outputs(self) -> int:
        """Scores of a row."""
        return len(self.config.labels)

    @property
    def summary(self) -> SummaryPool | None:
        """The one token of each sequence that is enough, if one is: the last layer is computed only for it."""
        return None

    def tie(self, encoder: Encoder) -> None:
        """Store the encoder, for heads whose scores are those of words of the vocabulary."""

    def join(self, objectives: nn.ModuleDict) -> None:
        """Store the other objectives of the network, for heads that use their layers (`HeadConfig.objectives`)."""

    def parts(self, encoder: Encoder) -> list[tuple[int, nn.Module]]:
        """The encoder's parts that it trains, each with the number of layers above it."""
        return encoder.parts()

    def places(self, tokens: TokenBatch[Tensor]) -> Tensor | None:
        """The tokens that are enough, by position in the flat batch; None: all tokens are needed."""
        return None if self.summary is None else summary_places(tokens.lengths, self.summary)

    def added(self, x: Tensor) -> Tensor:
        """Rows from the vectors at `places`: unchanged, or added if several sequences are one row."""
        return x

    def rows(self, tokens: TokenBatch[Ints], *, learning: bool = False) -> Ints:
        """[B] rows of features that each sequence has."""
        raise NotImplementedError

    def states(self, encoder: Encoder, tokens: TokenBatch[Tensor], *, limit: int | None = None) -> Tensor:
        """The encoder's vectors that the head needs: [N, D] of the last layer, or of all layers for a mix."""
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
        """Rows of one layer: [N, D] → [R, D]."""
        raise NotImplementedError

    def logits(self, x: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """Scores from features: [R, D] (or a stack of layers) → [R, K]."""
        raise NotImplementedError

    def padded_logits(self, z_BLD: Tensor, mask_BL: Tensor) -> Tensor:
        """Scores from the last layer of padded sequences, for programs without flat batches (ONNX): [B, …, K].

        `mask` is 1 at tokens and 0 at padding.
        """
        raise UsageError(f"scores of {self.config.describe()} cannot be exported; export vectors: --output vectors")

    def scores(self, states: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """Scores from the encoder's vectors."""
        return self.logits(self.features(states, batch), batch)

    def size(self, batch: TrainingBatch[Any]) -> float:
        """Divisor of the sum of losses of a step."""
        raise NotImplementedError

    def score_loss(self, scores: Tensor, targets: Any, *, accuracy: bool = False) -> Loss:
        """The loss from scores of the rows with a target; parts without a likelihood are excluded before."""
        raise NotImplementedError

    def forward(self, x: Tensor, batch: TrainingBatch[Tensor], *, accuracy: bool = False) -> Loss:
        """The loss from training features."""
        return self.score_loss(self.logits(x, batch), batch.targets[self.needs], accuracy=accuracy)

    def loss(self, states: Tensor, batch: TrainingBatch[Tensor], encoder: Encoder, *, accuracy: bool = False) -> Loss:
        """The loss from the encoder's vectors, of all layers if the head mixes them (see `states`)."""
        loss: Loss = self(self.features(states, batch, learning=True), batch, accuracy=accuracy)
        return loss

    def replaced(self, **settings: Any) -> Self:
        """Itself with other settings that its weights do not depend on: a temperature, a threshold."""
        self.config = msgspec.structs.replace(self.config, **settings)
        return self


class WordHead(Head):
    """A head whose rows of features are words."""

    def rows(self, tokens: TokenBatch[Ints], *, learning: bool = False) -> Ints:
        """The words of each sequence. Scores may be of their spans or pairs."""
        assert tokens.word_tokens is not None
        return tokens.word_tokens.counts

    def pooled(self, z_ND: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """A vector for each word: [N, D] → [W, D]."""
        words = require_words(batch)
        return pool_words(z_ND, words.rows, words.words, count=words.total, pool=self.config.pool)


def require_words(batch: TrainingBatch[Any]) -> WordTokens[Any]:
    """The words of a batch, for a head that scores words."""
    pieces = batch.tokens.word_tokens
    assert pieces is not None, "the batch has no words"
    return pieces
