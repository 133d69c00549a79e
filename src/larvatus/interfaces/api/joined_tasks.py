"""Other tasks that are trained with the first on one encoder: what is given of them, and the run of all.

finetune("tag", train="ewt.conllu", others={"spans": None, "classify": {"train": "topics.csv", "weight": 0.5}})
larvatus finetune tag --train ewt.conllu --with spans --with classify=topics.csv --set classify.weight=0.5
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from larvatus.core.errors import UsageError
from larvatus.data.labelled.in_memory import Examples
from larvatus.data.labelled.problems import Errors
from larvatus.interfaces.api.task_settings import split_columns
from larvatus.tasks.examples import read_examples
from larvatus.tasks.multitask.arguments import MultiTaskOptions
from larvatus.tasks.multitask.data import TaskDatasets
from larvatus.tasks.registry import get_task, parse_file_options, parse_options
from larvatus.tasks.trainer.config import FineTuneArguments
from larvatus.tasks.trainer.run import FineTuneRun

Others = Mapping[str, object]
"""For each task its examples, None for those of the first task, or a mapping with `train`, `dev` and settings."""


@dataclass(frozen=True, kw_only=True)
class FirstExamples:
    """The examples of the first task, which others may read too."""

    train: Any
    dev: Any
    errors: Errors | None = None


def join_tasks(
    run: FineTuneRun, args: FineTuneArguments, others: Others, first: FirstExamples
) -> tuple[FineTuneRun, FineTuneArguments]:
    """The run and arguments of a first task with others on the same encoder, if there are others."""
    if not others:
        return run, args
    names = "+".join([run.task, *others])
    get_task(names)  # refuses tasks that cannot be trained together
    if run.curve:
        raise UsageError("a learning curve is of one task; leave out --curve, or the other tasks")
    train, dev = {run.task: run.train}, {run.task: run.dev} if run.dev is not None else {}
    options, how = {run.task: args.options}, {run.task: run.how}
    weights: dict[str, object] = {}
    for name, given in others.items():
        settings = dict(given) if isinstance(given, Mapping) and "train" in given else {"train": given}
        examples: Examples | None = settings.pop("train")
        held_out: Examples | None = settings.pop("dev", None)
        if examples is None and held_out is not None:
            raise UsageError(f"{name} reads the examples of {run.task}; name its own: --with {name}=FILE")
        if "weight" in settings:
            weights[name] = settings.pop("weight")
        columns, rest = split_columns(settings)
        options[name] = parse_options(name, rest)
        reading = parse_file_options(name, columns)
        train[name] = read_examples(name, first.train if examples is None else examples, reading, errors=first.errors)
        if (held_out := first.dev if examples is None else held_out) is not None:
            dev[name] = read_examples(name, held_out, reading, kind=train[name].kind, errors=first.errors)
        how[name] = {"columns": columns, "by": None}
    joined = dataclasses.replace(
        run, task=names, train=TaskDatasets.of(train), dev=TaskDatasets.of(dev) if dev else None, how=how
    )
    return joined, dataclasses.replace(args, options=MultiTaskOptions.of(options, weights))


def others_of_command(files: Sequence[str], dev: Sequence[str], settings: Mapping[str, Any]) -> Others:
    """What `--with`, `--with-dev` and `--set TASK.NAME=VALUE` say of other tasks."""
    others: dict[str, dict[str, Any]] = {}
    for flag, field, words in (("--with", "train", files), ("--with-dev", "dev", dev)):
        for word in words:
            name, equals, file = word.partition("=")
            get_task(name)
            if field == "dev" and (name not in others or not file):
                raise UsageError(f"{flag} {word}: give TASK=FILE, of a task with a file of its own: --with {name}=FILE")
            given = others.setdefault(name, {"train": None})
            if equals:
                given[field] = [*(given.get(field) or ()), file]
    for name, given in settings.items():
        others[name] |= given
    return others
