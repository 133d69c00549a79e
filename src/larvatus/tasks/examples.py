"""Labelled examples of a task: from files or memory, and the part of them that validates.

    train = read_examples("classify", [("good", "pos"), ("bad", "neg")])
    train = read_examples("tag", "train.conll", WordFiles(word="1"))
    train, dev = split_validation(train, dev, args)        # a tenth of the training examples, if `dev` is None

With several tasks, each gives a tenth by itself. Tasks that read the same file use the same validation examples, those
of the first of them: a sentence whose tags are trained is then no validation sentence of another task.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.file_options import FileOptions
from larvatus.data.labelled.in_memory import IN_MEMORY, Examples, RowNames, are_files, as_files
from larvatus.data.labelled.problems import SKIP, Errors, Problems, count_noun, raise_problems
from larvatus.data.labelled.records import Dataset, Kind
from larvatus.data.labelled.split import hold_out, with_groups
from larvatus.data.labelled.tables import open_table
from larvatus.data.labelled.tagged import format_of, guess_task
from larvatus.tasks.multitask.arguments import OneTaskArguments
from larvatus.tasks.multitask.data import TaskDatasets, parts_of
from larvatus.tasks.registry import TaskName, get_task, task_of_table
from larvatus.tasks.trainer.config import FineTuneArguments


def read_examples(
    task: TaskName,
    given: Examples,
    reading: FileOptions = FileOptions(),
    *,
    kind: Kind | None = None,
    group: str | None = None,
    errors: Errors | None = None,
) -> Dataset[Any]:
    """Labelled examples of a task; `kind` is that of their labels, if known.

    `errors` decides about rows that cannot be used, such as those without text or label: `refuse` raises one error
    that names them, `skip` leaves them out and notes how many. None refuses where the user has no such choice.
    """
    if errors not in (None, "refuse", "skip"):
        raise UsageError(f"errors is refuse or skip, not {errors!r}")
    if isinstance(given, Dataset):
        if group is not None:
            raise UsageError("group names a column of the files of train, of which some are held out: give no dev")
        return given
    problems = Problems()
    examples = read_with_problems(task, given, reading, problems, kind=kind, group=group)
    if errors == "skip" and problems:
        note = f"{count_noun(len(problems), 'row', 'rows')} skipped ({problems})"
        return dataclasses.replace(examples, notes=(*examples.notes, note))
    raise_problems(problems, way="" if errors is None else SKIP)
    return examples


def read_with_problems(
    task: TaskName,
    given: Examples,
    reading: FileOptions,
    problems: Problems,
    *,
    kind: Kind | None = None,
    group: str | None = None,
) -> Dataset[Any]:
    """Labelled examples of a task; rows that cannot be used are noted in `problems`."""
    if isinstance(given, Dataset):
        return given
    with as_files(given, get_task(task).as_tuples, of=task) as names:
        rows = None if are_files(given) else RowNames.of(given, names[0])
        noted = problems if rows is None else Problems()
        try:
            examples: Dataset[Any] = get_task(task).read(names, reading, kind=kind, problems=noted)
            if group is not None:
                examples = with_groups(examples, names, group, reading.table)
        except (DataError, UsageError) as fault:
            if rows is None:
                raise
            raise type(fault)(rows.said(str(fault))) from None  # the cause would name a file that is gone
    if rows is None:
        return examples
    problems.take(noted, rows.place)
    return dataclasses.replace(
        examples,
        source=f"{type(given).__name__}{IN_MEMORY}",
        examples=tuple(dataclasses.replace(example, place=rows.place(example.place)) for example in examples),
        groups={rows.place(place): name for place, name in examples.groups.items()},
    )


def task_of_file(name: str) -> str:
    """The task that a file looks to be of. What is no plain file can be read once only: it is not looked into."""
    task: str = guess_task(name)
    if (task != "classify" and format_of(name) not in ("jsonl", "parquet")) or not Path(name).is_file():
        return task
    table = open_table(name, problems=Problems())
    known = task_of_table(table.columns, table.sample)
    return task if known is None else known.name


# Validation examples.

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
