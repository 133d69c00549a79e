"""Resolve coreference: which words of a document refer to the same thing (Jurafsky & Martin, chapter 23).

    config = coref_config(train, CorefOptions(antecedents=80))

Whether clusters of one mention are predicted, and how long a mention may be, follow from the training documents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from larvatus.core.drawing import Element
from larvatus.core.errors import DataError
from larvatus.core.ranges import DropoutRate, PositiveShare, Size, Weight
from larvatus.core.settings import Settings
from larvatus.data.labelled.file_options import FileOptions, Paths
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Kind, LabelledExample, Place, TextExample, source_name
from larvatus.data.labelled.tables import Columns
from larvatus.data.labelled.tagged import format_of
from larvatus.data.labelled.texts import TextFormat
from larvatus.data.text.streams import numbered_lines
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.coreference import CoreferenceConfig
from larvatus.models.heads.pooling import WordPool
from larvatus.tasks.arguments import Defaults, TaskArguments, with_layer_mix
from larvatus.tasks.coref.decoding import coref_head, predict_documents
from larvatus.tasks.coref.encode import encode_documents, segments
from larvatus.tasks.coref.evaluation import (
    METRIC_NAMES,
    CorefEvaluation,
    CorefValidation,
    GapEvaluation,
    evaluate_coref,
)
from larvatus.tasks.coref.examples import CorefExample
from larvatus.tasks.coref.gap import GapExample
from larvatus.tasks.coref.lines import FORMATS, as_example
from larvatus.tasks.coref.picture import draw_clusters
from larvatus.tasks.coref.reader import read_documents
from larvatus.tasks.coref.results import ResolvedDocument
from larvatus.tasks.encoding.words import check_word_pool
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.inputs import PredictOptions
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.task import CardTerms, Task, TaskData
from larvatus.tasks.validation import check_metric

COVERED = 0.995
LONGEST = 40
"""By default the longest mention covers this share of the training mentions, with at most `LONGEST` words."""


class CorefOptions(Settings):
    """Options of a coreference head."""

    longest: Size | None = None
    """Words of the longest mention; default: by the training set."""
    singletons: bool | None = None
    """Whether a mention may be the only one of its cluster; default: if the training set has such clusters."""
    hidden: Size = 256
    """Size of the hidden layers that mentions and antecedents are scored by."""
    mentions: PositiveShare = 0.4
    """Mentions that are compared, as a share of the number of words."""
    antecedents: Size = 50
    """Antecedents that a mention is compared with by the full score."""
    mentions_back: Size = 1_000
    """How many mentions back antecedents are looked for."""
    mention_weight: Weight = 1.0
    """Weight of the loss of mentions, next to that of antecedents."""
    segment: Size = 4_096
    """Words that a longer training document is cut into parts of; all parts are trained on in every epoch."""

    pool: WordPool | None = None
    """Vector of a word, from its subwords: first, mean or max; default: first."""
    dropout: DropoutRate | None = None
    """Dropout on the vectors of words and mentions; default: 0.2."""
    mix: bool | None = None
    """Read a learned mix of all layers; default: with ELMo."""


def coref_config(train: Dataset[CorefExample], options: CorefOptions) -> CoreferenceConfig:
    """The head for the mentions of the training set, with the chosen options."""
    check_word_pool(options.pool)
    clusters = Counter(len(cluster) for example in train for cluster in example.clusters or ())
    if not clusters:
        raise DataError(f"{train.source}: no mention is marked; give documents with clusters to learn from")
    return CoreferenceConfig(
        longest=natural_longest(train) if options.longest is None else options.longest,
        singletons=has_singletons(clusters) if options.singletons is None else options.singletons,
        hidden=options.hidden,
        mentions=options.mentions,
        antecedents=options.antecedents,
        reach=options.mentions_back,
        mention_weight=options.mention_weight,
        spacing="apart" if any(example.text is not None for example in train) else "spaced",
        pool=options.pool or "first",
        dropout=0.2 if options.dropout is None else options.dropout,
        mix=bool(options.mix),
    )


def has_singletons(clusters: Counter[int]) -> bool:
    """Whether clusters of one mention are annotated: a few may be left from annotation, as in OntoGUM."""
    return clusters[1] > 0.05 * clusters.total()


def natural_longest(train: Dataset[CorefExample]) -> int:
    """The shortest length that covers nearly all mentions."""
    lengths = sorted(end - first for example in train for first, end in example.mentions)
    return min(LONGEST, lengths[min(len(lengths) - 1, int(COVERED * len(lengths)))])


class CorefTask(Task[CorefExample, ResolvedDocument, CorefOptions]):
    name, title, models = "coref", "Resolve coreference.", "models that resolve coreference"
    Options, Head, Reading = CorefOptions, CoreferenceConfig, FileOptions
    defaults = Defaults(1e-4, 5.0, 4_000)
    card = CardTerms("resolves coreference", "token-classification", None)
    reads_words = True
    as_tuples = (("text", "clusters"),)
    line_formats: ClassVar[frozenset[str]] = frozenset(FORMATS)

    def read_files(
        self, source: Paths, files: FileOptions, kind: Kind | None, problems: Problems | None
    ) -> Dataset[CorefExample]:
        return read_documents(source, problems=problems)

    def check_examples(
        self, train: Dataset[CorefExample], dev: Dataset[CorefExample] | None, args: TaskArguments
    ) -> tuple[Dataset[CorefExample], Dataset[CorefExample] | None]:
        for part in (train, dev):
            first: Any = None if part is None else part.examples[0]
            if part is not None and isinstance(first, GapExample):
                raise DataError(
                    f"{part.source}: GAP marks two names for a pronoun; use it with larvatus evaluate --data"
                )
        return train, dev

    def prepare(
        self, bundle: Bundle, train: Dataset[CorefExample], dev: Dataset[CorefExample] | None, args: TaskArguments
    ) -> TaskData:
        options = self.options(args)
        options = with_layer_mix(options, bundle, instead=options.pool == "max")
        head, windows = coref_config(train, options), args.windows(bundle)
        parts = list(segments(train.examples, options.segment, singletons=head.singletons))
        for line in _notes(train, parts, head):
            args.say(line)
        encoded, validation = encode_documents(bundle.tokenizer, parts, head, windows), None
        if dev is not None:
            documents = encode_documents(bundle.tokenizer, dev.examples, head, windows)
            metric = check_metric(args.metric, list(METRIC_NAMES))
            validation = CorefValidation(documents, dev.examples, metric)
        return TaskData(head=head, encoded=encoded, validation=validation, train=train, dev=dev)

    def read_plain(
        self, name: str, columns: Columns, format: TextFormat | None, say: Callable[[str], None]
    ) -> Iterator[Any]:
        """Documents without clusters; a file of plain text is one document."""
        kind = format or ("text" if name == "-" else format_of(name)) or "text"
        if kind in ("conll", "conllu", "jsonl"):
            data = read_documents(name, labelled=False, format=kind)
            say(data.describe())
            yield from data
        elif kind == "text":
            text = "\n".join(line for _, line in numbered_lines(name))
            if not text.strip():
                raise DataError(f"{source_name(name)} has no text; give a document")
            yield TextExample(text, None, None, Place(source_name(name), 1))
        else:
            yield from super().read_plain(name, columns, format, say)

    def predict(
        self, bundle: Bundle, examples: Sequence[Any], options: PredictOptions, scoring: ScoringOptions
    ) -> Sequence[ResolvedDocument]:
        config = coref_head(bundle.network).config
        documents = encode_documents(bundle.tokenizer, examples, config, options.windows(bundle))
        return predict_documents(bundle.network, documents, scoring)

    def lines(
        self, ending: str, example: LabelledExample, prediction: ResolvedDocument, *, number: int = 1
    ) -> Iterable[str]:
        return FORMATS[ending](as_example(example, prediction))

    def draw(self, record: Mapping[str, Any]) -> Element:
        return draw_clusters(record)

    def evaluate(
        self, bundle: Bundle, data: Dataset[CorefExample], options: EvaluationOptions
    ) -> CorefEvaluation | GapEvaluation:
        return evaluate_coref(bundle, data, options)


def _notes(train: Dataset[CorefExample], parts: Sequence[CorefExample], head: CoreferenceConfig) -> Iterator[str]:
    """What is learned of the training documents."""
    mentions = [mention for example in train for mention in example.mentions]
    clusters = sum(len(example.clusters or ()) for example in train)
    alone = "also of one mention" if head.singletons else "of two mentions or more"
    yield f"{len(mentions):,} mentions in {clusters:,} clusters; clusters {alone} are learned"
    if long := sum(end - first > head.longest for first, end in mentions):
        yield f"{long:,} mentions are longer than {head.longest} words, so they are never found; --set longest=N"
    if len(parts) > len(train):
        yield f"{len(train):,} documents are trained on in {len(parts):,} parts (--set segment=N)"
