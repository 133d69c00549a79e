"""Fine-tuned heads: an operation for each task of the registry, with the inputs and outputs of that task.

{"texts": ["good", ["a premise", "a hypothesis"]]}                     → /v1/classify
{"texts": ["Mt. Sanitas is high.", ["words", "already", "split"]]}       → /v1/tag, /v1/spans
{"questions": [{"question": "Who?", "passage": "Ann did."}]}           → /v1/answer
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta, Struct

from larvatus.core.settings import Settings, SettingsMeta
from larvatus.data.labelled.records import Place
from larvatus.inference.model import Model
from larvatus.interfaces.serve.operations.operation import Body, Item, Operation, RequestCost, ServedModel, windowed
from larvatus.models.heads.head import HeadConfig
from larvatus.tasks.classify.classify import Merge
from larvatus.tasks.inputs import PredictOptions
from larvatus.tasks.multitask.results import TaskPredictions
from larvatus.tasks.predict import TaskPredictor
from larvatus.tasks.registry import TASKS, AnyTask, tasks_of
from larvatus.tasks.results import Prediction


class ReadBody(Body):
    """Options for long texts."""

    truncate: bool = False
    """Read only the first window of a long text; false reads all of it, in windows."""
    overlap: Annotated[int, Meta(ge=0, le=2**24)] | None = None
    """Tokens that windows share; by default a quarter of a window."""


class PredictBody(ReadBody):
    """Texts, or pairs of texts."""

    texts: str | tuple[str | tuple[str, str], ...]
    """One text, or a list of texts; a text in a list can be a pair."""
    merge: Merge = "mean"
    """How the scores of the windows of a long text are combined: mean or max."""


class WordsBody(ReadBody):
    """Texts, or lists of words."""

    texts: str | tuple[str | tuple[str, ...], ...]
    """One text, or a list of texts; a text in a list can be a list of words."""


class Question(Settings):
    question: str
    passage: str


class QuestionsBody(ReadBody):
    """Questions, each with the passage that contains the answer."""

    questions: tuple[Question, ...]
    """Questions, each with its passage."""
    top: Annotated[int, Meta(ge=1)] = 1
    """Answers to each question, most likely first."""


class Endings(Settings):
    context: str
    endings: tuple[str, ...]


class EndingsBody(ReadBody):
    """Contexts, each with its candidate endings."""

    questions: tuple[Endings, ...]
    """Contexts, each with the endings to choose from."""


class _Posted(Place):
    def __str__(self) -> str:
        return "the text"


HERE = _Posted("the text", 1)
BODIES: Mapping[str, type[ReadBody]] = {"answer": QuestionsBody, "choose": EndingsBody}
"""Bodies of tasks that read more than texts, pairs or words."""
EXAMPLES: Mapping[type[ReadBody], Mapping[str, Any]] = {
    PredictBody: {
        "a text": {"texts": "A film to see twice."},
        "a pair": {"texts": [["A man sleeps.", "Nobody is awake."]]},
    },
    WordsBody: {"a text": {"texts": "Mt. Sanitas is in Sunshine Canyon."}, "words": {"texts": [["Ann", "ran", "."]]}},
    QuestionsBody: {
        "a question": {"questions": [{"question": "Where is the hill?", "passage": "The hill is in the town."}]}
    },
    EndingsBody: {"endings": {"questions": [{"context": "She fell.", "endings": ["She got up.", "It is blue."]}]}},
}


class PredictOperation(Operation[Any]):
    """Predictions of a task's head."""

    def __init__(self, task: AnyTask) -> None:
        self.task = task
        body = BODIES.get(task.name, WordsBody if task.reads_words else PredictBody)
        kind = SettingsMeta(f"{task.name.capitalize()}Body", (body,), {"__doc__": body.__doc__, "__module__": __name__})
        of_task: dict[str, Any] = self.__dict__  # what other operations define as class attributes
        of_task.update(name=task.name, title=task.title, Body=kind, examples=EXAMPLES[body])
        of_task["texts_field"] = "texts" if hasattr(body, "texts") else "questions"

    def lacks(self, model: Model) -> str | None:
        if self.task.name in tasks_of(model.bundle):
            return None
        return f"it is not fine-tuned for this task; fine-tune a model with larvatus finetune {self.task.name}"

    def estimate(self, model: Model, item: Item, options: Any, lengths: Sequence[int]) -> RequestCost:
        """A question is read with each window of its passage, a context with each ending, a pair in shared windows."""
        reach = model.encoder.reach
        if isinstance(item, Endings):
            context, *endings = lengths
            pairs = [(context, ending) for ending in endings]
        elif isinstance(item, Question) or (isinstance(item, tuple) and not self.task.reads_words):
            pairs = [(lengths[0], sum(lengths[1:]))]
        else:
            pairs = [(0, sum(lengths))]
        written = sum(config.writes for config in model.bundle.objectives if isinstance(config, HeadConfig))
        if options.truncate:
            return RequestCost(written + sum(min(first + second, reach) for first, second in pairs))
        half = not isinstance(item, Question)
        return RequestCost(written + sum(pair_cost(pair, reach, options.overlap, half=half) for pair in pairs))

    def run(self, subject: ServedModel, items: Sequence[Item], options: Any) -> list[dict[str, Any]]:
        given = {name: getattr(options, name) for name in PredictOptions.__struct_fields__ if hasattr(options, name)}
        chosen = PredictOptions(**given, task=self.task.name)
        predictor = TaskPredictor(subject.model.bundle, chosen, subject.model.device)
        examples = [self.task.example(self._input(item), HERE) for item in items]
        return [with_coverage(answer) for answer in predictor.answer(examples)]

    def _input(self, item: Item) -> Any:
        """The item as `Model.predict` takes it."""
        if isinstance(item, Struct):
            return msgspec.structs.astuple(item)
        return list(item) if self.task.reads_words and not isinstance(item, str) else item


