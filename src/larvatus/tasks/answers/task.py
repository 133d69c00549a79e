"""Answer questions from passages, as in SQuAD (Rajpurkar et al. 2016, 2018).

    config = answering_head(train, AnswerOptions(longest=20), natural={})

If some training questions have no answer (SQuAD 2), the model learns to abstain. The threshold that decides is fitted
on the validation questions, to the highest F1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET

from larvatus.core.errors import DataError
from larvatus.core.ranges import DropoutRate, Size, SizeOrNone
from larvatus.core.settings import Settings
from larvatus.data.labelled.file_options import Paths, QuestionFiles
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Kind, Place, QuestionExample, TextExample
from larvatus.data.labelled.squad import TABLES, read_questions
from larvatus.data.labelled.tables import Columns, ending
from larvatus.data.labelled.texts import TextFormat
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import default_head_settings
from larvatus.models.heads import QuestionAnsweringConfig
from larvatus.models.network import Network
from larvatus.tasks.answers.answer import Decoding, answer_questions, answerer_of, encode_questions, words_at
from larvatus.tasks.answers.evaluation import (
    AnswerEvaluation,
    QuestionValidation,
    answer_metric,
    evaluate_answers,
)
from larvatus.tasks.answers.explained import answer_outcome
from larvatus.tasks.answers.passages import EmptyWindows, LabelledQuestions, label_questions
from larvatus.tasks.arguments import Defaults, TaskArguments, with_layer_mix
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.inputs import Input, PredictOptions, TextOrPairInput, readable, text_or_pair
from larvatus.tasks.outcome import ExplainedOutcome, OutcomeChoice
from larvatus.tasks.results import Answer
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.task import CardTerms, Task, TaskData
from larvatus.tasks.validation import Scores

WHOLE = 0.95
"""Share of training answers of whole words from which on answers are extended to words: of TyDiQA, English has 0.99,
Swahili 0.94, Korean 0.42; XQuAD in English has 1.00."""


class AnswerOptions(Settings):
    """Options of question answering."""

    null: bool | None = None
    """Whether a question may have no answer; None: if training questions have none."""
    longest: Size = 30
    """Tokens of the longest answer."""
    overlap: SizeOrNone | None = None
    """Tokens that windows of a long passage share; None: a quarter of a window."""
    empty: EmptyWindows = EmptyWindows()
    """Training on windows without the answer."""
    whole_words: bool | None = None
    """Whether answers are extended to whole words; None: if nearly all training answers are whole words."""
    decoding: Decoding = Decoding()
    """Decoding of validation questions."""
    dropout: DropoutRate | None = None
    """Dropout before the scores; default: as the model's family has it."""
    mix: bool | None = None
    """Read a learned mix of all layers; default: with ELMo."""
    layers: str | None = None
    """Which layers are read: all, last4 or concat4, or one by number (0: embeddings); default: the last."""
    lstm: SizeOrNone = 0
    """Size of a BiLSTM over the tokens; 0: none."""


def answering_head(
    train: Dataset[QuestionExample], options: AnswerOptions, *, natural: Mapping[str, Any]
) -> QuestionAnsweringConfig:
    """The head that the questions ask for."""
    impossible = sum(example.impossible for example in train)
    if len(train) == impossible:
        raise DataError(f"{train.source}: not one question has an answer, so there is nothing to learn")
    null = options.null if options.null is not None else impossible > 0
    if impossible and not null:
        raise DataError(
            f"{train.source}: {impossible:,} questions have no answer, which a model that always answers cannot learn; "
            "leave null to the data, or drop them"
        )
    settings = dict(natural) if options.dropout is None else {**natural, "dropout": options.dropout}
    whole = marks_whole_words(train) if options.whole_words is None else options.whole_words
    return QuestionAnsweringConfig(
        null=null,
        longest=options.longest,
        whole_words=whole,
        mix=options.layers or bool(options.mix),
        lstm=options.lstm or UNSET,
        **settings,
    )


def marks_whole_words(train: Dataset[QuestionExample]) -> bool:
    """Whether nearly all answers begin and end where words do."""
    cut = total = 0
    for example in train:
        for text, start in example.answers[:1]:
            total += 1
            cut += words_at(example.passage, start, start + len(text)) != (None, None)
    return cut <= (1 - WHOLE) * total


