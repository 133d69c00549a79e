"""Typed spans of words (chapter §11.5.2, eq. 11.21 to 11.27): nested entities, mentions, phrases.

    y_ij = softmax(FFN(spanRep_ij))        over the types and NULL, for every span of up to L words

Training uses all spans, or those with a type and a share of the others, sampled at each step; NULL may weigh less. A
span is predicted if its best type beats NULL: p_type / (p_type + p_NULL) ≥ `threshold`, at 0.5 the argmax of the
chapter. Decoding chooses between spans that exclude each other (`tasks/spans/decoding.py`).

Relations between the spans are an option (`SpansConfig.relations`): one encoder learns both, and the losses are added.
Each ordered pair of the spans of a text has a relation, or none (NONE):

    y_ht = softmax(score_ht)        over the relations and NONE, for pairs of spans with a type

In training, the pairs are those of the gold spans with their gold types (teacher forcing; Eberts & Ulges 2020): all
pairs without a relation are NONE, and a share of these is sampled if a window has very many. N tokens, W words, M
spans, B sequences, D hidden size, K types, G gold spans, P pairs.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import UsageError
from larvatus.core.ranges import (
    Count,
    DropoutRate,
    PositiveShare,
    PositiveWeight,
    Share,
    Size,
    SizeOrNone,
    Temperature,
    Weight,
)
from larvatus.core.settings import Settings
from larvatus.core.targets import WordSpans
from larvatus.models.heads.head import HeadConfig, WordHead, require_words
from larvatus.models.heads.pooling import WordPool
from larvatus.models.nn.compiling import IGNORE
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.nn.span_scorer import RelationScorer, Representation, SpanIndex, SpanScorer, distances, gaps
from larvatus.models.objectives.linear_cross_entropy import Loss

NONE = 0
"""The first score of a pair is that of no relation; relation r has the score r + 1."""


class RelationsConfig(Settings, path="relations: "):
    labels: tuple[str, ...]
    reach: SizeOrNone
    """Most words between two spans of a relation."""
    hidden: Size = 256
    """Size of the hidden layer that scores pairs."""
    negatives: Count = 4096
    """Most pairs without a relation per window and step; if there are more, this many are sampled."""
    weight: PositiveWeight = 1.0
    """Weight of a pair in the loss, where a span has weight 1."""
    threshold: Share = 0.5
    """Probability of the best relation rather than NONE that a pair must reach."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.labels or len(set(self.labels)) < len(self.labels):
            raise UsageError(f"relations need at least one label, each named once, not {list(self.labels)}")


class SpanPairs(NamedTuple):
    heads: Tensor  # [P]
    tails: Tensor  # [P]
    gaps: Tensor  # [P]
    gold: Tensor  # [P] NONE or 1 + relation
    share: Tensor  # [P] probability that the pair is sampled


def gold_pairs(config: RelationsConfig, targets: WordSpans[Tensor]) -> SpanPairs:
    """All ordered pairs of two gold spans of the same sequence, within reach of each other."""
    golds_G = torch.repeat_interleave(targets.golds, targets.golds)  # spans of each span's sequence
    begin_G = torch.repeat_interleave(targets.golds.cumsum(0) - targets.golds, targets.golds)
    before_G = golds_G.cumsum(0) - golds_G  # pairs of the heads before
    heads = torch.repeat_interleave(torch.arange(len(golds_G), device=golds_G.device), golds_G)
    tails = torch.arange(len(heads), device=golds_G.device) - before_G[heads] + begin_G[heads]
    gap = gaps(targets.first, targets.last, heads, tails)
    gold = torch.full_like(heads, NONE)
    head, tail, label = targets.related.unbind(-1)
    gold[before_G[head] + tail - begin_G[head]] = label + 1
    kept = (heads != tails) & (gap.abs() <= config.reach)
    heads, tails, gap, gold = heads[kept], tails[kept], gap[kept], gold[kept]
    sequence = torch.repeat_interleave(torch.arange(len(targets.golds), device=golds_G.device), targets.golds)[heads]
    nothing = torch.bincount(sequence[gold == NONE], minlength=len(targets.golds))[sequence]
    share = torch.where(gold == NONE, (config.negatives / nothing.clamp(min=1)).clamp(max=1.0), 1.0)
    return SpanPairs(heads, tails, gap, gold, share)


