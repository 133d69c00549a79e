"""Dependency trees (Dozat & Manning 2017): the head of each word and its relation, by biaffine attention.

Optional heads on the same words are trained together with it: universal parts of speech, features, and lemmas by edit
scripts (`tasks/parse/lemmas.py`). Each is one linear layer, and the losses are added:

    L = Σ_w −log p(head_w) − log p(relation_w | gold head) − log p(upos_w) − log p(feats_w) − log p(script_w)

All features of a word, such as ``Number=Sing|Person=3``, are one class. So no impossible combination is predicted, the
official metric (all features right) is what is trained, and one layer is enough; a combination that training lacks is
never predicted (0.1% of the words of EWT's development set).

A sentence longer than a window is read in several. The vector of each word is that of the window in which it sees most,
and arcs are scored over all its words. N tokens, W words, B sequences, E sentences, D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.arrays import Ints, TargetRecord
from larvatus.core.batch import A, TrainingBatch, edges
from larvatus.core.errors import UsageError
from larvatus.core.ranges import DropoutRate, Size, Temperature, Weight
from larvatus.data.text.learned_words import WordRules
from larvatus.models.heads.head import HeadConfig, WordHead, to_float32
from larvatus.models.heads.pooling import WordPool
from larvatus.models.nn.biaffine import ArcScorer, RelationBiaffine
from larvatus.models.nn.compiling import IGNORE
from larvatus.models.nn.device import to_device
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.objectives.linear_cross_entropy import Loss

ANNOTATIONS = ("upos", "feats", "scripts")
"""What words are labelled with besides their relation; each may be empty."""


@dataclass(frozen=True, eq=False)
class WordTrees(TargetRecord, Generic[A]):
    """The tree of each sentence; a sentence is one sequence, or several where it is long."""

    what: ClassVar[str] = "trees of words"
    heads: A  # [W] number of the head within the sentence, from 1; 0: the root
    relations: A  # [W] −100 where the model does not know it
    upos: A  # [W] likewise; −100 for all where the head does not learn them
    feats: A  # [W]
    scripts: A  # [W]
    counts: A  # [B] words of each sequence
    windows: A  # [E] sequences of each sentence
    sizes: tuple[int, ...]
    """[E] words of each sentence, on the host wherever the arrays are."""

    @property
    def count(self) -> int:
        return len(self.heads)  # type: ignore[arg-type]

    @classmethod
    def of(cls, words: Sequence[Ints], counts: Ints, windows: Ints) -> WordTrees[Ints]:
        """From heads, relations, parts of speech, features and scripts of all words."""
        heads, relations, upos, feats, scripts = words
        sizes = sentence_sizes(counts, windows)
        return WordTrees(heads, relations, upos, feats, scripts, counts, windows, sizes)

    def map(self, function: Callable[[Any], Any]) -> WordTrees[Any]:
        names = ("heads", "relations", *ANNOTATIONS, "counts", "windows")
        return WordTrees(**{name: function(getattr(self, name)) for name in names}, sizes=self.sizes)

    def cut(self, *, tokens: tuple[int, int], sequences: tuple[int, int]) -> WordTrees[A]:
        words = slice(*edges(self.counts)[list(sequences)].tolist())  # type: ignore[arg-type]
        first, last = np.searchsorted(edges(self.windows), sequences).tolist()  # type: ignore[arg-type]
        parts = [getattr(self, name)[words] for name in ("heads", "relations", *ANNOTATIONS)]
        cut: WordTrees[Any] = WordTrees.of(parts, self.counts[slice(*sequences)], self.windows[first:last])  # type: ignore[index]
        return cut


def sentence_sizes(counts_B: Ints, windows_E: Ints) -> tuple[int, ...]:
    """Words of each sentence, from those of its windows."""
    return tuple(np.diff(edges(counts_B)[edges(windows_E)]).tolist())


class ParsingConfig(HeadConfig, path="parsing: ", tag="parsing"):
    needs: ClassVar = WordTrees

    labels: tuple[str, ...]
    """The relations."""
    upos: tuple[str, ...] = ()
    """Universal parts of speech; empty: not predicted."""
    feats: tuple[str, ...] = ()
    """Features of words, each combination a class."""
    scripts: tuple[str, ...] = ()
    """Edit scripts from words to lemmas."""
    rules: WordRules = WordRules()
    """How raw text is cut into words."""
    language: str = "en"
    """Language by whose rules raw text is cut into sentences."""
    arc_size: Size = 500
    """Size of the vectors that arcs are scored from."""
    relation_size: Size = 100
    """Size of the vectors that relations are scored from."""
    pool: WordPool = "first"
    """Which of a word's subwords represent it."""
    dropout: DropoutRate = 0.33
    """Dropout on the vectors of words, and on those of dependents and heads."""
    mix: bool | str = False
    """A learned mix of all layers instead of the last, or the layers to read (`models/nn/layer_mix.py`)."""
    temperature: Temperature = 1.0
    """Scores of arcs are divided by it to give probabilities (fitted on validation examples)."""
    weight: Weight = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("labels", *ANNOTATIONS):
            given = getattr(self, name)
            if len(set(given)) < len(given) or (name == "labels" and not given):
                raise UsageError(
                    f"parsing: {name} must be named once each, and relations are needed, not {given!r:.60}"
                )
        if self.mix and self.pool == "max":
            raise UsageError("a mix of layers is pooled by first or mean, not max")

    def build(self, model: EncoderConfig, vocabulary: int) -> Parsing:
        return Parsing(self, model)

    def same_labels(self, other: HeadConfig) -> bool:
        names = ("labels", *ANNOTATIONS)
        return super().same_labels(other) and all(getattr(self, name) == getattr(other, name) for name in names)

    def describe(self) -> str:
        sizes = (
            (len(self.upos), "parts of speech"),
            (len(self.feats), "sets of features"),
            (len(self.scripts), "lemma scripts"),
        )
        return ", ".join([f"{len(self.labels):,} relations", *(f"{size:,} {what}" for size, what in sizes if size)])


