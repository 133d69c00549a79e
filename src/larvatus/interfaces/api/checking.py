"""What is wrong with labelled data, before a model is trained on it, as one call.

print(check_data("tickets.csv"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, cast

from larvatus.data.labelled.check import check
from larvatus.data.labelled.in_memory import Examples, are_files
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.report import Report
from larvatus.data.labelled.texts import path_strings
from larvatus.tasks.examples import read_with_problems, task_of_file
from larvatus.tasks.registry import reading_of

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import ColumnKeywords


def check_data(
    train: Examples, dev: Examples | None = None, *, task: str | None = None, **columns: Unpack[ColumnKeywords]
) -> Report:
    """Find what would stop a training or spoil it: rows without text or label, duplicates, leaks, illegal tags.

    Args:
        train: Labelled examples, in any of the ways that `finetune` takes them.
        dev: Held-out examples, to find leaks.
        task: Read as `finetune` of this task reads. None: as files look; `classify` for what is in memory.
        **columns: Columns by name, as in `text="body", label="topic"`.

    Returns:
        The report: `.errors`, which would stop training, `.warnings`, `.balance` of labels; printed, it is text.

    Example:
        >>> report = check_data([("good fine", "pos"), ("bad", "neg"), ("poor", None), ("good fine", "pos")])
        >>> [(finding.name, finding.count) for finding in report.errors]
        [('no label', 1)]
    """
    name = task or (task_of_file(path_strings(cast(Any, train))[0]) if are_files(train) else "classify")
    reading, problems = reading_of(name, columns), Problems()
    examples = read_with_problems(name, train, reading, problems)
    held_out = None if dev is None else read_with_problems(name, dev, reading, problems, kind=examples.kind)
    return check(examples, held_out, problems=problems)
