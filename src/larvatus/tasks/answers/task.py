"""Answer questions from passages, SQuAD-shaped (Rajpurkar et al. 2016, 2018).

Where training questions without an answer are seen (SQuAD 2), the model learns to say so, and how sure it must be is
fitted on the held-out questions: the threshold that gives them the highest F1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from larvatus.core.errors import DataError
from larvatus.data.labelled.file_options import FileOptions, Paths, QuestionFiles, as_file_options
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Kind, Place, QuestionExample, TextExample
from larvatus.data.labelled.squad import TABLES, read_questions
from larvatus.data.labelled.tables import Columns, ending
from larvatus.data.labelled.texts import TextFormat
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import default_head_settings
from larvatus.models.heads import QuestionAnsweringConfig
from larvatus.models.network import Network
from larvatus.tasks.answers.answer import Decoding, answer_questions, answerer_of, encode_questions
from larvatus.tasks.answers.evaluation import AnswerEvaluation, evaluate_answers
from larvatus.tasks.answers.options import AnswerOptions, answering_head
from larvatus.tasks.answers.passages import LabelledQuestions, label_questions
from larvatus.tasks.answers.validation import QuestionValidation, answer_metric, question_validation
from larvatus.tasks.arguments import Defaults, TaskArguments, with_layer_mix
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.inputs import Input, PredictOptions, TextOrPairInput, readable, text_or_pair
from larvatus.tasks.results import Answer
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.task import CardTerms, Task, TaskData
from larvatus.tasks.validation import Scores


class AnswerTask(Task[QuestionExample, Answer, AnswerOptions]):
    name = "answer"
    title = "Answer questions from passages."
    models = "models that answer"
    Options = AnswerOptions
    Head = QuestionAnsweringConfig
    Reading = QuestionFiles
    Inputs = TextOrPairInput
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

    def read(
        self,
        source: Paths,
        columns: FileOptions = FileOptions(),
        *,
        kind: Kind | None = None,
        problems: Problems | None = None,
    ) -> Dataset[QuestionExample]:
        as_file_options(columns, QuestionFiles)
        return read_questions(source, problems=problems)

    def check_examples(
        self, train: Dataset[QuestionExample], dev: Dataset[QuestionExample] | None, args: TaskArguments
    ) -> tuple[Dataset[QuestionExample], Dataset[QuestionExample] | None]:
        for example in train:
            if not example.known:
                raise DataError(f"{example.place}: its answer is not given, so nothing can be learnt from it; drop it")
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
        return text_or_pair(given, place)

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
        pairs = []
        for example in map(readable, examples):
            if example.pair is None:
                raise DataError(f"{example.place} is one text; the model answers a question from a passage: give both")
            pairs.append((example.text, example.pair))
        return answer_questions(
            bundle,
            pairs,
            scoring=scoring,
            decoding=Decoding(top=options.top),
            length=options.length,
            overlap=options.overlap,
            truncate=options.truncate,
        )

    def evaluate(
        self, bundle: Bundle, data: Dataset[QuestionExample], options: EvaluationOptions = EvaluationOptions()
    ) -> AnswerEvaluation:
        return evaluate_answers(bundle, data, options)


def _holds_questions(name: str, format: TextFormat | None) -> bool:
    """SQuAD's JSON, or rows with a question and its passage; other tables have pairs of columns."""
    return name != "-" and (ending(name) in (".json", *TABLES) if format is None else format in ("jsonl", "parquet"))


def _described(data: LabelledQuestions) -> str:
    sequences, with_answer = int(data.kept.sum()), int(((data.starts != data.asked.nowhere) & data.kept).sum())
    said = f"{len(data):,} questions in {sequences:,} windows, of which {with_answer:,} hold the answer"
    return f"{said}; {data.lost:,} answers are in no window" if data.lost else said
