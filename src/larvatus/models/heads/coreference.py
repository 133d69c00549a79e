"""Coreference: which spans of a document refer to the same thing (Lee et al. 2017; Kirstain, Ram & Levy 2021).

Spans are scored as mentions, and the best are given an antecedent or none (`models/nn/coreference_scorer.py`). With
Y(c) the gold antecedents of a span c among those compared, or "none" if there are none, a document has the loss

    L = − Σ_c log Σ_{q ∈ Y(c)} exp f(c, q) / Σ_q exp f(c, q)  −  w Σ_{i,j} log P(mention or not)

and P = σ(m(i, j)). In training, gold mentions are always among those kept. Where clusters of one mention are annotated
(`singletons`), a mention without an antecedent is one if m > 0; otherwise only mentions that are linked are.
n words, D size of a word, L longest mention, G gold mentions, E documents.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.arrays import TargetRecord
from larvatus.core.batch import A, TrainingBatch, edges
from larvatus.core.ranges import DropoutRate, PositiveShare, Size, Temperature, Weight
from larvatus.models.heads.head import HeadConfig, WordHead, to_float32
from larvatus.models.heads.pooling import WordPool
from larvatus.models.nn.coreference_scorer import CoreferenceScorer, ScoredAntecedents, ScoredMentions
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.objectives.linear_cross_entropy import Loss


@dataclass(frozen=True, eq=False)
class CoreferenceTargets(TargetRecord, Generic[A]):
    """E documents, each of one or more sequences: the forms of their words, and their gold mentions."""

    what: ClassVar[str] = "clusters of mentions"
    windows: A  # [E] sequences of each document
    forms: A  # [W, 2] a number for the form of each word, whatever its case, and for its speaker, 0 if unknown
    first: A  # [G] first word of each gold mention, counted from the first of its document
    last: A  # [G] its last word, itself in it
    clusters: A  # [G] its cluster, a number within its document
    words: tuple[int, ...] = ()
    """[E] words of each document, known on the host wherever the arrays are."""
    golds: tuple[int, ...] = ()
    """[E] gold mentions of each."""

    @property
    def count(self) -> int:
        return len(self.words)

    def map(self, function: Callable[[Any], Any]) -> CoreferenceTargets[Any]:
        names = ("windows", "forms", "first", "last", "clusters")
        return dataclasses.replace(self, **{name: function(getattr(self, name)) for name in names})

    def cut(self, *, tokens: tuple[int, int], sequences: tuple[int, int]) -> CoreferenceTargets[A]:
        """Whole documents."""
        first, last = np.searchsorted(edges(self.windows), sequences).tolist()  # type: ignore[arg-type]
        words = slice(sum(self.words[:first]), sum(self.words[:last]))
        golds = slice(sum(self.golds[:first]), sum(self.golds[:last]))
        return CoreferenceTargets(
            windows=self.windows[first:last],  # type: ignore[index]
            forms=self.forms[words],  # type: ignore[index]
            first=self.first[golds],  # type: ignore[index]
            last=self.last[golds],  # type: ignore[index]
            clusters=self.clusters[golds],  # type: ignore[index]
            words=self.words[first:last],
            golds=self.golds[first:last],
        )


class CoreferenceConfig(HeadConfig, path="coreference: ", tag="coreference"):
    needs: ClassVar = CoreferenceTargets
    stores_labels: ClassVar = False
    labels: ClassVar[tuple[str, ...]] = ("mention",)

    longest: Size = 30
    """Words of the longest mention."""
    singletons: bool = False
    """Whether a mention may be the only one of its cluster."""
    hidden: Size = 256
    """Size of the hidden layers that mentions and antecedents are scored by."""
    mentions: PositiveShare = 0.4
    """Mentions that are compared, as a share of the number of words (λ)."""
    antecedents: Size = 50
    """Antecedents that a mention is compared with by the full score (K)."""
    reach: Size = 1_000
    """Mentions before a mention that are compared with it by the coarse score."""
    mention_weight: Weight = 1.0
    """Weight of the loss of mentions, next to that of antecedents."""
    spacing: Literal["written", "apart", "spaced"] = "apart"
    """How text is read, to look like the training data (`tasks/encoding/words.py`)."""
    pool: WordPool = "first"
    """Which of a word's subwords represent it."""
    dropout: DropoutRate = 0.2
    """Dropout on the vectors of words and mentions, and on hidden layers."""
    mix: bool = False
    """A learned mix of all layers instead of the last (ELMo)."""
    temperature: Temperature = 1.0
    weight: Weight = 1.0

    def build(self, model: EncoderConfig, vocabulary: int) -> Coreference:
        return Coreference(self, model)

    def describe(self) -> str:
        alone = "also of one" if self.singletons else "of two or more"
        return f"clusters of mentions, {alone}, up to {self.longest} words long"


