"""Find spans of words, nested ones too, and relations between them (chapter §11.5.2).

After training, temperature and threshold are fitted to the held-out spans, in this order. Where the training set has
relations between spans, they are learnt by the same model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from larvatus.core.errors import UsageError
from larvatus.core.ranges import digits
from larvatus.data.labelled.file_options import FileOptions, Paths, WordFiles, as_file_options
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Kind, Place, TaggedExample, TextExample
from larvatus.data.labelled.span_records import SpannedWords, binary
from larvatus.data.labelled.tagged import read_spanned
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads import SpansConfig
from larvatus.models.network import Network
from larvatus.tasks.arguments import Defaults, TaskArguments, report_unknown, with_layer_mix
from larvatus.tasks.encoding.windows import WindowOptions
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.inputs import Input, PredictOptions, text_or_words
from larvatus.tasks.results import Spanned
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.spans.evaluation import SpanEvaluation, evaluate_spans
from larvatus.tasks.spans.options import SpansOptions, conflicts, spans_config
from larvatus.tasks.spans.spans import SpannedTexts, encode_words, label_spans, predict_spans, spans_head
from larvatus.tasks.spans.validation import SpanValidation, span_metric
from larvatus.tasks.task import CardTerms, Task, TaskData
from larvatus.tasks.validation import Scores


class SpansTask(Task[SpannedWords, Spanned, SpansOptions]):
    name = "spans"
    title = "Find spans, nested ones too."
    models = "models that find spans"
    Options = SpansOptions
    Head = SpansConfig
    Reading = WordFiles
    defaults = Defaults(1e-4, 5.0, 4_000)
    card = CardTerms("finds spans of words, nested ones too", "token-classification", None)
    reads_words = True
    as_tuples = (("text", "spans"),)

    def read(
        self,
        source: Paths,
        columns: FileOptions = FileOptions(),
        *,
        kind: Kind | None = None,
        problems: Problems | None = None,
    ) -> Dataset[SpannedWords]:
        """Several levels of tags are columns with commas between them: ``--tag 2,3``."""
        files = as_file_options(columns, WordFiles)
        return read_spanned(
            source,
            word=_number(files.word, "--word"),
            tags=None if files.tag is None else [_number(column, "--tag") or 1 for column in files.tag.split(",")],
            problems=problems,
        )

    def check_examples(
        self, train: Dataset[SpannedWords], dev: Dataset[SpannedWords] | None, args: TaskArguments
    ) -> tuple[Dataset[SpannedWords], Dataset[SpannedWords] | None]:
        if not self.options(args).binary:
            return train, dev
        return binary(train), binary(dev) if dev else None

    def prepare(
        self, bundle: Bundle, train: Dataset[SpannedWords], dev: Dataset[SpannedWords] | None, args: TaskArguments
    ) -> TaskData:
        options = with_layer_mix(self.options(args), bundle, instead=self.options(args).pool == "max")
        head = spans_config(train, options)
        for line in conflicts(train, head.decoding):
            args.say(line)
        encoded, validation = encode_spans(bundle, train, head, args), None
        if dev:
            validation = SpanValidation(encode_spans(bundle, dev, head, args), head, span_metric(head, args.metric))
        return TaskData(head=head, encoded=encoded, validation=validation, train=train, dev=dev)

    def fit_threshold(self, model: Network, validation: SpanValidation, args: TaskArguments) -> Scores:
        """The threshold fitted, and the scores that it gives."""
        threshold = validation.threshold(model, args.scoring, precision=self.options(args).least_precision)
        head = spans_head(model).replaced(threshold=threshold.threshold)
        args.say(f"threshold {threshold} on held-out ones")
        if head.config.relations is not None:
            threshold = validation.relation_threshold(model, args.scoring)
            relations = msgspec.structs.replace(head.config.relations, threshold=threshold.threshold)
            head.replaced(relations=relations)
            args.say(f"threshold of relations {threshold} on held-out ones")
        return validation.scores(model, args.scoring)

    def example(self, given: Input, place: Place) -> TextExample | TaggedExample:
        return text_or_words(given, place)

    def predict(
        self, bundle: Bundle, examples: Sequence[Any], options: PredictOptions, scoring: ScoringOptions
    ) -> Sequence[Spanned]:
        config = spans_head(bundle.network).config
        windows = WindowOptions.of(bundle, length=options.length, truncate=options.truncate)
        encoded = encode_words(bundle.tokenizer, examples, config, limit=windows.limit, truncate=windows.truncate)
        return predict_spans(bundle.network, encoded.texts, encoded.encoded, scoring=scoring)

    def evaluate(
        self, bundle: Bundle, data: Dataset[SpannedWords], options: EvaluationOptions = EvaluationOptions()
    ) -> SpanEvaluation:
        return evaluate_spans(bundle, data, options)


def encode_spans(bundle: Bundle, data: Dataset[SpannedWords], config: SpansConfig, args: TaskArguments) -> SpannedTexts:
    """Examples to learn from or to be scored on; what of them cannot be learnt is said."""
    windows = args.windows(bundle)
    texts = label_spans(bundle.tokenizer, data.examples, config, limit=windows.limit, truncate=windows.truncate)
    for line in texts.notes(config.longest):
        args.say(f"{data.source}: {line}")
    report_unknown(args, data.source, texts.unknown, ("spans", "of types"), "count as missed")
    report_unknown(args, data.source, texts.unknown_relations, ("relations", "of kinds"), "count as missed")
    return texts


def _number(column: str | None, flag: str) -> int | None:
    if column is None:
        return None
    if not (number := digits(column.strip())):
        raise UsageError(f"{flag} {column:.60} is no column; spans are read from columns by number, from 1")
    return number
