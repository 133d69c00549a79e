"""Labelled examples of a task, whatever they come in: files, tables and lists in memory, or what was read before.

read_examples("classify", [("good", "pos"), ("bad", "neg")])
read_examples("tag", "train.conll", WordFiles(word="1"))
task_of_file("swag.csv")                       # "choose"
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from larvatus.errors import UsageError
from larvatus.labelled.groups import with_groups
from larvatus.labelled.guess import guess_task
from larvatus.labelled.in_memory import IN_MEMORY, Examples, are_files, as_files
from larvatus.labelled.problems import Problems
from larvatus.labelled.reading import FileOptions
from larvatus.labelled.records import Dataset, Kind
from larvatus.labelled.tables import open_table
from larvatus.tasks.registry import TaskName, task_named, task_of_table


def read_examples(
    task: TaskName,
    given: Examples,
    reading: FileOptions = FileOptions(),
    *,
    kind: Kind | None = None,
    group: str | None = None,
) -> Dataset[Any]:
    """Labelled examples of a task, whatever they come in. `kind`: of their labels, where it is known."""
    if isinstance(given, Dataset):
        if group is not None:
            raise UsageError("group names a column of the files of train, of which some are held out: give no dev")
        return given
    with as_files(given, task_named(task).as_tuples, of=task) as names:
        examples: Dataset[Any] = task_named(task).read(names, reading, kind=kind)
        examples = examples if group is None else with_groups(examples, names, group, reading.table)
    if are_files(given):
        return examples
    return dataclasses.replace(examples, source=f"{type(given).__name__}{IN_MEMORY}")


def task_of_file(name: str) -> str:
    """The task that a file looks to be of. What is no plain file can be read once only: it is not looked into."""
    task: str = guess_task(name)
    if task != "classify" or not Path(name).is_file():
        return task
    table = open_table(name, problems=Problems())
    known = task_of_table(table.columns, table.sample)
    return task if known is None else known.name