def weighted_pair_count(config: RelationsConfig, targets: WordSpans[Tensor], *, drawn: bool = True) -> float:
    """Number of training pairs, weighted, times their probability to be sampled; not `drawn`: all."""
    pairs = gold_pairs(config, targets)
    return config.weight * (float(pairs.share.sum(dtype=torch.float64)) if drawn else len(pairs.gold))


class RelationLoss(NamedTuple):
    total: Tensor
    """Sum over pairs, weighted."""
    pairs: Tensor
    correct: Tensor


def relation_loss(
    scorer: RelationScorer, config: RelationsConfig, z_WD: Tensor, targets: WordSpans[Tensor]
) -> RelationLoss:
    """The loss of the gold spans' pairs, from the vectors of words."""
    pairs = gold_pairs(config, targets)
    gold_P = pairs.gold
    if scorer.training:  # sampled like dropout: the loop seeds torch at every step
        drawn = torch.rand(len(gold_P), device=gold_P.device) < pairs.share
        pairs = SpanPairs(*(part[drawn] for part in pairs))
    sides_GH = scorer.project(z_WD, targets.first, targets.last, targets.types)
    scores_PK = scorer(sides_GH, pairs.heads, pairs.tails, distances(pairs.gaps))
    total = F.cross_entropy(scores_PK, pairs.gold, reduction="sum")
    return RelationLoss(
        total=config.weight * total,
        pairs=torch.tensor(len(pairs.gold), device=gold_P.device),
        correct=(scores_PK.argmax(-1) == pairs.gold).sum(),
    )


Decoding = Literal["flat", "nested", "free"]
NULL = 0
"""The first score of a span is that of NULL; type t has the score t + 1."""