class Coreference(WordHead):
    config: CoreferenceConfig

    def __init__(self, config: CoreferenceConfig, model: EncoderConfig) -> None:
        super().__init__(config, model)
        self.scorer = CoreferenceScorer(
            self.width,
            hidden=config.hidden,
            longest=config.longest,
            antecedents=config.antecedents,
            reach=config.reach,
            dropout=config.dropout,
        )

    def logits(self, x: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
        """Scores of all spans of one document as mentions: [n, D] → [n, L]."""
        return to_float32(self.scorer.mention_scores(self.trunk(x)))

    def most_mentions(self, words: int) -> int:
        """How many spans of a document are compared."""
        return math.ceil(self.config.mentions * words)

    def size(self, batch: TrainingBatch[Any]) -> float:
        """Divisor of the sum of losses: gold mentions, and at least one in a document."""
        return float(sum(max(1, golds) for golds in batch.targets[CoreferenceTargets].golds))

    def forward(self, x: Tensor, batch: TrainingBatch[Tensor], *, accuracy: bool = False) -> Loss:
        """The loss from features of words, document by document."""
        targets: CoreferenceTargets[Tensor] = batch.targets[CoreferenceTargets]
        z_WD = to_float32(self.trunk(x))
        total, right, count = z_WD.new_zeros((), dtype=torch.float32), z_WD.new_zeros((), dtype=torch.long), 0
        word = gold = 0
        for words, golds in zip(targets.words, targets.golds, strict=True):
            part = slice(gold, gold + golds)
            spans = torch.stack([targets.first[part], targets.last[part], targets.clusters[part]])
            here = slice(word, word + words)
            with _full_precision(z_WD):
                loss, correct, mentions = self._document(z_WD[here], targets.forms[here], spans)
            total, right, count = total + loss, right + correct, count + mentions
            word, gold = word + words, gold + golds
        return Loss(
            total=total,
            count=torch.full((), max(count, 1), device=total.device),
            correct=right if accuracy else None,
            weight=self.config.weight,
        )

    @torch.inference_mode()
    def document_loss(self, z_nD: Tensor, forms_n2: Tensor, spans_3G: Tensor) -> float:
        """The loss of a document, from trunk vectors of its words; `spans` are first and last words and clusters."""
        with _full_precision(z_nD):
            return float(self._document(z_nD, forms_n2, spans_3G)[0])

    def _document(self, z_nD: Tensor, forms_n2: Tensor, spans_3G: Tensor) -> tuple[Tensor, Tensor, int]:
        """Loss, mentions with a right antecedent or rightly none, and mentions."""
        scores_nL = self.scorer.mention_scores(z_nD)
        first, last, clusters = spans_3G
        size = scores_nL.numel()
        number = torch.where(last - first < self.config.longest, first * self.config.longest + last - first, size)
        gold = torch.full((size + 1,), -1, device=z_nD.device).index_put((number,), clusters)[:-1]
        flat = scores_nL.flatten()
        there = torch.isfinite(flat)
        loss = self.config.mention_weight * F.binary_cross_entropy_with_logits(
            flat.masked_fill(~there, 0.0), (gold >= 0).to(flat.dtype), weight=there.to(flat.dtype), reduction="sum"
        )
        most = max(self.most_mentions(len(z_nD)), len(number))
        kept = self.scorer.select(scores_nL, most=most, always=number)
        clusters_m = gold[kept.first * self.config.longest + kept.last - kept.first]
        right = torch.zeros((), dtype=torch.long, device=z_nD.device)
        h_mH = self.scorer.represent(z_nD, kept)
        for rows, compared in self.scorer.antecedents_of(h_mH, kept, forms_n2):
            link_loss, correct = antecedent_loss(compared, clusters_m, rows)
            loss, right = loss + link_loss, right + correct
        return loss, right, len(kept.first)

    @torch.inference_mode()
    def resolve(self, z_nD: Tensor, forms_n2: Tensor) -> tuple[ScoredMentions, Tensor, Tensor]:
        """The mentions of a document that are kept, the best antecedent of each, and its score; from trunk vectors."""
        with _full_precision(z_nD):
            mentions = self.scorer.select(self.scorer.mention_scores(z_nD), most=self.most_mentions(len(z_nD)))
            h_mH = self.scorer.represent(z_nD, mentions)
            numbers, scores = [mentions.first[:0]], [mentions.scores[:0]]
            for _, compared in self.scorer.antecedents_of(h_mH, mentions, forms_n2):
                best = compared.scores.max(-1)
                numbers.append(compared.numbers.gather(1, best.indices[:, None])[:, 0])
                scores.append(best.values)
        return mentions, torch.cat(numbers), torch.cat(scores)


def _full_precision(z: Tensor) -> torch.autocast:
    """No mixed precision: thousands of spans are ranked by their scores, and bfloat16 has three digits."""
    return torch.autocast(z.device.type, enabled=False)


def antecedent_loss(compared: ScoredAntecedents, clusters_m: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
    """− Σ log of the share of all gold antecedents of each mention, and how many mentions have a right best one."""
    mine = clusters_m[rows, None]
    gold = (clusters_m[compared.numbers] == mine) & (mine >= 0) & torch.isfinite(compared.scores)
    scores = F.pad(compared.scores, (1, 0))  # no antecedent: 0
    gold = torch.cat([~gold.any(1, keepdim=True), gold], 1)
    right = scores.masked_fill(~gold, -math.inf).logsumexp(1)
    best = gold.gather(1, scores.argmax(1)[:, None]).sum()
    return (scores.logsumexp(1) - right).sum(), best
