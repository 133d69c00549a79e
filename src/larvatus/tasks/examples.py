"""Labelled examples of a task, whatever they come in: files, tables and lists in memory, or what was read before.

read_examples("classify", [("good", "pos"), ("bad", "neg")])
read_examples("tag", "train.conll", WordFiles(word="1"))
"""

from __future__ import annotations

import dataclasses
from typing import Any

from larvatus.errors import UsageError
from larvatus.labelled.groups import with_groups
from larvatus.labelled.in_memory import IN_MEMORY, Examples, are_files, as_files
from larvatus.labelled.reading import FileOptions
from larvatus.labelled.records import Dataset, Kind
from larvatus.tasks.registry import TaskName, task_named


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
