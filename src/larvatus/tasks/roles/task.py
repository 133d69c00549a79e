"""Label semantic roles (PropBank): who did what to whom, for every predicate of a sentence.

    config = roles_config(train, RolesOptions(decoder="spans"))

A model finds predicates, gives each the roleset of its sense, and the spans of words that are its arguments. Raw text
is split into sentences and words first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from larvatus.core.drawing import Element
from larvatus.core.errors import DataError
from larvatus.core.ranges import DropoutRate, Size, SizeOrNone
from larvatus.core.settings import Settings
from larvatus.data.labelled.file_options import FileOptions, Paths
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Kind, LabelledExample, Row
from larvatus.data.labelled.tables import Columns, open_table
from larvatus.data.labelled.texts import TextFormat
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.pooling import WordPool
from larvatus.models.heads.roles import RoleDecoder, RolesConfig
from larvatus.tasks.arguments import Defaults, TaskArguments, label_balance, report_unknown, with_layer_mix
from larvatus.tasks.encoding.words import check_word_pool
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.inputs import PredictOptions
from larvatus.tasks.results import Coverage
from larvatus.tasks.roles.encode import EncodedFrames, encode_frames
from larvatus.tasks.roles.evaluation import (
    METRICS,
    FrameValidation,
    RolesEvaluation,
    evaluate_frames,
    unknown_roles,
)
from larvatus.tasks.roles.examples import FramedSentence
from larvatus.tasks.roles.labelling import label_frames, roles_head
from larvatus.tasks.roles.lexicon import learned_forms
from larvatus.tasks.roles.picture import draw_frames
from larvatus.tasks.roles.props import read_props
from larvatus.tasks.roles.reader import has_frames, is_table, read_frames, table_sentences
from larvatus.tasks.roles.results import TextFrames
from larvatus.tasks.roles.texts import ReadText
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.task import CardTerms, Task, TaskData
from larvatus.tasks.validation import check_metric

COVERED = 0.998
LONGEST = 48
"""By default the longest span covers this share of the training arguments, with at most `LONGEST` words."""


class RolesOptions(Settings):
    """Options of a head for semantic roles."""

    decoder: RoleDecoder = "crf"
    """How arguments are found: BIO tags by a crf or each by itself (viterbi), or whole spans."""
    one_by_one: bool = False
    """Read a sentence once more for each predicate, which is marked."""
    reach: Size = 128
    """Most words between a predicate and a word of its arguments."""
    longest: Size | None = None
    """Words of the longest argument, for spans; None: by the training set."""
    hidden: Size = 512
    """Size of the vector of a predicate and a word."""
    lstm: SizeOrNone = 0
    """Size of a BiLSTM over the words near a predicate; 0: none."""
    language: str = "en"
    """Language of the rules that split texts into sentences."""

    pool: WordPool | None = None
    """Vector of a word, from its subwords: first, mean or max; default: first."""
    dropout: DropoutRate | None = None
    """Dropout on the vectors of words; default: 0.1."""
    mix: bool | None = None
    """Read a learned mix of all layers; default: with ELMo."""


def roles_config(train: Dataset[FramedSentence], options: RolesOptions) -> RolesConfig:
    """The head for the roles and rolesets of the training set."""
    check_word_pool(options.pool)
    if not train.labels():
        raise DataError(f"{train.source}: no predicate has an argument; give sentences with labelled arguments")
    return RolesConfig(
        labels=train.label_names(),
        rolesets=tuple(sorted({frame.roleset for example in train for frame in example.frames or ()})),
        forms=learned_forms(train),
        decoder=options.decoder,
        one_by_one=options.one_by_one,
        reach=options.reach,
        longest=options.longest or natural_longest(train),
        hidden=options.hidden,
        lstm=options.lstm,
        pool=options.pool or "first",
        dropout=0.1 if options.dropout is None else options.dropout,
        mix=bool(options.mix),
        language=options.language,
    )


def natural_longest(train: Dataset[FramedSentence]) -> int:
    """The shortest length that nearly all arguments have at most."""
    lengths = sorted(a.last - a.first + 1 for e in train for frame in e.frames or () for a in frame.arguments)
    return min(LONGEST, lengths[int(COVERED * (len(lengths) - 1))])


class RolesTask(Task[FramedSentence, TextFrames, RolesOptions]):
    name, models = "roles", "models that label semantic roles"
    title = "Label semantic roles: predicates, their senses and arguments (PropBank)."
    Options, Head = RolesOptions, RolesConfig
    defaults = Defaults(1e-4, 5.0, 4_000)
    card = CardTerms(
        "labels semantic roles",
        "token-classification",
        None,
        '"Ann tried to sell her car yesterday."',
        '"Ann tried to sell her car yesterday."',
    )
    reads_words = True
    as_tuples = (("words", "frames"),)
    line_formats = frozenset({".props"})

    def read_files(
        self, source: Paths, files: FileOptions, kind: Kind | None, problems: Problems | None
    ) -> Dataset[FramedSentence]:
        return read_frames(source, problems)

    def recognises(self, columns: Sequence[str], sample: Sequence[Row]) -> bool:
        return has_frames(columns)

    def prepare(
        self, bundle: Bundle, train: Dataset[FramedSentence], dev: Dataset[FramedSentence] | None, args: TaskArguments
    ) -> TaskData:
        options = with_layer_mix(self.options(args), bundle, instead=self.options(args).pool == "max")
        head = roles_config(train, options)
        args.say(label_balance(train.labels(), "roles", of=train.labels().total()))
        encoded, validation = self._encoded(bundle, train, head, args), None
        if dev:
            report_unknown(
                args, dev.source, unknown_roles(dev.examples, head), ("arguments", "of roles"), "count as missed"
            )
            validation = FrameValidation(
                self._encoded(bundle, dev, head, args),
                bundle.tokenizer,
                args.windows(bundle),
                check_metric(args.metric, METRICS),
            )
        return TaskData(head=head, encoded=encoded, validation=validation, train=train, dev=dev)

    def _encoded(
        self, bundle: Bundle, data: Dataset[FramedSentence], head: RolesConfig, args: TaskArguments
    ) -> EncodedFrames:
        encoded = encode_frames(bundle.tokenizer, data.examples, head, args.windows(bundle))
        for line in encoded.notes():
            args.say(f"{data.source}: {line}")
        return encoded

    def read_plain(
        self, name: str, columns: Columns, format: TextFormat | None, say: Callable[[str], None]
    ) -> Iterator[Any]:
        """Sentences; those of files with frames keep their predicates, which are then given and not searched for."""
        given: Iterator[FramedSentence] | None = None
        if format is None and name != "-":
            if is_table(name) and has_frames((table := open_table(name)).columns):
                given = table_sentences(table, None)
            elif name.endswith((".props", ".conll12", "_gold_conll")):
                given = iter(read_props(name)[0])
        if given is None:
            return super().read_plain(name, columns, format, say)
        say(f"{name}: predicates are given")
        return given

    def predict(
        self, bundle: Bundle, examples: Sequence[Any], options: PredictOptions, scoring: ScoringOptions
    ) -> Sequence[TextFrames]:
        config = roles_head(bundle.network, str(bundle.path)).config
        read = [ReadText.of(example, config.language) for example in examples]
        sentences = [words for text in read for words in text.words]
        labelled = label_frames(
            bundle.network,
            bundle.tokenizer,
            sentences,
            scoring=scoring,
            windows=options.windows(bundle),
            given=[given for text in read for given in (text.given or [()] * len(text.words))],
        )
        tokens, seen, parts = labelled.sequences.tokens, labelled.sequences.read, labelled.sequences.parts
        answers, place = [], 0
        for text in read:
            mine = slice(place, place + len(text.words))
            coverage = Coverage(
                tokens=int(tokens[mine].sum()), read=int(seen[mine].sum()), windows=int(parts[mine].sum())
            )
            answers.append(text.answer(labelled.frames[mine], coverage))
            place = mine.stop
        return answers

    def lines(self, ending: str, example: LabelledExample, prediction: TextFrames, *, number: int = 1) -> Iterable[str]:
        """A prediction in columns of CoNLL-2005, for files that end in .props."""
        return prediction.props().split("\n")

    def draw(self, record: Mapping[str, Any]) -> Element:
        return draw_frames(record)

    def evaluate(self, bundle: Bundle, data: Dataset[FramedSentence], options: EvaluationOptions) -> RolesEvaluation:
        return evaluate_frames(bundle, data, options)
