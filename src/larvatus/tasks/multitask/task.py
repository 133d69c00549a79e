"""Several tasks as one: heads on one encoder that are trained together, saved as one model, predicted in one pass.

    both = get_task("tag+classify")                # the registry makes it of the tasks that it lists
    finetune("tag+classify", bundle, TaskDatasets.of({"tag": tagged, "classify": texts}), None, args)
    larvatus finetune tag --train ner.conll --with classify=topics.csv --out runs/both

It has no code of any task: a new task joins by its line in the registry, unless it says `joins = False` (heads whose
loss compares whole batches, or that read more than an encoder's states). What is decided where:

| question | answer | file |
| --- | --- | --- |
| what a step holds | examples of every task, in shares that grow with the root of their number | `data.py` |
| the loss | weighted sum of the tasks' mean losses; weights are 1 unless given | `trainer/trainer.py` |
| which checkpoint is kept | that with the best mean of the tasks' main metrics | `validation.py` |
| rate and epochs | those of the first task, with the largest set; each head has the rate of its task | here |
| trainable parts | as of one task, once for all heads; over a frozen encoder, each head reads features | `trainer/` |
| seeds, resuming | a seed trains all heads; a step follows from seed and number, so resuming is bit-equal | `data.py` |
| calibration, thresholds, labels | each head has its own, as if it were trained by itself | `trainer/finetune.py` |
| prediction | each task by its own code, over an encoder that reads no sequence twice | `shared_encoder.py` |
| on disk | a directory with several heads in the list of its config.json, which only Larvatus loads | `bundle/` |

An input suits a task if the task can read it: a text is for all that read texts, words (a list) for those that read
words, two texts (a tuple) for those that read pairs. Each task predicts what suits it, and an input that suits none is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import torch

from larvatus.core.batch import runs
from larvatus.core.errors import LarvatusError, UsageError, did_you_mean
from larvatus.data.labelled.records import Dataset, LabelledExample, Place
from larvatus.data.labelled.tables import Columns
from larvatus.data.labelled.texts import TextFormat, read_unlabelled
from larvatus.models.bundle.directory import Bundle
from larvatus.tasks.arguments import TaskArguments
from larvatus.tasks.evaluation.evaluation import Evaluation, EvaluationOptions
from larvatus.tasks.inputs import Input, PlainTexts, PredictOptions
from larvatus.tasks.multitask.arguments import MultiTaskOptions, OneTaskArguments
from larvatus.tasks.multitask.data import TaskBatches, TaskDatasets, parts_of
from larvatus.tasks.multitask.results import TaskPredictions
from larvatus.tasks.multitask.shared_encoder import share_passes
from larvatus.tasks.multitask.validation import MEAN, TaskValidation
from larvatus.tasks.multitask.views import task_view
from larvatus.tasks.results import Prediction
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.task import Task, TaskData

AnyTask = Task[Any, Any, Any]
CHARACTERS = 8
"""Characters of texts whose states are kept at once, for each token of a batch."""


@dataclass(frozen=True, eq=False)
class TaskInputs(LabelledExample):
    """An input as each task reads it that it suits."""

    by_task: Mapping[str, Any]
    place: Place
    id: str | None = None

    def reads(self) -> str:
        first: LabelledExample = next(iter(self.by_task.values()))
        return first.reads()


class MultiTask(Task[Any, TaskPredictions, MultiTaskOptions]):
    """Several tasks on one encoder."""

    Options = MultiTaskOptions

    def __init__(self, tasks: Sequence[AnyTask]) -> None:
        """The first task gives the rate and the number of steps."""
        self.tasks = {task.name: task for task in tasks}
        for task in tasks:
            if not task.joins:
                raise UsageError(f"{task.name} cannot share an encoder with other tasks; fine-tune a model for it only")
        if len(self.tasks) < len(tasks):
            names = ", ".join(task.name for task in tasks)
            raise UsageError(f"a model has one head for each task, and one is given twice: {names}")
        shared: dict[str, Any] = self.__dict__  # what other tasks define as class attributes
        shared.update(
            name="+".join(self.tasks),
            title=" ".join(task.title for task in tasks),
            models="models of several tasks",
            defaults=tasks[0].defaults,
            card=tasks[0].card._replace(what=" and ".join(task.card.what for task in tasks), auto=None, also=""),
            reads_words=any(task.reads_words for task in tasks),
            shows=frozenset.intersection(*(task.shows for task in tasks)),
            keeps_lm_loss=all(task.keeps_lm_loss for task in tasks),
            Inputs=next((task.Inputs for task in tasks if task.Inputs is not PlainTexts), PlainTexts),
        )

    # ---- fine-tuning

    def check_examples(
        self, train: Dataset[Any], dev: Dataset[Any] | None, args: TaskArguments
    ) -> tuple[Dataset[Any], Dataset[Any] | None]:
        checked = {
            name: task.check_examples(parts_of(train)[name], parts_of(dev).get(name), OneTaskArguments(args, name))
            for name, task in self.tasks.items()
        }
        held_out = {name: dev for name, (_, dev) in checked.items() if dev is not None}
        training = TaskDatasets.of({name: train for name, (train, _) in checked.items()})
        return training, TaskDatasets.of(held_out) if held_out else None

    def prepare(self, bundle: Bundle, train: Dataset[Any], dev: Dataset[Any] | None, args: TaskArguments) -> TaskData:
        """The data of all tasks; the head is the mapping of all heads by task."""
        self._check_metric(args)
        data: dict[str, TaskData] = {}
        for name, task in self.tasks.items():
            one_args = OneTaskArguments(args, name)
            data[name] = task.prepare(bundle, parts_of(train)[name], parts_of(dev).get(name), one_args)
        heads = {
            name: msgspec.structs.replace(part.head, weight=OneTaskArguments(args, name).weight)
            for name, part in data.items()
        }
        rate = self.defaults.rate * self.defaults.head_rate
        rates = {name: task.defaults.rate * task.defaults.head_rate / rate for name, task in self.tasks.items()}
        scored = {name: part.validation for name, part in data.items() if part.validation is not None}
        held_out = {name: part.dev for name, part in data.items() if part.dev is not None}
        return TaskData(
            head=heads,
            encoded=TaskBatches({name: part.encoded for name, part in data.items()}, heads, rates),
            validation=TaskValidation(scored, heads, args.metric or MEAN) if scored else None,
            train=TaskDatasets.of({name: part.train for name, part in data.items()}),
            dev=TaskDatasets.of(held_out) if held_out else None,
        )

    def _check_metric(self, args: TaskArguments) -> None:
        task = MEAN if args.metric is None else args.metric.partition(".")[0]
        if task != MEAN and "." in str(args.metric) and task not in self.tasks:
            raise UsageError(f"--metric {args.metric}: {task} is none of the tasks{did_you_mean(task, self.tasks)}")

    # ---- prediction

    def example(self, given: Input, place: Place) -> TaskInputs:
        readings, refused = {}, list[LarvatusError]()
        of_texts = any(not task.reads_words for task in self.tasks.values())
        pair = of_texts and isinstance(given, tuple) and len(given) == 2
        for name, task in self.tasks.items():
            if pair and task.reads_words:
                continue
            try:
                readings[name] = task.example(given, place)
            except LarvatusError as fault:
                refused.append(fault)
        if not readings:
            raise refused[0]
        return TaskInputs(readings, place)

    def read_plain(
        self, name: str, columns: Columns, format: TextFormat | None, say: Callable[[str], None]
    ) -> Iterator[TaskInputs]:
        """Texts, pairs or words; files of questions or endings are read for one task."""
        for example in read_unlabelled(name, words=self.reads_words, columns=columns, format=format, say=say):
            plain = example.plain_text()
            text: Input = list(example.words) if plain is None else plain.text  # type: ignore[union-attr]
            if plain is not None and plain.pair is not None:
                text = (plain.text, plain.pair)
            yield replace(self.example(text, example.place), id=example.id)

    @torch.inference_mode()
    def predict(
        self, bundle: Bundle, examples: Sequence[TaskInputs], options: PredictOptions, scoring: ScoringOptions
    ) -> Sequence[TaskPredictions]:
        """Predictions of all tasks; sequences that several read in the same way pass the encoder once."""
        views = {name: task_view(bundle, task) for name, task in self.tasks.items()}
        lengths = np.array([len(example.reads()) for example in examples], np.int64)
        predictions: list[TaskPredictions] = []
        for first, last in runs(lengths, CHARACTERS * scoring.budget):
            encoder = share_passes(bundle.network.encoder, bundle.network.heads.values())
            block, by_task = examples[first:last], list[dict[str, Prediction]]({} for _ in range(first, last))
            for name, task in self.tasks.items():
                chosen = [number for number, example in enumerate(block) if name in example.by_task]
                shared = replace(views[name], network=views[name].network.view(encoder=encoder))
                inputs = [block[number].by_task[name] for number in chosen]
                for number, prediction in zip(chosen, task.predict(shared, inputs, options, scoring), strict=True):
                    by_task[number][name] = prediction
            predictions += [TaskPredictions(by_task=each) for each in by_task]
        return predictions

    # ---- evaluation

    def evaluate(self, bundle: Bundle, data: Dataset[Any], options: EvaluationOptions) -> Evaluation:
        raise UsageError(f"{bundle.path} has several tasks, and each is evaluated on examples of its own: {self.name}")