class AnswerTask(Task[QuestionExample, Answer, AnswerOptions]):
    name, title, models = "answer", "Answer questions from passages.", "models that answer"
    Options, Head, Reading, Inputs = AnswerOptions, QuestionAnsweringConfig, QuestionFiles, TextOrPairInput
    defaults = Defaults(1e-4, 1.0, 1_500)
    card = CardTerms(
        "answers questions from passages",
        "question-answering",
        "AutoModelForQuestionAnswering",
        '("A question?", "A passage that answers it.")',
        '"A question?" --pair "A passage that answers it."',
    )
    shows = frozenset({"top"})
    as_tuples = (("question", "context", "answers"),)
    answers_by_id = True

    def read_files(
        self, source: Paths, files: QuestionFiles, kind: Kind | None, problems: Problems | None
    ) -> Dataset[QuestionExample]:
        return read_questions(source, problems=problems)

    def check_examples(
        self, train: Dataset[QuestionExample], dev: Dataset[QuestionExample] | None, args: TaskArguments
    ) -> tuple[Dataset[QuestionExample], Dataset[QuestionExample] | None]:
        for example in train:
            if not example.known:
                raise DataError(f"{example.place}: its answer is not given, so it cannot be trained on; drop it")
        return train, dev

    def prepare(
        self, bundle: Bundle, train: Dataset[QuestionExample], dev: Dataset[QuestionExample] | None, args: TaskArguments
    ) -> TaskData:
        given = self.options(args)
        options = with_layer_mix(given, bundle, instead=bool(given.layers or given.lstm))
        head = answering_head(train, options, natural=default_head_settings(bundle, "answering"))
        if not head.whole_words:
            args.say("answers may begin and end inside words, as those of the training examples do")
        windows = dataclasses.replace(args.windows(bundle), overlap=given.overlap)
        questions = encode_questions(bundle, train.examples, windows)
        encoded = label_questions(questions, train.examples, given.empty, seed=args.seeds[0])
        args.say(_described(encoded))
        validation = None
        if dev:
            metric = answer_metric(head, args.metric)
            validation = question_validation(bundle, dev, windows, given, null=head.null, metric=metric)
        return TaskData(head=head, encoded=encoded, validation=validation, train=train, dev=dev)

    def fit_threshold(self, model: Network, validation: QuestionValidation, args: TaskArguments) -> Scores | None:
        """The threshold of no answer fitted, and the scores that it gives."""
        if not validation.null:
            return None
        answerer_of(model).replaced(threshold=validation.threshold(model, args.scoring))
        return validation.scores(model, args.scoring)

    def example(self, given: Input, place: Place) -> TextExample:
        example = text_or_pair(given, place)
        _question_and_passage(example)
        return example

    def read_plain(
        self, name: str, columns: Columns, format: TextFormat | None, say: Callable[[str], None]
    ) -> Iterator[Any]:
        if columns != Columns() or not _holds_questions(name, format):
            return super().read_plain(name, columns, format, say)
        data = read_questions(name, labelled=False)
        say(data.describe())
        return (TextExample(example.question, example.passage, None, example.place, example.id) for example in data)

    def predict(
        self, bundle: Bundle, examples: Sequence[Any], options: PredictOptions, scoring: ScoringOptions
    ) -> Sequence[Answer]:
        pairs = [_question_and_passage(readable(example)) for example in examples]
        windows, decoding = options.windows(bundle), Decoding(top=options.top)
        return answer_questions(bundle, pairs, scoring=scoring, decoding=decoding, windows=windows)

    def outcome(self, bundle: Bundle, example: Any, choice: OutcomeChoice) -> ExplainedOutcome:
        text = readable(example)
        return answer_outcome(bundle, _question_and_passage(text), choice, text.place)

    def evaluate(self, bundle: Bundle, data: Dataset[QuestionExample], options: EvaluationOptions) -> AnswerEvaluation:
        return evaluate_answers(bundle, data, options)


def question_validation(
    bundle: Bundle,
    dev: Dataset[QuestionExample],
    windows: WindowOptions,
    options: AnswerOptions,
    *,
    null: bool,
    metric: str = "f1",
) -> QuestionValidation:
    """Questions to score a model on."""
    for example in dev:
        if not example.known or (example.impossible and not null):
            said = (
                "its answer is not given" if not example.known else "it has no answer, and the model always gives one"
            )
            raise DataError(f"{example.place}: {said}, so it cannot be scored; drop it")
    asked = encode_questions(bundle, dev.examples, windows)
    return QuestionValidation(asked, dev.examples, null, metric, options.decoding, options.empty)


def _question_and_passage(example: TextExample) -> tuple[str, str]:
    if example.pair is None:
        raise DataError(f"{example.place} is one text; the model answers a question from a passage: give both")
    return example.text, example.pair


def _holds_questions(name: str, format: TextFormat | None) -> bool:
    """SQuAD's JSON, or rows with a question and its passage; other tables have pairs of columns."""
    return name != "-" and (ending(name) in (".json", *TABLES) if format is None else format in ("jsonl", "parquet"))


def _described(data: LabelledQuestions) -> str:
    sequences, with_answer = int(data.kept.sum()), int(((data.starts != data.asked.nowhere) & data.kept).sum())
    said = f"{len(data):,} questions in {sequences:,} windows, of which {with_answer:,} hold the answer"
    return f"{said}; {data.lost:,} answers are in no window" if data.lost else said
