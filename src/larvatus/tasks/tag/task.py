"""Tag words (chapter §11.4.3): entities, parts of speech.

    validation = TagValidation(data, config, metric="entity-f1")
    validation.scores(model, scoring).main

The default metric is entity-f1, read leniently as `conlleval` does, where tags encode entities; otherwise the accuracy
of words.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import edges
from larvatus.core.pretraining_targets import IGNORE
from larvatus.core.targets import WordTags
from larvatus.data.labelled.file_options import Paths, WordFiles
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Kind, TaggedExample
from larvatus.data.labelled.tagged import read_tagged
from larvatus.data.text.tag_schemes import Scheme, read_entities
from larvatus.metrics.entities import tag_f1
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import default_head_settings
from larvatus.models.heads import TaggingConfig
from larvatus.models.network import Network
from larvatus.tasks.arguments import Defaults, TaskArguments, label_balance, report_unknown, with_layer_mix
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.inputs import PredictOptions
from larvatus.tasks.outcome import ExplainedOutcome, OutcomeChoice
from larvatus.tasks.results import Tagged
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.tag.evaluation import TagEvaluation, evaluate_tags
from larvatus.tasks.tag.explained import tag_outcome
from larvatus.tasks.tag.tag import (
    TaggedWords,
    TagOptions,
    convert_scheme,
    decode,
    encode_words,
    scheme_of,
    tag,
    tagged_words,
    tagger_of,
    tagging_head,
    words_read,
)
from larvatus.tasks.task import CardTerms, Task, TaskData
from larvatus.tasks.validation import Calibration, EncodedValidation, Scores, check_metric, fit_calibration, mean_loss


@dataclass(frozen=True, eq=False)
class TagValidation(EncodedValidation):
    data: TaggedWords
    config: TaggingConfig
    metric: str

    def scores(self, model: Network, scoring: ScoringOptions) -> Scores:
        head = tagger_of(model)
        counts, unknown = words_read(self.data.sequences), self.data.unknown
        scores = self.row_scores(model, scoring)
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
        return fit_calibration(self.row_scores(model, scoring)[known], self.data.tags[known], kind="softmax")


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
    return check_metric(asked, known)


class TagTask(Task[TaggedExample, Tagged, TagOptions]):
    name, title, models = "tag", "Tag words.", "taggers"
    Options, Head, Reading = TagOptions, TaggingConfig, WordFiles
    defaults = Defaults(1e-4, 10.0, 4_000)
    card = CardTerms("tags words", "token-classification", "AutoModelForTokenClassification")
    reads_words = True
    as_tuples = (("tokens", "tags"),)

    def read_files(
        self, source: Paths, files: WordFiles, kind: Kind | None, problems: Problems | None
    ) -> Dataset[TaggedExample]:
        return read_tagged(source, word=files.word, tag=files.tag, problems=problems)

    def prepare(
        self, bundle: Bundle, train: Dataset[TaggedExample], dev: Dataset[TaggedExample] | None, args: TaskArguments
    ) -> TaskData:
        options, written, windows = self.options(args), scheme_of(train), args.windows(bundle)
        scheme: Scheme = options.scheme or ("BIO" if written == "IOB1" else written)
        train = convert_scheme(train, scheme, source=written, repair=options.repair)
        dev = convert_scheme(dev, scheme, source=written, repair=options.repair) if dev else None
        options = with_layer_mix(options, bundle, instead=bool(options.layers or options.pool == "max"))
        head = tagging_head(train, options, scheme=scheme, natural=default_head_settings(bundle, "tagging"))
        args.say(_balance(train, scheme))
        encoded, validation = tagged_words(bundle, train.examples, head, windows), None
        if dev is not None:
            validation = TagValidation(
                tagged_words(bundle, dev.examples, head, windows), head, tag_metric(head, args.metric)
            )
            report_unknown(args, dev.source, validation.data.unknown, ("words", "tagged with tags"))
        return TaskData(head=head, encoded=encoded, validation=validation, train=train, dev=dev)

    def predict(
        self, bundle: Bundle, examples: Sequence[Any], options: PredictOptions, scoring: ScoringOptions
    ) -> Sequence[Tagged]:
        windows = options.windows(bundle)
        encoded = encode_words(bundle, examples, tagger_of(bundle.network).config, windows)
        return tag(bundle.network, encoded.texts, encoded.sequences, scoring=scoring)

    def outcome(self, bundle: Bundle, example: Any, choice: OutcomeChoice) -> ExplainedOutcome:
        return tag_outcome(bundle, example, choice)

    def evaluate(self, bundle: Bundle, data: Dataset[TaggedExample], options: EvaluationOptions) -> TagEvaluation:
        return evaluate_tags(bundle, data, options)

    def tells_classes_apart(self, config: TaggingConfig) -> bool:
        return True


def _balance(train: Dataset[TaggedExample], scheme: Scheme) -> str:
    """How often each tag occurs, or each type of the entities that tags spell."""
    if scheme == "none":
        counts, name = train.labels(), "tags"
    else:
        name = "entities"
        counts = Counter(entity.label for example in train for entity in read_entities(example.tags or (), scheme))
    return label_balance(counts, name, of=counts.total()) or f"{len(train):,} examples, no {name}"
