"""Validation of a tagger during training.

    held = TagValidation(data, config, metric="entity-f1")
    held.scores(model, scoring).main

The metric that decides, where none is asked for: entity-f1, read leniently as `conlleval` does, where tags spell
entities; accuracy of words of other tags.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import edges
from larvatus.core.targets import WordTags
from larvatus.metrics.entities import tag_f1
from larvatus.models.heads import TaggingConfig
from larvatus.models.network import Network
from larvatus.models.nn.compiling import IGNORE
from larvatus.tasks.features import Features
from larvatus.tasks.scoring import ScoringOptions, head_of, score_sequences
from larvatus.tasks.tag.tag import TaggedWords, decode, tagger_of, words_read
from larvatus.tasks.validation import Calibration, Scores, check_metric, fit_calibration, mean_loss


@dataclass(frozen=True, eq=False)
class TagValidation:
    data: TaggedWords
    config: TaggingConfig
    metric: str
    features: Features | None = None
    """Features of these examples, where the encoder is frozen; see `read_once`."""

    def read_once(self, model: Network, scoring: ScoringOptions) -> TagValidation:
        return dataclasses.replace(self, features=Features.build(model, self.data, scoring, learning=False))

    def logits(self, model: Network, scoring: ScoringOptions) -> Floats:
        if self.features is not None:
            return self.features.scores(head_of(model))
        return score_sequences(model, self.data.sequences, scoring)

    def scores(self, model: Network, scoring: ScoringOptions) -> Scores:
        head = tagger_of(model)
        counts, unknown = words_read(self.data.sequences), self.data.unknown
        scores = self.logits(model, scoring)
        gold = np.asarray(unknown.added_to(self.data.tags, known=len(self.config.labels)), np.int64)
        values = tag_metrics(gold, decode(head, scores, counts), counts, self.config, more=unknown.names)
        targets = WordTags(tags=self.data.tags, counts=counts)
        if head.crf is not None:  # a chain of tags with gaps has no likelihood
            scores, targets = _without_gaps(scores, targets)
        return Scores(metric=self.metric, values=values, validation_loss=mean_loss(head, scores, targets))

    def calibration(self, model: Network, scoring: ScoringOptions) -> Calibration:
        """Temperature of the scores of single words; none under a CRF, whose scores are not probabilities."""
        known = self.data.tags != IGNORE
        if self.config.crf or not known.any():
            return Calibration()
        return fit_calibration(self.logits(model, scoring)[known], self.data.tags[known], kind="softmax")


def _without_gaps(scores: Floats, targets: WordTags[Ints]) -> tuple[Floats, WordTags[Ints]]:
    """Scores and tags of the texts all of whose words have a known tag."""
    texts = np.repeat(np.arange(len(targets.counts)), targets.counts)
    whole = np.ones(len(targets.counts), np.bool_)
    whole[texts[targets.tags == IGNORE]] = False
    kept = whole[texts]
    counts = targets.counts[whole]
    return scores[kept], dataclasses.replace(targets, tags=targets.tags[kept], counts=counts)


def tag_metrics(
    gold: Ints, answers: Ints, counts_E: Ints, config: TaggingConfig, *, more: tuple[str, ...] = ()
) -> dict[str, float]:
    """Accuracy of words, and of entities where tags spell any; `more` are gold tags that the model does not know."""
    known = gold != IGNORE
    values = {"accuracy": float((gold == answers)[known].mean()) if known.any() else float("nan")}
    if config.scheme != "none":
        wanted, given = (tags_of(tags, counts_E, config, more=more) for tags in (gold, answers))
        score = tag_f1(wanted, given, config.scheme, reading="lenient")
        values |= {
            "entity-f1": score.micro.f1,
            "precision": score.micro.precision,
            "recall": score.micro.recall,
            "macro-f1": score.macro.f1,
            "entity-f1-strict": tag_f1(wanted, given, config.scheme, reading="strict").micro.f1,
        }
    return values


def tags_of(tags_W: Ints, counts_E: Ints, config: TaggingConfig, *, more: tuple[str, ...] = ()) -> list[list[str]]:
    """The tags of each example by name; `more` are those that are numbered after the model's own."""
    names = np.array((*config.labels, *more))[tags_W].tolist()
    borders = edges(counts_E).tolist()
    return [names[first:last] for first, last in pairwise(borders)]


def tag_metric(config: TaggingConfig, asked: str | None = None) -> str:
    entities = ["entity-f1", "accuracy", "macro-f1", "precision", "recall", "entity-f1-strict"]
    known = ["accuracy"] if config.scheme == "none" else entities
    return known[0] if asked is None else check_metric(asked, known)
