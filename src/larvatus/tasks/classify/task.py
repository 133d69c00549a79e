"""Classify texts and pairs (chapter §11.4.1 and 11.4.2), or predict a number for them.

    validation = TextValidation(data, config, metric="matthews")
    validation.scores(model, scoring).main

| labels | default metric |
| --- | --- |
| classes | accuracy; macro-f1 where a class has less than half of its even share |
| several labels | micro-f1 |
| a number | spearman |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Floats
from larvatus.core.errors import UsageError
from larvatus.core.pretraining_targets import IGNORE
from larvatus.data.labelled.file_options import Paths, TextFiles
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Kind, TextExample
from larvatus.data.labelled.texts import read_texts
from larvatus.metrics.classification import accuracy_of, average, confusion, f1_by_class, matthews, multi_label
from larvatus.metrics.ranking import pearson, spearman
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import default_head_settings
from larvatus.models.heads import ClassificationConfig
from larvatus.models.heads.pooling import resolve_pool
from larvatus.models.network import Network
from larvatus.tasks.arguments import TaskArguments, label_balance, report_unknown, with_layer_mix
from larvatus.tasks.classify.classify import (
    LabelledTexts,
    Merge,
    classifier_of,
    classify,
    encode_texts,
    labelled_texts,
    merge_windows,
    texts_of,
)
from larvatus.tasks.classify.evaluation import TextEvaluation, evaluate_texts
from larvatus.tasks.classify.explained import class_outcome
from larvatus.tasks.classify.options import (
    BOTH_ORDERS,
    ClassifyOptions,
    Pooling,
    classification_head,
    pooling_of,
    reads_both_orders,
)
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.inputs import PredictOptions, TextOrPairInput, readable
from larvatus.tasks.outcome import ExplainedOutcome, OutcomeChoice
from larvatus.tasks.results import Classified
from larvatus.tasks.scoring import ScoringOptions, head_of
from larvatus.tasks.task import AnOptions, CardTerms, Task, TaskData
from larvatus.tasks.validation import Calibration, EncodedValidation, Scores, check_metric, fit_calibration, mean_loss


@dataclass(frozen=True, eq=False)
class TextValidation(EncodedValidation):
    data: LabelledTexts
    config: ClassificationConfig
    metric: str
    merge: Merge = "mean"

    def logits(self, model: Network, scoring: ScoringOptions) -> Floats:
        return merge_windows(self.row_scores(model, scoring), self.data.sequences.parts, self.merge)

    def scores(self, model: Network, scoring: ScoringOptions) -> Scores:
        windows = self.row_scores(model, scoring)
        return Scores(
            metric=self.metric,
            values=class_metrics(
                self.data.unknown.added_to(self.data.labels, known=len(self.config.labels)),
                merge_windows(windows, self.data.sequences.parts, self.merge),
                self.config,
            ),
            validation_loss=mean_loss(head_of(model), windows, self.data.targets(np.arange(len(self.data)))),
        )

    def calibration(self, model: Network, scoring: ScoringOptions) -> Calibration:
        if self.config.kind == "regression":
            return Calibration()
        if self.config.kind == "multi-label":
            return fit_calibration(self.logits(model, scoring), self.data.labels, kind="sigmoid")
        known = self.data.labels != IGNORE
        return fit_calibration(self.logits(model, scoring)[known], self.data.labels[known], kind="softmax")


def class_metrics(gold: npt.NDArray[np.generic], scores: Floats, config: ClassificationConfig) -> dict[str, float]:
    """All metrics of a kind of classification, from scores [E, K]; gold classes from K on are wrong in any case."""
    if config.kind == "regression":
        numbers, wanted = scores[:, 0].astype(np.float64), np.asarray(gold, np.float64)
        error = float(np.sqrt(np.mean((numbers - wanted) ** 2)))
        return {"spearman": spearman(numbers, wanted), "pearson": pearson(numbers, wanted), "rmse": error}
    if config.kind == "multi-label":
        several = multi_label(gold, np.pad(scores >= 0, ((0, 0), (0, gold.shape[1] - scores.shape[1]))))
        return {
            "micro-f1": several.micro.f1,
            "macro-f1": several.macro.f1,
            "exact-match": several.exact_match,
            "hamming": several.hamming,
        }
    classes = max(len(config.labels), int(np.max(gold, initial=0)) + 1)
    table = confusion(gold, scores.argmax(-1), classes=classes)
    counts = f1_by_class(table)
    values = {"accuracy": accuracy_of(table), "macro-f1": average(counts, "macro").f1, "matthews": matthews(table)}
    if len(config.labels) == 2:
        values["f1"] = counts.of(1).f1  # of the second class, as benchmarks of paraphrases count it
    return values


def text_metric(config: ClassificationConfig, counts: Sequence[int], asked: str | None = None) -> str:
    """The metric that decides; `counts` are the training examples of each class."""
    known = {
        "multi-class": ["accuracy", "macro-f1", "matthews", *(["f1"] if len(config.labels) == 2 else [])],
        "multi-label": ["micro-f1", "macro-f1", "exact-match"],
        "regression": ["spearman", "pearson"],
    }[config.kind]
    if asked is not None:
        return check_metric(asked, known)
    if config.kind == "multi-class" and min(counts) < sum(counts) / len(counts) / 2:
        return "macro-f1"
    return known[0]


class TextTask(Task[TextExample, Classified, AnOptions]):
    """A task that classifies texts or pairs."""

    Reading = TextFiles
    Inputs = TextOrPairInput
    shows = frozenset({"top", "probabilities"})
    as_tuples = (("text", "label"), ("text", "pair", "label"))

    def read_files(
        self, source: Paths, files: TextFiles, kind: Kind | None, problems: Problems | None
    ) -> Dataset[TextExample]:
        return read_texts(
            source,
            files.columns,
            kind=kind or files.labels,
            separator=files.separator,
            options=files.table,
            problems=problems,
        )

    def label_kind(self, config: ClassificationConfig) -> Kind:
        return config.kind

    def tells_classes_apart(self, config: ClassificationConfig) -> bool:
        return self.label_kind(config) == "multi-class"


class ClassifyTask(TextTask[ClassifyOptions]):
    name, title, models = "classify", "Classify texts or pairs.", "classifiers"
    Options, Head = ClassifyOptions, ClassificationConfig
    of_glue = True
    card = CardTerms("classifies texts", "text-classification", "AutoModelForSequenceClassification")

    def prepare(
        self, bundle: Bundle, train: Dataset[TextExample], dev: Dataset[TextExample] | None, args: TaskArguments
    ) -> TaskData:
        head, windows = self.head(bundle, train, args), args.windows(bundle)
        encoded, validation = labelled_texts(bundle, train.examples, head, windows), None
        if dev:
            metric = text_metric(head, [train.labels()[label] for label in head.labels], args.metric)
            data = labelled_texts(bundle, dev.examples, head, windows)
            report_unknown(args, dev.source, data.unknown, ("texts", "labelled with classes"))
            validation = TextValidation(data, head, metric, self.options(args).merge)
        return TaskData(head=head, encoded=encoded, validation=validation, train=train, dev=dev)

    def head(self, bundle: Bundle, train: Dataset[TextExample], args: TaskArguments) -> ClassificationConfig:
        """The head that these examples and options need."""
        options, present = self.options(args), self.head_in(bundle)
        if options.lstm and args.trainable == "head":
            raise UsageError("a BiLSTM over the tokens of a text learns with the encoder, not over frozen vectors")
        options = with_layer_mix(options, bundle, instead=bool(options.layers or options.lstm or options.pool == "max"))
        config, pooling = pooled_head(bundle, train, args, options, present=present)
        both = reads_both_orders(bundle, train, config, present=present, asked=options.both_orders)
        config = msgspec.structs.replace(config, both_orders=both or msgspec.UNSET)
        args.say(label_balance(train.labels(), "classes", of=len(train)) or f"labels: {len(train):,} numbers")
        args.say(pooling.describe())
        if both:
            args.say(BOTH_ORDERS)
        return config

    def is_linear(self, config: ClassificationConfig) -> bool:
        return config.dense == "none" and not config.mix and not config.lstm

    def predict(
        self, bundle: Bundle, examples: Sequence[Any], options: PredictOptions, scoring: ScoringOptions
    ) -> Sequence[Classified]:
        texts = [readable(example) for example in examples]
        windows = options.windows(bundle)
        sequences = encode_texts(bundle, texts, classifier_of(bundle.network).config, windows)
        sequences.check_tokens(texts)
        return classify(bundle.network, texts_of(texts), sequences, scoring=scoring, merge=options.merge)

    def outcome(self, bundle: Bundle, example: Any, choice: OutcomeChoice) -> ExplainedOutcome:
        return class_outcome(bundle, readable(example), choice)

    def evaluate(self, bundle: Bundle, data: Dataset[TextExample], options: EvaluationOptions) -> TextEvaluation:
        return evaluate_texts(bundle, data, options)


def pooled_head(
    bundle: Bundle,
    train: Dataset[TextExample],
    args: TaskArguments,
    options: ClassifyOptions,
    *,
    present: ClassificationConfig | None,
) -> tuple[ClassificationConfig, Pooling]:
    """The head that the texts ask for, and what it reads of a text."""
    natural, template = default_head_settings(bundle, "classification"), bundle.tokenizer.template
    config = classification_head(train, options, natural=natural)
    config = msgspec.structs.replace(config, pool=resolve_pool(template, config.pool))
    asked = None if options.pool is None else config.pool
    pooling = pooling_of(
        bundle,
        labels=config.labels,
        trained=args.trainable,
        family=resolve_pool(template, natural.get("pool", "cls")),
        head=present,
        asked=asked,
    )
    if pooling.pool == config.pool or options.dense is not None:
        return msgspec.structs.replace(config, pool=pooling.pool), pooling
    # the family's layer before the classes was made for what the family pools
    return msgspec.structs.replace(config, pool=pooling.pool, dense="none", dense_norm=False), pooling
