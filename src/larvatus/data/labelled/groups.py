"""Groups of examples that must not be parted: authors, documents, patients, named by a column of the data.

    data = with_groups(read_texts("train.csv"), ["train.csv"], "author")
    data.groups[data.examples[0].place]           # "jane"

Where some examples are held out, those of one group are all held out or all learnt from (`split.py`). Of SQuAD's JSON
the group may be `title`, the article of a passage.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.columns import named_column
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Example, Place, QuestionPlace
from larvatus.data.labelled.tables import ENDINGS, TableOptions, ending, open_table


def with_groups(
    data: Dataset[Example], paths: Sequence[str], column: str, options: TableOptions = TableOptions()
) -> Dataset[Example]:
    """The same examples with the groups that a column of their files names."""
    if any(isinstance(example.place, QuestionPlace) for example in data.examples):
        return _by_title(data, column)
    groups: dict[Place, str] = {}
    for path in paths:
        if path == "-":
            raise UsageError("--group reads its column from files; give a file in place of standard input")
        if ending(path) not in ENDINGS:
            raise UsageError(f"--group {column}: {path} has no columns by name; give CSV, TSV, JSONL or Parquet")
        table = open_table(path, options, Problems())  # what cannot be read was said or refused before
        name = named_column(table, column, "group")
        for place, row in table.rows:
            if (value := row.get(name)) is not None and value != "":
                groups[place] = str(value)
    _refuse_one(data, groups, column)
    return dataclasses.replace(data, groups=groups)


def _by_title(data: Dataset[Example], column: str) -> Dataset[Example]:
    if column != "title":
        raise UsageError(f"--group {column}: questions of SQuAD's JSON have a title, and no other groups; give title")
    titles = {example.place: getattr(example, "title", None) for example in data.examples}
    groups = {place: str(title) for place, title in titles.items() if title}
    _refuse_one(data, groups, column)
    return dataclasses.replace(data, groups=groups)


def _refuse_one(data: Dataset[Example], groups: dict[Place, str], column: str) -> None:
    known = {groups.get(example.place) for example in data.examples}
    if known == {None}:
        raise DataError(f"{data.source}: {column} is empty in every row; name another column with --group")
    if len(known) == 1:
        raise DataError(f"{data.source}: all examples are of the group {known.pop()!r}; give --dev in place of --group")
