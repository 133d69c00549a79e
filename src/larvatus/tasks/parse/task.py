"""Parse sentences: dependency trees, parts of speech, features and lemmas.

larvatus finetune parse --train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu --out runs/parser
larvatus predict runs/parser "She reads." --conllu
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from larvatus.core.drawing import Element
from larvatus.core.errors import DataError, UsageError
from larvatus.core.ranges import DropoutRate, Size
from larvatus.core.settings import Settings
from larvatus.data.labelled.file_options import FileOptions, Paths
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Kind, LabelledExample, TaggedExample
from larvatus.data.labelled.tables import Columns
from larvatus.data.labelled.tagged import format_of
from larvatus.data.labelled.texts import TextFormat
from larvatus.data.labelled.trees import TreeExample, read_trees, tree_examples
from larvatus.data.text.learned_words import learn_words
from larvatus.data.text.words import is_language
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.parsing import ParsingConfig
from larvatus.models.heads.pooling import WordPool
from larvatus.tasks.arguments import Defaults, TaskArguments, label_balance, report_unknown, with_layer_mix
from larvatus.tasks.encoding.words import check_word_pool
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.inputs import PredictOptions
from larvatus.tasks.parse.encode import SentenceInput, cut_text, encode_sentences, known_values, labelled_trees
from larvatus.tasks.parse.evaluation import TreeEvaluation, TreeValidation, evaluate_trees, word_metrics
from larvatus.tasks.parse.parse import parsed_sentences, parser_of, predict_trees
from larvatus.tasks.parse.picture import draw_trees
from larvatus.tasks.parse.results import Parsed
from larvatus.tasks.results import Coverage
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.task import CardTerms, Task, TaskData
from larvatus.tasks.validation import check_metric

MOST_LABELS = 2_000
"""Sets of features and edit scripts of a head: the most frequent of the training set."""


class ParseOptions(Settings):
    """Options of a parsing head."""

    upos: bool | None = None
    """Predict universal parts of speech; default: if the training set has them."""
    feats: bool | None = None
    """Predict features; default: if the training set has them."""
    lemmas: bool | None = None
    """Predict lemmas; default: if the training set has them."""
    language: str = "en"
    """Language by whose rules raw text is cut into sentences, such as fr."""
    arc_size: Size = 500
    """Size of the vectors that arcs are scored from."""
    relation_size: Size = 100
    """Size of the vectors that relations are scored from."""
    pool: WordPool | None = None
    """Vector of a word, from its subwords: first, mean or max; default: first."""
    dropout: DropoutRate | None = None
    """Dropout on words, dependents and heads; default: 0.33."""
    mix: bool | None = None
    """Read a learned mix of all layers; default: with ELMo."""
    layers: str | None = None
    """Which layers are read: all, last4 or concat4, or one by number (0: embeddings); default: the last."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_language(self.language):
            raise UsageError(f"language {self.language!r:.40} is no language code; use one such as en, de or zh")


def parsing_head(train: Dataset[TreeExample], options: ParseOptions) -> ParsingConfig:
    """The relations and annotations of the training set, and its rules for raw text."""
    check_word_pool(options.pool)
    return ParsingConfig(
        labels=known_values(train.examples, "labels"),
        upos=_annotation(train, "upos", options.upos),
        feats=_annotation(train, "feats", options.feats),
        scripts=_annotation(train, "scripts", options.lemmas),
        rules=learn_words(example.tokens for example in train),
        language=options.language,
        arc_size=options.arc_size,
        relation_size=options.relation_size,
        pool=options.pool or "first",
        dropout=0.33 if options.dropout is None else options.dropout,
        mix=options.layers or bool(options.mix),
    )


def _annotation(train: Dataset[TreeExample], column: str, wanted: bool | None) -> tuple[str, ...]:
    """The labels of a column that is learned, the most frequent of very many; None: if the training set has it."""
    known = () if wanted is False else known_values(train.examples, column, most=MOST_LABELS)
    if wanted and not known:
        name = "lemmas" if column == "scripts" else column
        raise DataError(f"{train.source}: no word has {name}, so they cannot be learned; leave {name} out")
    return known


