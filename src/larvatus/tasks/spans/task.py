"""Find spans of words, nested ones too, and relations between them (chapter §11.5.2).

    config = spans_config(train, SpansOptions(longest=8))

After training, the temperature and then the threshold are fitted to the validation spans. Where the training set has
relations between spans, the same model learns them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from larvatus.core.errors import DataError, UsageError
from larvatus.core.ranges import DropoutRate, PositiveShare, PositiveWeight, Size, SizeOrNone, digits
from larvatus.core.settings import Settings
from larvatus.data.labelled.file_options import Paths, WordFiles
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Kind
from larvatus.data.labelled.span_records import SpannedWords, binary
from larvatus.data.labelled.tagged import read_spanned
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads import SpansConfig
from larvatus.models.heads.pooling import WordPool
from larvatus.models.heads.spans import Decoding, RelationsConfig
from larvatus.models.network import Network
from larvatus.models.nn.span_scorer import Representation
from larvatus.tasks.arguments import Defaults, TaskArguments, report_unknown, with_layer_mix
from larvatus.tasks.encoding.words import check_word_pool
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.inputs import PredictOptions
from larvatus.tasks.results import Spanned
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.spans.evaluation import SpanEvaluation, SpanValidation, evaluate_spans, span_metric
from larvatus.tasks.spans.spans import SpannedTexts, encode_words, label_spans, predict_spans, spans_head
from larvatus.tasks.task import CardTerms, Task, TaskData
from larvatus.tasks.validation import Scores

COVERED = 0.995
LONGEST = 32
"""By default the longest span covers this share of the training spans, with at most `LONGEST` words."""


class SpansOptions(Settings):
    """Options of a span head."""

    longest: Size | None = None
    """Words of the longest span; None: by the training set."""
    representation: Representation = "boundaries"
    """What a span is scored from: mean, boundaries, attention or self-attention."""
    hidden: Size = 256
    """Size of the hidden layer that spans are scored by."""
    widths: bool = True
    """A learned vector for each length of spans."""
    negatives: PositiveShare = 1.0
    """Share of the spans without a type that a step trains on; 1: all."""
    null_weight: PositiveWeight = 1.0
    """How much a span that is nothing counts."""
    decoding: Decoding | None = None
    """None: nested, or flat where no training spans overlap."""
    least_precision: PositiveShare | None = None
    """Precision that the threshold must reach on validation spans; None: the threshold with the best F1."""
    binary: bool = False
    """Read all types as one: a span is an entity, or not."""
    relations: bool | None = None
    """Whether relations between spans are trained too; None: if the training set has some."""
    relation_weight: PositiveWeight = 1.0
    """How much a pair of spans counts in the loss, where a span counts 1."""
    reach: SizeOrNone | None = None
    """Words from one span of a relation to the other, at most; None: by the training set."""

    pool: WordPool | None = None
    """Vector of a word, from its subwords: first, mean or max; default: first."""
    dropout: DropoutRate | None = None
    """Dropout on the vectors of words; default: 0.1."""
    mix: bool | None = None
    """Read a learned mix of all layers; default: with ELMo."""


def spans_config(train: Dataset[SpannedWords], options: SpansOptions) -> SpansConfig:
    """The head for the types of the training set, with the chosen options."""
    check_word_pool(options.pool)
    if not train.labels():
        raise DataError(f"{train.source}: no span is labelled; give texts with spans to learn from")
    return SpansConfig(
        labels=train.label_names(),
        longest=natural_longest(train) if options.longest is None else options.longest,
        representation=options.representation,
        hidden=options.hidden,
        widths=options.widths,
        pool=options.pool or "first",
        dropout=0.1 if options.dropout is None else options.dropout,
        mix=bool(options.mix),
        negatives=options.negatives,
        null_weight=options.null_weight,
        decoding=options.decoding or natural_decoding(train),
        relations=relations_config(train, options),
    )


def relations_config(train: Dataset[SpannedWords], options: SpansOptions) -> RelationsConfig | None:
    """The relations of the training set, if they are trained on."""
    labels = train.relation_names()
    if options.relations and not labels:
        raise DataError(f"{train.source}: no spans are related; give texts with relations, or leave them out")
    if options.relations is False or not labels:
        return None
    reach = natural_reach(train) if options.reach is None else options.reach
    return RelationsConfig(labels=labels, reach=reach, hidden=options.hidden, weight=options.relation_weight)


def natural_reach(train: Dataset[SpannedWords]) -> int:
    """As far as the spans of any relation lie apart: words from the end of one to the beginning of the other."""
    reach = 0
    for example in train:
        for head, tail, _ in example.relations:
            a, b = (example.spans or ())[head], (example.spans or ())[tail]
            reach = max(reach, b.start - a.end + 1, a.start - b.end + 1)
    return reach


def natural_longest(train: Dataset[SpannedWords]) -> int:
    """The shortest L that covers nearly all spans."""
    lengths = Counter(end - start for example in train for start, end, _ in example.spans or ())
    covered, wanted = 0, COVERED * lengths.total()
    for length in sorted(lengths):
        covered += lengths[length]
        if covered >= wanted or length >= LONGEST:
            return min(length, LONGEST)
    return 1


def natural_decoding(train: Dataset[SpannedWords]) -> Decoding:
    return "nested" if any(_pairs(example, "flat") for example in train) else "flat"


def conflicts(train: Dataset[SpannedWords], decoding: Decoding) -> list[str]:
    """Gold spans that the decoding cannot give together, in a line with the first of them."""
    pairs = [(each, pair) for each in train for pair in _pairs(each, decoding)]
    if not pairs:
        return []
    example, (a, b) = pairs[0]
    words = " and ".join(repr(" ".join(example.words[start:end])) for start, end, _ in (a, b))
    what, way = ("overlap", "nested") if decoding == "flat" else ("cross", "free")
    said = f"{example.place}: {words} {what}, and {decoding} decoding keeps one of two ({len(pairs):,} pairs in all)"
    return [f"{said}; --set decoding={way} keeps both"]


def _pairs(example: SpannedWords, decoding: Decoding) -> list[tuple[tuple[int, int, str], tuple[int, int, str]]]:
    """Pairs of spans that exclude each other; the same words under two types do not."""
    if decoding == "free":
        return []
    order = sorted({(start, end, "") for start, end, _ in example.spans or ()}, key=lambda span: (span[0], -span[1]))
    pairs = []
    for number, a in enumerate(order):
        for b in order[number + 1 :]:  # begins later, or is shorter
            if b[0] >= a[1]:
                break
            if decoding == "flat" or (a[0] < b[0] and a[1] < b[1]):
                pairs.append((a, b))
    return pairs


class SpansTask(Task[SpannedWords, Spanned, SpansOptions]):
    name, title, models = "spans", "Find spans, nested ones too.", "models that find spans"
    Options, Head, Reading = SpansOptions, SpansConfig, WordFiles
    defaults = Defaults(1e-4, 5.0, 4_000)
    card = CardTerms("finds spans of words, nested ones too", "token-classification", None)
    reads_words = True
    joint_weight = 4.0  # a mean over all spans, most of which are nothing: its gradient is small
    as_tuples = (("text", "spans"),)

    def read_files(
        self, source: Paths, files: WordFiles, kind: Kind | None, problems: Problems | None
    ) -> Dataset[SpannedWords]:
        """Several levels of tags are columns with commas between them: ``--tag 2,3``."""
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

    def predict(
        self, bundle: Bundle, examples: Sequence[Any], options: PredictOptions, scoring: ScoringOptions
    ) -> Sequence[Spanned]:
        config = spans_head(bundle.network).config
        windows = options.windows(bundle)
        encoded = encode_words(bundle.tokenizer, examples, config, limit=windows.limit, truncate=windows.truncate)
        return predict_spans(bundle.network, encoded.texts, encoded.encoded, scoring=scoring)

    def evaluate(self, bundle: Bundle, data: Dataset[SpannedWords], options: EvaluationOptions) -> SpanEvaluation:
        return evaluate_spans(bundle, data, options)


def encode_spans(bundle: Bundle, data: Dataset[SpannedWords], config: SpansConfig, args: TaskArguments) -> SpannedTexts:
    """Encoded examples for training or validation; logs what cannot be learned."""
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