class SpansConfig(HeadConfig, path="spans: ", tag="spans"):
    needs: ClassVar = WordSpans

    labels: tuple[str, ...]
    """The types; a single one is binary identification."""
    longest: Size = 16
    """Words of the longest candidate span (L)."""
    representation: Representation = "boundaries"
    """[z_i; z_j; mean] (mean), start and end through networks of their own (boundaries), or in addition content by one
    learned vector (attention) or by self-attention over the span (self-attention, eq. 11.26).
    """
    hidden: Size = 256
    """Size of the hidden layer that scores spans, and of the networks of their boundaries."""
    widths: bool = True
    """A learned vector for each length of spans, in addition to the chapter's parts (Lee et al. 2017)."""
    pool: WordPool = "first"
    """Which of a word's subwords represent it."""
    dropout: DropoutRate = 0.1
    """Dropout on the vectors of words."""
    mix: bool = False
    """A learned mix of all layers instead of the last (ELMo)."""
    negatives: PositiveShare = 1.0
    """Share of the spans without a type in a training step; 1: all."""
    null_weight: PositiveWeight = 1.0
    """Weight of a span without a type."""
    decoding: Decoding = "nested"
    """Predicted spans may not overlap (flat), may not cross (nested), or may do both (free)."""
    threshold: Share = 0.5
    """Probability of the best type rather than NULL that a span must reach."""
    temperature: Temperature = 1.0
    """Scores are divided by it to give probabilities (fitted on validation examples)."""
    weight: Weight = 1.0
    relations: RelationsConfig | None = None
    """Relations between the spans; None: not predicted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.labels or len(set(self.labels)) < len(self.labels):
            raise UsageError(f"spans need at least one type, each named once, not {list(self.labels)}")
        if self.mix and self.pool == "max":
            raise UsageError("a mix of layers is pooled by first or mean, not max")

    def build(self, model: EncoderConfig, vocabulary: int) -> Spans:
        return Spans(self, model)

    def describe(self) -> str:
        said = f"{len(self.labels):,} types of spans up to {self.longest} words, {self.decoding}"
        if (relations := self.relations) is not None:
            said += f"; {len(relations.labels):,} relations of spans up to {relations.reach} words apart"
        return said


class Spans(WordHead):
    config: SpansConfig

    def __init__(self, config: SpansConfig, model: EncoderConfig) -> None:
        super().__init__(config, model)
        self.scorer = SpanScorer(
            model.hidden,
            hidden=config.hidden,
            outputs=len(config.labels) + 1,
            longest=config.longest,
            representation=config.representation,
            widths=config.widths,
        )
        self.relations: RelationScorer | None = None
        if (relations := config.relations) is not None:
            self.relations = RelationScorer(
                model.hidden, hidden=relations.hidden, types=len(config.labels), outputs=len(relations.labels) + 1
            )

    @property
    def outputs(self) -> int:
        return len(self.config.labels) + 1

    def index(self, batch: TrainingBatch[Tensor]) -> SpanIndex:
        """The spans of a batch."""
        words = require_words(batch)
        return SpanIndex.of(words.counts, longest=self.config.longest, starts_B=words.starts)

    def logits(self, x: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """Scores of NULL and the types for each span, from features: [W, D] (or a stack of layers) → [M, 1 + K]."""
        scores_MK: Tensor = self.scorer(self.trunk(x), self.index(batch))
        return scores_MK

    def size(self, batch: TrainingBatch[Any], *, drawn: bool = True) -> float:
        """Divisor of the sum of losses: spans and pairs, each with its weight and its probability to be sampled.

        Without sampling, as in evaluation, all count.
        """
        targets, words = batch.targets[WordSpans], require_words(batch)
        gold = int((targets.last - targets.first < self.config.longest).sum())
        others = span_count(np.asarray(words.counts), np.asarray(words.starts), self.config.longest) - gold
        size = gold + self.config.null_weight * (self.config.negatives if drawn else 1.0) * others
        if self.config.relations is not None:
            size += weighted_pair_count(self.config.relations, targets.map(torch.as_tensor), drawn=drawn)
        return size

    def forward(self, x: Tensor, batch: TrainingBatch[Tensor], *, accuracy: bool = False) -> Loss:
        """The loss from features of words."""
        index, z_WD = self.index(batch), self.trunk(x)
        targets: WordSpans[Tensor] = batch.targets[WordSpans]
        return self.span_loss(self.scorer(z_WD, index), z_WD, targets, index=index, accuracy=accuracy)

    def span_loss(
        self, scores_MK: Tensor, z_WD: Tensor, targets: WordSpans[Tensor], *, index: SpanIndex, accuracy: bool = False
    ) -> Loss:
        """The loss from the scores of spans, and for relations from the vectors of words."""
        gold_M = self.gold(targets, index)
        if self.training and self.config.negatives < 1:  # sampled like dropout: the loop seeds torch at every step
            drawn_M = torch.rand(index.count, device=gold_M.device) < self.config.negatives
            gold_M = torch.where((gold_M != NULL) | drawn_M, gold_M, IGNORE)
        weights_K = scores_MK.new_ones(scores_MK.shape[1])
        weights_K[NULL] = self.config.null_weight
        total = F.cross_entropy(scores_MK, gold_M, weight=weights_K, reduction="sum", ignore_index=IGNORE)
        count, correct = (gold_M != IGNORE).sum(), (scores_MK.argmax(-1) == gold_M).sum()
        if self.relations is not None and self.config.relations is not None:
            related = relation_loss(self.relations, self.config.relations, z_WD, targets)
            total, count, correct = total + related.total, count + related.pairs, correct + related.correct
        return Loss(total=total, count=count, correct=correct if accuracy else None, weight=self.config.weight)

    def gold(self, targets: WordSpans[Tensor], index: SpanIndex) -> Tensor:
        """[M] NULL or 1 + type. Gold spans longer than L are not among the spans."""
        gold_M = torch.full((index.count + 1,), NULL, device=targets.first.device)  # one more, for those
        gold_M[index.number(targets.first, targets.last)] = targets.types + 1
        return gold_M[:-1]


def span_count(counts_B: Ints, starts_B: Ints, longest: int) -> int:
    """Spans of up to `longest` words that begin at one of the first `starts` of `counts` words.

    >>> span_count(np.array([3, 1]), np.array([3, 1]), 2)
    6
    """
    short_B = np.clip(starts_B - counts_B + longest - 1, 0, starts_B)  # starts with fewer than `longest` words left
    least_B = counts_B - starts_B  # words after the last start
    return int(((starts_B - short_B) * longest + short_B * least_B + short_B * (short_B + 1) // 2).sum())
