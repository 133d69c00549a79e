"""Tag words (chapter §11.4.3): entities, parts of speech."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from larvatus.data.labelled.file_options import FileOptions, Paths, WordFiles, as_file_options
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Kind, Place, TaggedExample, TextExample
from larvatus.data.labelled.tagged import read_tagged
from larvatus.data.text.tag_schemes import Scheme, read_entities
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import default_head_settings
from larvatus.models.heads import TaggingConfig
from larvatus.tasks.arguments import Defaults, TaskArguments, label_balance, report_unknown, with_layer_mix
from larvatus.tasks.encoding.windows import WindowOptions
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.inputs import Input, PredictOptions, text_or_words
from larvatus.tasks.results import Tagged
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.tag.evaluation import TagEvaluation, evaluate_tags
from larvatus.tasks.tag.options import TagOptions, convert_scheme, scheme_of, tagging_head
from larvatus.tasks.tag.tag import encode_words, tag, tagged_words, tagger_of
from larvatus.tasks.tag.validation import TagValidation, tag_metric
from larvatus.tasks.task import CardTerms, Task, TaskData


class TagTask(Task[TaggedExample, Tagged, TagOptions]):
    name = "tag"
    title = "Tag words."
    models = "taggers"
    Options = TagOptions
    Head = TaggingConfig
    Reading = WordFiles
    defaults = Defaults(1e-4, 10.0, 4_000)
    card = CardTerms("tags words", "token-classification", "AutoModelForTokenClassification")
    reads_words = True
    as_tuples = (("tokens", "tags"),)

    def read(
        self,
        source: Paths,
        columns: FileOptions = FileOptions(),
        *,
        kind: Kind | None = None,
        problems: Problems | None = None,
    ) -> Dataset[TaggedExample]:
        files = as_file_options(columns, WordFiles)
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

    def example(self, given: Input, place: Place) -> TextExample | TaggedExample:
        return text_or_words(given, place)

    def predict(
        self, bundle: Bundle, examples: Sequence[Any], options: PredictOptions, scoring: ScoringOptions
    ) -> Sequence[Tagged]:
        windows = WindowOptions.of(bundle, length=options.length, truncate=options.truncate, overlap=options.overlap)
        encoded = encode_words(bundle, examples, tagger_of(bundle.network).config, windows)
        return tag(bundle.network, encoded.texts, encoded.sequences, scoring=scoring)

    def evaluate(
        self, bundle: Bundle, data: Dataset[TaggedExample], options: EvaluationOptions = EvaluationOptions()
    ) -> TagEvaluation:
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
