"""Options about files of labelled examples, for commands that learn from the model or the file which task they are of.

    def evaluate(columns: AnyColumns, …):           # {"text": "review"}: what was given, of any task
        reading_of(task, columns)                   # as the task takes it; columns of other tasks are refused

They are the fields of the tasks' `Reading`: a new task brings its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from larvatus.interfaces.cli.from_struct import AnyOf, Panel
from larvatus.interfaces.cli.options import EXAMPLES
from larvatus.tasks.registry import TASKS

_KINDS = tuple(dict.fromkeys(task.Reading for task in TASKS.values()))
Columns = Annotated[Mapping[str, Any], AnyOf(_KINDS, Panel(EXAMPLES, without=("labels",)))]
"""Where the model says what labels are."""
ColumnsAndLabels = Annotated[Mapping[str, Any], AnyOf(_KINDS, Panel(EXAMPLES))]
