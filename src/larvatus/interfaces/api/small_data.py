"""Whether a fine-tuning is a search among candidates (`--auto`, or `--minutes`).

    run = with_search(run, args)              # a `SearchRun`, or the run itself

Options of training and head say what is to be trained, so they are refused with it.
"""

from __future__ import annotations

import dataclasses

from larvatus.core.errors import UsageError
from larvatus.tasks.candidates.finetune import SearchRun
from larvatus.tasks.candidates.search import refuse_unsearchable
from larvatus.tasks.classify.options import ClassifyOptions
from larvatus.tasks.trainer.config import FineTuneArguments
from larvatus.tasks.trainer.run import FineTuneRun
from larvatus.training.engine.launch import launch

MINUTES = 2.0
"""Default time budget."""


def with_search(run: FineTuneRun, args: FineTuneArguments) -> FineTuneRun:
    """The run as a search, where that is requested; else itself."""
    options = args.options
    if not isinstance(options, ClassifyOptions) or run.task != "classify":
        return run
    if not options.auto and options.minutes is None:
        return run
    plain = ClassifyOptions(auto=options.auto, minutes=options.minutes)
    heads = [name for name in plain.__struct_fields__ if getattr(options, name) != getattr(plain, name)]
    if given := [*args.given, *heads, *(["curve"] if run.curve else [])]:
        raise UsageError(f"--auto chooses what is trained; leave it out, or {given[0]}")
    if launch().count > 1:
        raise UsageError("--auto searches on one process; start it without torchrun")
    refuse_unsearchable(run.train)
    fields = {field.name: getattr(run, field.name) for field in dataclasses.fields(run)}
    return SearchRun(**fields, minutes=MINUTES if options.minutes is None else options.minutes)