class Parsing(WordHead):
    config: ParsingConfig

    def __init__(self, config: ParsingConfig, model: EncoderConfig) -> None:
        super().__init__(config, model)
        self.root = nn.Parameter(torch.zeros(self.width))
        self.arcs = ArcScorer(self.width, hidden=config.arc_size, dropout=config.dropout)
        self.relations = RelationBiaffine(
            self.width, hidden=config.relation_size, outputs=len(config.labels), dropout=config.dropout
        )
        self.annotations = nn.ModuleDict(
            {name: nn.Linear(self.width, len(labels)) for name in ANNOTATIONS if (labels := getattr(config, name))}
        )

    def size(self, batch: TrainingBatch[Any]) -> float:
        """Divisor of the sum of losses: the words."""
        return float(batch.targets[WordTrees].count)

    def forward(self, x: Tensor, batch: TrainingBatch[Tensor], *, accuracy: bool = False) -> Loss:
        """The loss from features of words."""
        return self.tree_loss(self.trunk(x), batch.targets[WordTrees], accuracy=accuracy)

    def tree_loss(self, z_WD: Tensor, targets: WordTrees[Tensor], *, accuracy: bool = False) -> Loss:
        """The loss from vectors of words."""
        total = to_float32(z_WD.new_zeros(()))
        correct = torch.zeros((), dtype=torch.int64, device=z_WD.device)
        before_W = self.words_before(targets.sizes, z_WD.device)
        for _, words, scores in self.arcs(z_WD, self.root, targets.sizes):
            gold = torch.where(words < 0, IGNORE, targets.heads[words])
            total = total + F.cross_entropy(scores.flatten(0, 1), gold.flatten(), reduction="sum", ignore_index=IGNORE)
            correct = correct + (scores.argmax(-1) == gold).sum()
        heads_W = torch.where(targets.heads > 0, before_W + targets.heads - 1, -1)
        parts = [(self.relation_scores(z_WD, heads_W), targets.relations)]
        parts += [(self.annotation_scores(z_WD, name), getattr(targets, name)) for name in self.annotations]
        for scores_WK, gold_W in parts:
            total = total + F.cross_entropy(scores_WK, gold_W, reduction="sum", ignore_index=IGNORE)
        count = torch.full((), targets.count, device=z_WD.device)
        return Loss(total=total, count=count, correct=correct if accuracy else None, weight=self.config.weight)

    @staticmethod
    def words_before(sizes: Sequence[int], device: torch.device) -> Tensor:
        """[W] how many words come before the sentence of each word."""
        lengths = np.asarray(sizes, np.int64)
        return to_device(np.repeat(edges(lengths)[:-1], lengths), device)

    def relation_scores(self, z_WD: Tensor, heads_W: Tensor) -> Tensor:
        """Scores of the relations of each word to its head, a number among all words or −1 for the root: [W, K]."""
        scores_WK: Tensor = self.relations(z_WD, self.root, heads_W)
        return scores_WK

    def annotation_scores(self, z_WD: Tensor, name: str) -> Tensor:
        """Scores of the parts of speech, features or scripts of each word."""
        return to_float32(self.annotations[name](z_WD))
