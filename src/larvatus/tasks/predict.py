"""Predictions of a fine-tuned model for any number of texts of any length.

    predictor = TaskPredictor(bundle, PredictOptions(merge="max"))
    for prediction in predictor.predict(open("reviews.txt")):
        print(prediction.label, prediction.probability)

Any iterable goes in and answers come out in its order, a block at a time: memory holds a block (some thousand texts, or
a megabyte of characters), never the file. The first block is small, so that the first answers come soon. A text longer
than a window is read in several that overlap; `truncate` reads only its first window, and every prediction has how much
was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch

from larvatus.core.errors import UsageError
from larvatus.data.bulk.executor import Executor
from larvatus.data.bulk.parts import BlockLines, LineJob, compute_good_rows, skips_bad_rows
from larvatus.data.labelled.records import LabelledExample
from larvatus.models.bundle.directory import Bundle
from larvatus.models.loaded import LoadedModel
from larvatus.models.nn.device import explain_out_of_memory
from larvatus.tasks.inputs import Input, InputPlace, PredictOptions
from larvatus.tasks.registry import task_of, with_task
from larvatus.tasks.results import Prediction
from larvatus.tasks.scoring import ScoringOptions, head_of

__all__ = [
    "ExamplePrediction",
    "Input",
    "InputPlace",
    "PredictOptions",
    "PredictWorker",
    "PredictionBlock",
    "ReadTotals",
    "TaskPredictor",
    "blocks",
    "predict_block",
]

TEXTS_AT_ONCE = 4_096
CHARACTERS_AT_ONCE = 1 << 20
"""Most characters of a block; a longer text is a separate block."""
FIRST_BLOCK = 32
"""Texts of the first block; each that follows may hold twice as many."""


@dataclass(frozen=True, kw_only=True)
class ExamplePrediction:
    """A prediction, and the example that it is of."""

    example: LabelledExample
    found: Prediction


@dataclass
class ReadTotals:
    """How much of all texts was read. It grows while answers come."""

    texts: int = 0
    cut: int = 0
    tokens: int = 0
    read: int = 0

    def add(self, prediction: Prediction) -> None:
        coverage = prediction.coverage
        self.texts += 1
        self.cut += coverage.read < coverage.tokens
        self.tokens += coverage.tokens
        self.read += coverage.read

    @property
    def unread(self) -> str:
        """How much was not read: ``3 of 200 texts were cut; 12.3% of tokens not read``; empty if everything was."""
        if not self.cut:
            return ""
        share = 1 - self.read / self.tokens
        texts = "text was" if self.texts == 1 else "texts were"
        return f"{self.cut:,} of {self.texts:,} {texts} cut; {share:.1%} of tokens not read"


@dataclass(eq=False)
class TaskPredictor:
    """Predicts with a fine-tuned model."""

    bundle: Bundle
    options: PredictOptions = field(default_factory=PredictOptions)
    device: str | torch.device = "cpu"

    def __post_init__(self) -> None:
        self.bundle = with_task(self.bundle, self.options.task)
        self.task = task_of(self.bundle)
        self.head = head_of(self.bundle.network, str(self.bundle.path))
        most = self.bundle.model.max_positions
        length = self.options.length
        if length is not None and length > most:
            raise UsageError(f"a window of {length} tokens is more than the model's {most} positions")
        self.window = length or most
        self.scoring = ScoringOptions(device=str(self.device), tokens=self.options.tokens)

    def predict(self, texts: Iterable[Input]) -> Iterator[Prediction]:
        """One prediction for each text, in order."""
        if isinstance(texts, str):
            raise UsageError("give a list of texts, not one text: [text]")
        examples = (self.task.example(text, InputPlace("text", number)) for number, text in enumerate(texts, start=1))
        return (answer.found for answer in self.answers(examples))

    def answers(self, examples: Iterable[Any]) -> Iterator[ExamplePrediction]:
        """As `predict`, for examples with their places."""
        for block in blocks(examples):
            yield from predict_block(PredictWorker(self), block).answers

    def answer(self, block: list[LabelledExample]) -> list[Prediction]:
        """The predictions of a block."""
        with explain_out_of_memory("lower --batch-tokens or --length, or take a smaller --model"):
            return list(self.task.predict(self.bundle, block, self.options, self.scoring))


@dataclass(frozen=True, eq=False)
class PredictWorker:
    """State of a worker that predicts."""

    predictor: TaskPredictor
    aside: bool = False
    """Skip examples that cannot be read."""

    @classmethod
    def of(cls, model: LoadedModel, options: PredictOptions, *, aside: bool) -> PredictWorker:
        return cls(TaskPredictor(model.bundle, options, model.device), aside)


@dataclass(frozen=True)
class PredictionBlock:
    answers: list[ExamplePrediction]
    faults: list[str]
    """Errors of skipped examples, each with its place."""


def predict_block(work: PredictWorker, block: list[LabelledExample]) -> PredictionBlock:
    """Predict a block, in this process or in a worker."""
    predictor = work.predictor
    examples, faults = block, list[str]()
    if work.aside:
        examples, predictions, faults = compute_good_rows(predictor.answer, block, lambda example: str(example.place))
    else:
        predictions = predictor.answer(block)
    pairs = zip(examples, predictions, strict=True)
    return PredictionBlock(
        [ExamplePrediction(example=example, found=prediction) for example, prediction in pairs], faults
    )


def blocks(examples: Iterable[LabelledExample]) -> Iterator[list[LabelledExample]]:
    """Examples in their order, as many at a time as memory may hold."""
    held: list[LabelledExample] = []
    size, room = 0, FIRST_BLOCK
    for example in examples:
        length = len(example.reads())
        if held and size + length > CHARACTERS_AT_ONCE:
            yield held
            held, size = [], 0
        held.append(example)
        size += length
        if len(held) >= room:
            yield held
            held, size, room = [], 0, min(2 * room, TEXTS_AT_ONCE)
    if held:
        yield held


@dataclass(frozen=True)
class BulkPredictor:
    """Blocks of examples to blocks of answers, in order."""

    model: LoadedModel
    options: PredictOptions
    executor: Executor

    def __call__(self, examples: Iterable[list[LabelledExample]]) -> Iterator[PredictionBlock]:
        state = partial(PredictWorker.of, self.model, self.options, aside=skips_bad_rows())
        fix = "run the same command again; with --resume, what was written is kept"
        with self.executor.pool(state, predict_block, what="a predicting worker", fix=fix) as pool:
            yield from pool.map(examples)


def write_prediction_lines(
    job: LineJob,
    answering: BulkPredictor,
    examples: Iterable[list[LabelledExample]],
    lines: Callable[[ExamplePrediction], list[str]],
    progress: Callable[[int], None] = lambda texts: None,
) -> ReadTotals:
    """Lines of JSON for each answer, in the file of the job (`data/bulk/row_files.py`)."""

    def answered(todo: Iterator[list[LabelledExample]]) -> Iterator[BlockLines]:
        for block in answering(todo):
            totals = ReadTotals()
            for answer in block.answers:
                totals.add(answer.found)
            held = [line for answer in block.answers for line in lines(answer)]
            yield BlockLines(held, block.faults, asdict(totals))

    def counted(counts: Mapping[str, float]) -> None:
        progress(int(counts["texts"]))

    counts = job.write(examples, answered, counted)
    return ReadTotals(**{name: int(count) for name, count in counts.items()})
