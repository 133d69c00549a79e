"""Relations between spans: what each ordered pair of the spans of a text is, or nothing (NONE).

    y_ht = softmax(score_ht)        over the relations and NONE, for pairs of spans that are something

An option of the head of spans (`SpansConfig.relations`): one encoder learns both, and the losses are added. While
learning, the pairs are those of the gold spans with their gold types (teacher forcing; Eberts & Ulges 2020): all that
the data do not relate are NONE, and a share of these is drawn where a window has very many. G gold spans, P pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.errors import UsageError
from larvatus.core.ranges import Count, PositiveWeight, Share, Size, SizeOrNone
from larvatus.core.settings import Settings
from larvatus.core.targets import WordSpans
from larvatus.models.nn.relation_scorer import RelationScorer, distances, gaps

NONE = 0
"""The first score of a pair is that of being no relation; relation r has the score r + 1."""


class RelationsConfig(Settings, path="relations: "):
    labels: tuple[str, ...]
    reach: SizeOrNone
    """Words from one span to the other, at most: of spans farther apart none is looked for."""
    hidden: Size = 256
    """Size of the hidden layer that pairs are scored by."""
    negatives: Count = 4096
    """Pairs of a window that are nothing of which a step learns; where there are more, so many are drawn."""
    weight: PositiveWeight = 1.0
    """How much a pair counts in the loss, where a span counts 1."""
    threshold: Share = 0.5
    """How sure of its best relation rather than NONE a pair must be."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.labels or len(set(self.labels)) < len(self.labels):
            raise UsageError(f"relations want one label or more, each named once, not {list(self.labels)}")


class SpanPairs(NamedTuple):
    heads: Tensor  # [P]
    tails: Tensor  # [P]
    gaps: Tensor  # [P]
    gold: Tensor  # [P] NONE or 1 + relation
    share: Tensor  # [P] how likely the pair is drawn


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
    """How many pairs a step learns of, each by its weight and how likely it is drawn; not drawn, all."""
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
    """Of the gold spans' pairs, from the vectors of words."""
    pairs = gold_pairs(config, targets)
    gold_P = pairs.gold
    if scorer.training:  # drawn as dropout is: the loop seeds torch at every step
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