class ParseTask(Task[TreeExample, Parsed, ParseOptions]):
    name, title, models = "parse", "Parse sentences: dependency trees, parts of speech, lemmas.", "parsers"
    Options, Head = ParseOptions, ParsingConfig
    defaults = Defaults(1e-4, 10.0, 6_000)
    card = CardTerms("parses sentences into dependency trees", "token-classification", None)
    reads_words = True
    line_formats = frozenset({".conllu"})

    def read_files(
        self, source: Paths, files: FileOptions, kind: Kind | None, problems: Problems | None
    ) -> Dataset[TreeExample]:
        return read_trees(source, problems=problems)

    def prepare(
        self, bundle: Bundle, train: Dataset[TreeExample], dev: Dataset[TreeExample] | None, args: TaskArguments
    ) -> TaskData:
        options, windows = self.options(args), args.windows(bundle)
        instead = bool(options.layers or options.pool == "max")
        head = parsing_head(train, with_layer_mix(options, bundle, instead=instead))
        args.say(label_balance(train.labels(), "relations", of=train.labels().total()))
        encoded, validation = labelled_trees(bundle, train.examples, head, windows), None
        if dev is not None:
            data = labelled_trees(bundle, dev.examples, head, windows)
            validation = TreeValidation(data, dev.examples, head, check_metric(args.metric, word_metrics(head)))
            report_unknown(args, dev.source, data.unknown, ("words", "related in ways"))
        return TaskData(head=head, encoded=encoded, validation=validation, train=train, dev=dev)

    def read_plain(
        self, name: str, columns: Columns, format: TextFormat | None, say: Callable[[str], None]
    ) -> Iterator[Any]:
        """Sentences of CoNLL-U keep their lines; other files hold texts, or words already cut."""
        if format == "conllu" or (format is None and name != "-" and format_of(name) == "conllu"):
            return tree_examples(name, labelled=False)
        return super().read_plain(name, columns, format, say)

    def predict(
        self, bundle: Bundle, examples: Sequence[Any], options: PredictOptions, scoring: ScoringOptions
    ) -> Sequence[Parsed]:
        config = parser_of(bundle.network, str(bundle.path)).config
        texts = [sentences_of(example, config) for example in examples]
        every = [sentence for sentences, _ in texts for sentence in sentences]
        encoded = encode_sentences(bundle.tokenizer, every, options.windows(bundle))
        trees = parsed_sentences(predict_trees(bundle.network, encoded, scoring), every, config)
        parts, tokens = encoded.sequences.parts.tolist(), encoded.sequences.tokens.tolist()
        answers, place = [], 0
        for example, (sentences, notes) in zip(examples, texts, strict=True):
            here = slice(place, place + len(sentences))
            place = here.stop
            read = sum(tokens[here])
            coverage = Coverage(tokens=read, read=read, windows=sum(parts[here]))
            parsed = tuple(next(trees) for _ in sentences)
            answers.append(Parsed(text=example.reads(), sentences=parsed, coverage=coverage, notes=notes))
        return answers

    def lines(self, ending: str, example: LabelledExample, prediction: Parsed, *, number: int = 1) -> Iterable[str]:
        return chain.from_iterable([*lines, ""] for lines in prediction.conllu(number))

    def draw(self, record: Mapping[str, Any]) -> Element:
        return draw_trees(record)

    def evaluate(self, bundle: Bundle, data: Dataset[TreeExample], options: EvaluationOptions) -> TreeEvaluation:
        return evaluate_trees(bundle, data, options)


def sentences_of(example: Any, config: ParsingConfig) -> tuple[list[SentenceInput], tuple[str, ...]]:
    """The sentences of an input of `predict`: raw text is cut, words and CoNLL-U are one sentence."""
    if isinstance(example, TreeExample):
        return [SentenceInput.of_tree(example)], ()
    if isinstance(example, TaggedExample):
        return [SentenceInput.of_words(example)], ()
    plain = example.plain_text()
    if plain is None or plain.pair is not None:
        raise DataError(f"{example.place} is a pair, but the model parses one text")
    return cut_text(plain.text, config, example.place)