class AllTasksBody(WordsBody):
    """Texts, or lists of words."""


class AllTasksOperation(Operation[AllTasksBody]):
    """Predictions of all heads of a model, from one pass of its encoder."""

    name = "predict"
    title = "Predict every task of a model that has several."
    Body = AllTasksBody
    examples = EXAMPLES[WordsBody]

    def lacks(self, model: Model) -> str | None:
        if len(tasks_of(model.bundle)) > 1:
            return None
        return "it is not fine-tuned for several tasks; fine-tune one with larvatus finetune TASK --with TASK"

    def run(self, subject: ServedModel, items: Sequence[Item], options: AllTasksBody) -> list[dict[str, Any]]:
        chosen = PredictOptions(truncate=options.truncate, overlap=options.overlap)
        predictor = TaskPredictor(subject.model.bundle, chosen, subject.model.device)
        given = (item if isinstance(item, str) else list(item) for item in items)
        examples = [predictor.task.example(item, HERE) for item in given]
        answers = cast(list[TaskPredictions], predictor.answer(examples))
        return [{task: with_coverage(part) for task, part in answer.by_task.items()} for answer in answers]


def with_coverage(answer: Prediction) -> dict[str, Any]:
    """A prediction with how much of the text was read."""
    coverage = answer.coverage
    read = {"tokens": coverage.tokens, "read": coverage.read, "windows": coverage.windows}
    return {**answer.to_dict(), "coverage": read}


def pair_cost(pair: tuple[int, int], reach: int, overlap: int | None, *, half: bool) -> int:
    """Tokens of windows over the longer text, each with the shorter one; with `half`, neither has more than half."""
    shared, read = (min(pair), max(pair)) if half else pair
    shared = min(shared, reach // 2 if half else reach - 1)
    return windowed(read, reach=reach, overlap=overlap, shared=shared)


PREDICTIONS = tuple(PredictOperation(task) for task in TASKS.values() if task.served)
