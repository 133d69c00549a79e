"""Validation examples where none are given: a tenth of the training examples, of each task by itself.

    train, dev = split_validation(train, dev, args)

Tasks that read the same file hold out the same examples, those of the first of them: a sentence whose tags are trained
is then no validation sentence of another task.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from larvatus.core.errors import UsageError
from larvatus.data.labelled.in_memory import IN_MEMORY
from larvatus.data.labelled.records import Dataset
from larvatus.data.labelled.split import hold_out
from larvatus.tasks.multitask.arguments import OneTaskArguments
from larvatus.tasks.multitask.data import TaskDatasets, parts_of
from larvatus.tasks.trainer.config import FineTuneArguments

Split = tuple[Dataset[Any], Dataset[Any] | None]
"""Training and validation examples."""


def split_validation(train: Dataset[Any], dev: Dataset[Any] | None, args: FineTuneArguments) -> Split:
    """Training and validation examples; where none are given, a tenth of the training examples is held out."""
    if isinstance(train, TaskDatasets):
        return _split_each(train, dev, args)
    if dev is not None or not args.hold_out:
        if dev is None and (len(args.seeds) > 1 or args.config.patience or args.metric):
            raise UsageError("several seeds, patience and a metric need validation examples; leave out --no-dev")
        return train, dev
    parts = hold_out(train)
    args.say(f"no held-out examples were given: {parts.said}")
    return parts.train, parts.held_out


def _split_each(train: TaskDatasets, dev: Dataset[Any] | None, args: FineTuneArguments) -> Split:
    """The same of several tasks."""
    given, split = parts_of(dev), dict[str, Split]()
    for task, part in train.parts.items():
        before = None if task in given or not args.hold_out else _held_out_before(part, split)
        if before is not None:
            parts: Split = same_places(part, before, others=True), same_places(part, before)
            args.say(f"{task}: {len(before):,} examples are held out, those of {part.source} that are held out already")
        else:
            say = OneTaskArguments(args, task).say
            callbacks = dataclasses.replace(args.callbacks, say=say)
            parts = split_validation(part, given.get(task), dataclasses.replace(args, callbacks=callbacks))
        split[task] = parts
    held = {task: dev for task, (_, dev) in split.items() if dev is not None}
    return TaskDatasets.of({task: part for task, (part, _) in split.items()}), TaskDatasets.of(held) if held else None


def _held_out_before(part: Dataset[Any], split: dict[str, Split]) -> Dataset[Any] | None:
    """The examples that an earlier task with examples of the same files holds out."""
    if part.source.endswith(IN_MEMORY):  # places are positions in a list
        return None
    held_out = (dev for _, dev in split.values() if dev is not None and len(same_places(part, dev)))
    return next(held_out, None)


def same_places(data: Dataset[Any], chosen: Dataset[Any], *, others: bool = False) -> Dataset[Any]:
    """The examples at the places of the chosen ones, which another task reads; or the `others`."""
    places = {example.place for example in chosen.examples}
    examples = tuple(example for example in data.examples if (example.place in places) != others)
    return dataclasses.replace(data, examples=examples)
