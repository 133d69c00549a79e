"""Classify texts and pairs (chapter §11.4.1 and 11.4.2), or give them a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.file_options import FileOptions, Paths, TextFiles, as_file_options
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Kind, Place, TextExample
from larvatus.data.labelled.texts import read_texts
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import default_head_settings
from larvatus.models.heads import ClassificationConfig
from larvatus.models.heads.pooling import resolve_pool
from larvatus.tasks.arguments import Defaults, TaskArguments, label_balance, report_unknown, with_layer_mix
from larvatus.tasks.classify.classify import (
    classifier_of,
    classify,
    encode_texts,
    labelled_texts,
    texts_of,
)
from larvatus.tasks.classify.evaluation import TextEvaluation, evaluate_texts
from larvatus.tasks.classify.options import ClassifyOptions, classification_head
from larvatus.tasks.classify.orders import SAID, reads_both_orders
from larvatus.tasks.classify.pooling import Pooling, pooling_of
from larvatus.tasks.classify.validation import TextValidation, text_metric
from larvatus.tasks.encoding.windows import WindowOptions
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.inputs import Input, PredictOptions, TextOrPairInput, readable, text_or_pair
from larvatus.tasks.results import Classified
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.task import CardTerms, Task, TaskData


class ClassifyTask(Task[TextExample, Classified, ClassifyOptions]):
    name = "classify"
    title = "Classify texts or pairs."
    models = "classifiers"
    Options = ClassifyOptions
    Head = ClassificationConfig
    Reading = TextFiles
    Inputs = TextOrPairInput
    of_glue = True
    defaults = Defaults(5e-5, 1.0, 1_500)
    card = CardTerms("classifies texts", "text-classification", "AutoModelForSequenceClassification")
    shows = frozenset({"top", "probabilities"})
    as_tuples = (("text", "label"), ("text", "pair", "label"))

    def read(
        self,
        source: Paths,
        columns: FileOptions = FileOptions(),
        *,
        kind: Kind | None = None,
        problems: Problems | None = None,
    ) -> Dataset[TextExample]:
        files = as_file_options(columns, TextFiles)
        return read_texts(
            source,
            files.columns,
            kind=kind or files.labels,
            separator=files.separator,
            options=files.table,
            problems=problems,
        )

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
            args.say(SAID)
        return config

    def is_linear(self, config: ClassificationConfig) -> bool:
        return config.dense == "none" and not config.mix and not config.lstm

    def example(self, given: Input, place: Place) -> TextExample:
        return text_or_pair(given, place)

    def predict(
        self, bundle: Bundle, examples: Sequence[Any], options: PredictOptions, scoring: ScoringOptions
    ) -> Sequence[Classified]:
        texts = [readable(example) for example in examples]
        windows = WindowOptions.of(bundle, length=options.length, truncate=options.truncate, overlap=options.overlap)
        sequences = encode_texts(bundle, texts, classifier_of(bundle.network).config, windows)
        nothing = np.flatnonzero(sequences.tokens == 0)
        if len(nothing):
            place = texts[nothing[0]].place
            raise DataError(f"{place} has no tokens: the vocabulary deletes all its characters; leave it out")
        return classify(bundle.network, texts_of(texts), sequences, scoring=scoring, merge=options.merge)

    def evaluate(
        self, bundle: Bundle, data: Dataset[TextExample], options: EvaluationOptions = EvaluationOptions()
    ) -> TextEvaluation:
        return evaluate_texts(bundle, data, options)

    def label_kind(self, config: ClassificationConfig) -> Kind | None:
        return config.kind

    def tells_classes_apart(self, config: ClassificationConfig) -> bool:
        return config.kind == "multi-class"


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
