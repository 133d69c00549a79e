"""Labelled examples of a task from files, from tables and lists in memory, or read before.

read_examples("classify", [("good", "pos"), ("bad", "neg")])
read_examples("tag", "train.conll", WordFiles(word="1"))
task_of_file("swag.csv")                       # "choose"
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
from larvatus.data.labelled.split import with_groups
from larvatus.data.labelled.tables import open_table
from larvatus.data.labelled.tagged import format_of, guess_task
from larvatus.tasks.registry import TaskName, get_task, task_of_table


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
