"""Semantic roles (Carreras & Màrquez 2005): predicates, their senses, and the spans of words that are their arguments.

    is a predicate    p_w  = softmax(W_p h_w)                                    for every word w
    roleset           y_f  = softmax(W_s h_f)             over the rolesets of the predicate's lemma
    argument          u_fw = gelu(A h_w + B h_f + d_{w−f} + (C h_w) ∘ (D h_f))   for every predicate f, word w near it

u_fw is what word w is to predicate f, so a sentence is encoded once for all its predicates. Arguments are read from
these rows as BIO tags, each by itself (`viterbi`) or by a CRF (`crf`), or as spans that are scored whole (`spans`).
With `one_by_one`, the encoder reads the sentence once more for each predicate, with marks around it.

Scores are the negative log-likelihood of all three, added. N tokens, W words, F predicates (frames), R rows of u, one
for each predicate and each word up to `reach` words from it, E sentences, S searched words, K tags or roles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.arrays import TargetRecord
from larvatus.core.batch import A, TrainingBatch, edges
from larvatus.core.errors import UsageError
from larvatus.core.ranges import DropoutRate, Size, SizeOrNone, Temperature, Weight
from larvatus.data.text.learned_words import WordRules
from larvatus.models.heads.head import HeadConfig, WordHead, to_float32
from larvatus.models.heads.pooling import WordPool
from larvatus.models.nn.crf import CRF
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.nn.lstm import BiLSTM
from larvatus.models.nn.span_scorer import DISTANCES, SpanIndex, SpanScorer, distances
from larvatus.models.objectives.linear_cross_entropy import Loss

RoleDecoder = Literal["crf", "viterbi", "spans"]
OUTSIDE = 0
"""The tag of words in no argument; role r has the tags 1 + 2r (its first word) and 2 + 2r."""
FAR_BELOW = -1e4
"""Score of a roleset of another lemma."""


@dataclass(frozen=True, eq=False)
class FrameTargets(TargetRecord, Generic[A]):
    """The predicates of each sentence, their rolesets, and the tags of the words near them.

    A sentence is one sequence, or several where it is long or is read again for each predicate; its words are those of
    all of them.
    """

    what: ClassVar[str] = "predicates with their arguments"
    sequences: A  # [E] sequences of each sentence
    words: A  # [E] words of these sequences
    searched: A  # [E] the first of these words, which are predicates or not
    frames: A  # [E] predicates of each sentence
    is_predicate: A  # [S] 1 for predicates
    predicates: A  # [F] word of each predicate, counted from the first of its sentence
    contexts: A  # [F] first word near it, counted in the same way
    lengths: A  # [F] words near it
    senses: A  # [F] its roleset
    choices: A  # [F] number of rolesets that it may have
    candidates: A  # [C] these rolesets
    tags: A  # [R] of the words near each predicate

    @property
    def count(self) -> int:
        return len(self.is_predicate) + len(self.tags)  # type: ignore[arg-type]

    def cut(self, *, tokens: tuple[int, int], sequences: tuple[int, int]) -> FrameTargets[A]:
        """The targets of a run of whole sentences."""
        arrays: dict[str, Any] = dict(vars(self))
        first, last = np.searchsorted(edges(arrays["sequences"]), sequences).tolist()
        sentences = slice(first, last)
        searched = slice(*edges(arrays["searched"])[[first, last]].tolist())
        frames = slice(*edges(arrays["frames"])[[first, last]].tolist())
        rows = slice(*edges(arrays["lengths"])[[frames.start, frames.stop]].tolist())
        candidates = slice(*edges(arrays["choices"])[[frames.start, frames.stop]].tolist())
        taken = {"is_predicate": searched, "candidates": candidates, "tags": rows}
        taken |= dict.fromkeys(("sequences", "words", "searched", "frames"), sentences)
        return FrameTargets(**{name: array[taken.get(name, frames)] for name, array in arrays.items()})


@dataclass(frozen=True, eq=False)
class FrameIndex:
    """Predicates of a batch, and the words near each."""

    predicates: Tensor  # [F] word in the batch
    first: Tensor  # [F] first word near it
    lengths: Tensor  # [F] words near it
    count: int
    """Number of rows (R)."""

    @classmethod
    def of(cls, targets: FrameTargets[Tensor]) -> FrameIndex:
        begins = targets.words.cumsum(0) - targets.words
        begins_F = torch.repeat_interleave(begins, targets.frames, output_size=len(targets.predicates))
        return cls(targets.predicates + begins_F, targets.contexts + begins_F, targets.lengths, count=len(targets.tags))

    def part(self, first: int, last: int, count: int) -> FrameIndex:
        """Predicates first … last − 1, which have `count` rows."""
        place = slice(first, last)
        return FrameIndex(self.predicates[place], self.first[place], self.lengths[place], count)

    @property
    def frames_R(self) -> Tensor:
        """Predicate of each row."""
        frames = torch.arange(len(self.lengths), device=self.lengths.device)
        return torch.repeat_interleave(frames, self.lengths, output_size=self.count)

    def words_R(self, frames_R: Tensor) -> Tensor:
        """Word of each row."""
        before_F = self.lengths.cumsum(0) - self.lengths
        return torch.arange(self.count, device=frames_R.device) + (self.first - before_F)[frames_R]


class RolesConfig(HeadConfig, path="roles: ", tag="roles"):
    needs: ClassVar = FrameTargets

    labels: tuple[str, ...]
    """The roles, V (the predicate's own words) and continuations (C-ARG1) among them."""
    rolesets: tuple[str, ...]
    """Senses of predicates: ``get.01``."""
    forms: Mapping[str, tuple[str, ...]]
    """Lemmas of the word forms that were predicates in training, in lower case."""
    decoder: RoleDecoder = "crf"
    """How arguments are found: BIO tags by a CRF or each by itself, or whole spans."""
    one_by_one: bool = False
    """Read the sentence once more for each predicate, with marks around it."""
    reach: Size = 128
    """Most words between a predicate and a word of its arguments."""
    longest: Size = 32
    """Words of the longest argument, where spans are scored."""
    hidden: Size = 512
    """Size of the vector of a predicate and a word."""
    lstm: SizeOrNone = 0
    """Size of a bidirectional LSTM over the words near a predicate; 0: none."""
    pool: WordPool = "first"
    """Which of a word's subwords represent it."""
    dropout: DropoutRate = 0.1
    mix: bool = False
    """A learned mix of all layers instead of the last (ELMo)."""
    rules: WordRules = WordRules()
    """How raw text is cut into words; without borders, as by `data/text/words.py`."""
    language: str = "en"
    """Language of the rules that split text into sentences."""
    temperature: Temperature = 1.0
    """Always 1: probabilities of arguments are not calibrated."""
    weight: Weight = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, given in (("roles", self.labels), ("rolesets", self.rolesets)):
            if not given or len(set(given)) < len(given):
                raise UsageError(f"semantic roles need at least one of the {name}, each named once")

    @property
    def tags(self) -> tuple[str, ...]:
        """BIO tags of the roles."""
        return ("O", *(f"{letter}-{role}" for role in self.labels for letter in "BI"))

    def build(self, model: EncoderConfig, vocabulary: int) -> SemanticRoles:
        return SemanticRoles(self, model)

    def describe(self) -> str:
        how = {"crf": "BIO with a CRF", "viterbi": "BIO", "spans": f"spans up to {self.longest} words"}[self.decoder]
        read = "each predicate by itself" if self.one_by_one else "all predicates at once"
        return f"{len(self.labels):,} roles, {len(self.rolesets):,} rolesets, {how}, {read}"

    def same_labels(self, other: HeadConfig) -> bool:
        return super().same_labels(other) and self.rolesets == getattr(other, "rolesets", ())


class FrameRows(nn.Module):
    """What a word is to a predicate: u = gelu(A h_w + B h_f + d + (C h_w) ∘ (D h_f)), a row for each pair."""

    def __init__(self, size: int, hidden: int) -> None:
        super().__init__()
        self.words = nn.Linear(size, 2 * hidden)
        self.predicates = nn.Linear(size, 2 * hidden)
        self.distance = nn.Embedding(DISTANCES, hidden)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Matrices keep the scale of their input (σ = 1 / √inputs); distances and biases start at 0."""
        for parameter in self.parameters():
            parameter.zero_()
        for part in (self.words, self.predicates):
            part.weight.copy_(torch.empty(part.weight.shape).normal_(0, part.in_features**-0.5, generator=generator))

    def forward(self, h_WD: Tensor, index: FrameIndex) -> Tensor:
        """[W, D] → [R, H]; each word and each predicate is projected once."""
        frames_R = index.frames_R
        words_R = index.words_R(frames_R)
        sum_w, product_w = self.words(h_WD).index_select(0, words_R).chunk(2, -1)
        sum_f, product_f = self.predicates(h_WD[index.predicates]).index_select(0, frames_R).chunk(2, -1)
        near = self.distance(distances(words_R - index.predicates[frames_R]))
        return F.gelu(sum_w + sum_f + near + product_w * product_f)


class SemanticRoles(WordHead):
    config: RolesConfig

    def __init__(self, config: RolesConfig, model: EncoderConfig) -> None:
        super().__init__(config, model)
        self.predicate = nn.Linear(self.width, 2)
        self.sense = nn.Linear(self.width, len(config.rolesets))
        self.pairs = FrameRows(self.width, config.hidden)
        self.lstm = BiLSTM(size=config.hidden, hidden=config.lstm) if config.lstm else None
        width = config.hidden if self.lstm is None else self.lstm.width
        self.scorer: SpanScorer | None = None
        self.classifier: nn.Linear | None = None
        self.crf = CRF(len(config.tags)) if config.decoder == "crf" else None
        if config.decoder == "spans":
            self.scorer = SpanScorer(
                width,
                hidden=config.hidden // 2,
                outputs=len(config.labels) + 1,
                longest=config.longest,
                representation="boundaries",
                widths=True,
            )
        else:
            self.classifier = nn.Linear(width, len(config.tags))

    def argument_rows(self, h_WD: Tensor, index: FrameIndex) -> Tensor:
        """A vector for each predicate and each word near it, from vectors of words: [W, D] → [R, H]."""
        u_RH: Tensor = self.dropout(self.pairs(h_WD, index))
        return u_RH if self.lstm is None else self.dropout(self.lstm(u_RH, index.lengths))

    def tag_scores(self, u_RH: Tensor) -> Tensor:
        """Scores of BIO tags: [R, H] → [R, K]."""
        assert self.classifier is not None
        return to_float32(self.classifier(u_RH))

    def sense_scores(self, h_WD: Tensor, index: FrameIndex, choices_F: Tensor, candidates_C: Tensor) -> Tensor:
        """Scores of all rolesets for each predicate, those that it may not have far below the others: [F, rolesets]."""
        scores = to_float32(self.sense(h_WD[index.predicates]))
        frames = torch.arange(len(choices_F), device=scores.device)
        frames_C = torch.repeat_interleave(frames, choices_F, output_size=len(candidates_C))
        allowed = torch.zeros_like(scores, dtype=torch.bool)
        allowed[frames_C, candidates_C] = True
        return scores.masked_fill(~allowed, FAR_BELOW)

    def size(self, batch: TrainingBatch[Any]) -> float:
        """Divisor of the sum of losses: words that are searched, and words near each predicate."""
        return float(batch.targets[FrameTargets].count)

    def forward(self, x: Tensor, batch: TrainingBatch[Tensor], *, accuracy: bool = False) -> Loss:
        """The loss from features of words."""
        targets: FrameTargets[Tensor] = batch.targets[FrameTargets]
        h_WD, index = self.trunk(x), FrameIndex.of(targets)
        total = self._predicate_loss(h_WD, targets)
        if index.count:
            senses = self.sense_scores(h_WD, index, targets.choices, targets.candidates)
            total = total + F.cross_entropy(senses, targets.senses, reduction="sum")
            total = total + self._argument_loss(self.argument_rows(h_WD, index), index, targets.tags)
        count = torch.full((), targets.count, device=h_WD.device)
        return Loss(total=total, count=count, weight=self.config.weight)

    def _predicate_loss(self, h_WD: Tensor, targets: FrameTargets[Tensor]) -> Tensor:
        size = len(targets.is_predicate)
        begins = targets.words.cumsum(0) - targets.words - (targets.searched.cumsum(0) - targets.searched)
        rows = torch.arange(size, device=h_WD.device)
        rows = rows + torch.repeat_interleave(begins, targets.searched, output_size=size)
        scores = to_float32(self.predicate(h_WD.index_select(0, rows)))
        return F.cross_entropy(scores, targets.is_predicate, reduction="sum")

    def _argument_loss(self, u_RH: Tensor, index: FrameIndex, tags_R: Tensor) -> Tensor:
        if self.scorer is not None:
            spans = SpanIndex.of(index.lengths, longest=self.config.longest)
            return F.cross_entropy(self.scorer(u_RH, spans), gold_spans(tags_R, spans), reduction="sum")
        scores = self.tag_scores(u_RH)
        if self.crf is None:
            return F.cross_entropy(scores, tags_R, reduction="sum")
        # a chain of tiny operations, each of them a kernel launch on a GPU: computed on the host
        likelihood: Tensor = self.crf.log_likelihood(scores.cpu(), tags_R.cpu(), index.lengths.cpu())
        return -likelihood.sum().to(scores.device)


def gold_spans(tags_R: Tensor, spans: SpanIndex) -> Tensor:
    """[M] 0 for nothing, or 1 + role, of all spans, from BIO tags of rows; spans longer than the index has are not in.

    >>> spans = SpanIndex.of(torch.tensor([3]), longest=2)
    >>> gold_spans(torch.tensor([3, 4, 0]), spans).tolist()         # role 1 over the first two rows
    [0, 2, 0, 0, 0]
    """
    inside = (tags_R > OUTSIDE) & (tags_R % 2 == 0)
    stops = F.pad(torch.nonzero(~inside).squeeze(-1), (0, 1), value=len(tags_R))
    first = torch.nonzero((tags_R > OUTSIDE) & ~inside).squeeze(-1)
    last = stops[torch.searchsorted(stops, first, right=True)] - 1
    gold = tags_R.new_zeros(spans.count + 1)  # one more, for spans that are too long
    gold[spans.number(first, last)] = (tags_R[first] + 1) // 2
    return gold[:-1]
