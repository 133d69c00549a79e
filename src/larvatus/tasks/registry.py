"""The tasks: commands, Python, cards, evaluation and prediction read this list, and nothing else lists them.

    TASKS["tag"].read("train.conll")
    task_of(bundle).evaluate(bundle, data, EvaluationOptions())

Adding a task is a folder with a `task.py`, its line here, and that of its head in `models/heads/__init__.py`
(see docs/extending.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from larvatus.core.errors import ArtefactError, UsageError, did_you_mean
from larvatus.data.labelled.file_options import FileOptions, refusal
from larvatus.data.labelled.records import Row
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.head import HeadConfig
from larvatus.tasks.answers.task import AnswerTask
from larvatus.tasks.choose.task import ChooseTask
from larvatus.tasks.classify.task import ClassifyTask
from larvatus.tasks.coref.task import CorefTask
from larvatus.tasks.embed.task import EmbedTask
from larvatus.tasks.multitask.task import MultiTask
from larvatus.tasks.multitask.views import task_view
from larvatus.tasks.parse.task import ParseTask
from larvatus.tasks.prompt.task import PromptTask
from larvatus.tasks.rerank.task import RerankTask
from larvatus.tasks.roles.task import RolesTask
from larvatus.tasks.spans.task import SpansTask
from larvatus.tasks.tag.task import TagTask
from larvatus.tasks.task import Task
from larvatus.tasks.write.task import WriteTask

AnyTask = Task[Any, Any, Any]
TASKS: Mapping[str, AnyTask] = {
    task.name: task
    for task in (
        ClassifyTask(),
        TagTask(),
        SpansTask(),
        ParseTask(),
        AnswerTask(),
        ChooseTask(),
        PromptTask(),
        WriteTask(),
        EmbedTask(),
        RerankTask(),
        RolesTask(),
        CorefTask(),
    )
}
if TYPE_CHECKING:
    TaskName = str
else:
    TaskName = Literal[tuple(TASKS)]  # what commands offer


def get_task(name: str) -> AnyTask:
    """The task of a name, as a user gives it; ``tag+classify`` is both on one encoder."""
    if "+" in name:
        return MultiTask([get_task(part) for part in name.split("+")])
    if name not in TASKS:
        raise UsageError(f"there is no task {name!r} to fine-tune for{did_you_mean(name, TASKS)}")
    return TASKS[name]


def task_of_head(config: object) -> AnyTask | None:
    """The task whose head this is; None of an objective of pretraining."""
    return next((task for task in TASKS.values() if type(config) in (task.Head, *task.OtherHeads)), None)


def tasks_of(bundle: Bundle) -> dict[str, AnyTask]:
    """The tasks that a model was fine-tuned for, by name."""
    tasks = (task for config in bundle.objectives if (task := task_of_head(config)) is not None)
    return {task.name: task for task in tasks}


def task_of(bundle: Bundle) -> AnyTask:
    """The task that a model was fine-tuned for; all of them as one where there are several."""
    tasks = [*tasks_of(bundle).values()]
    if not tasks:
        raise ArtefactError(f"{bundle.path} has no head to predict with; give it one with larvatus finetune")
    return tasks[0] if len(tasks) == 1 else MultiTask(tasks)


def with_task(bundle: Bundle, name: str | None) -> Bundle:
    """The model with only the head of one of its tasks; itself where none is named, or it has no other."""
    tasks = tasks_of(bundle)
    if name is None or [*tasks] == [name]:
        return bundle
    if name not in tasks:
        raise UsageError(f"{bundle.path} was not fine-tuned for the task {name!r}{did_you_mean(name, tasks)}")
    return task_view(bundle, tasks[name])


def task_of_table(columns: Sequence[str], sample: Sequence[Row]) -> AnyTask | None:
    """The task that knows a table by its columns and first rows; None where none is sure."""
    return next((task for task in TASKS.values() if task.recognises(columns, sample)), None)


def is_finetuned(bundle: Bundle) -> bool:
    """Whether a model was fine-tuned for a task."""
    return any(isinstance(config, HeadConfig) for config in bundle.objectives)


def option_names() -> frozenset[str]:
    """Names of the options of all tasks."""
    return frozenset(name for task in TASKS.values() for name in task.Options.__struct_fields__)


def parse_options(name: str, settings: Mapping[str, Any], *, strict: bool = False) -> Struct:
    """The options of a task from settings by name; what belongs to other tasks is refused.

    Values may be strings, as the command line gives them, unless `strict`.
    """
    task = get_task(name)
    known = task.Options.__struct_fields__
    for setting in settings:
        if setting not in known:
            others = [other.name for other in TASKS.values() if setting in other.Options.__struct_fields__]
            if others:
                raise UsageError(f"{setting} belongs to finetune {' and '.join(others)}, not {name}")
            raise UsageError(f"finetune {name} has no setting {setting!r}{did_you_mean(setting, known)}")
    hints = get_type_hints(task.Options)
    for setting, value in settings.items():
        words = choices(hints[setting])
        if words and value is not None and value not in words:
            *firsts, last = words
            raise UsageError(f"finetune {name}: {setting} is {', '.join(firsts)} or {last}, not {value}")
    try:
        return msgspec.convert(dict(settings), task.Options, strict=strict)
    except msgspec.ValidationError as fault:
        raise UsageError(f"finetune {name}: {fault}") from fault


def column_names() -> frozenset[str]:
    """Names of the file options of all tasks."""
    return frozenset(name for task in TASKS.values() for name in task.Reading.__struct_fields__)


def parse_file_options(name: str, given: Mapping[str, Any]) -> FileOptions:
    """File options of a command as the task's struct; columns of other tasks are refused."""
    kind = get_task(name).Reading
    said = {setting: value for setting, value in given.items() if value is not None}
    foreign = [setting for setting in said if setting not in kind.__struct_fields__]
    if foreign:
        owner = next(task for task in TASKS.values() if foreign[0] in task.Reading.__struct_fields__)
        raise UsageError(refusal(kind, foreign, owner.Reading))
    return kind(**said)


def choices(hint: Any) -> tuple[str, ...]:
    """The words that a setting may be; nothing where it is something else."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return next(filter(None, map(choices, get_args(hint))), ()) if get_origin(hint) in (Union, UnionType) else ()
