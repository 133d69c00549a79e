"""Whether a fine-tuning is a search among candidates: if requested, and by default for small data on a CPU.

    run = with_search(run, args)              # a `CandidateRun`, or the run itself

The default is for single texts of one class each, if no option of training or head was given: those say what is to be
trained, and turn it off, as `--no-auto` does.
"""

from __future__ import annotations

import dataclasses

from larvatus.core.errors import UsageError
from larvatus.data.labelled.split import units_of
from larvatus.tasks.candidates.finetune import CandidateRun
from larvatus.tasks.candidates.search import FOLDS, is_searchable, refuse_unsearchable
from larvatus.tasks.classify.options import ClassifyOptions
from larvatus.tasks.trainer.config import FineTuneArguments
from larvatus.tasks.trainer.run import FineTuneRun
from larvatus.training.engine.launch import launch

BELOW = 1_000
"""Number of examples from which nothing is searched by default."""
FEWEST = 20
"""Number of examples below which nothing is searched by default."""
MINUTES = 2.0
"""Default time budget."""


def with_search(run: FineTuneRun, args: FineTuneArguments) -> FineTuneRun:
    """The run as a search, where that is requested or the default; else itself."""
    options = args.options
    if not isinstance(options, ClassifyOptions) or run.task != "classify" or options.auto is False:
        return run
    plain = ClassifyOptions(auto=options.auto, minutes=options.minutes)
    heads = [name for name in plain.__struct_fields__ if getattr(options, name) != getattr(plain, name)]
    given = [*args.given, *heads, *(["curve"] if run.curve else [])]
    if options.auto or options.minutes is not None:
        if given:
            raise UsageError(f"--auto chooses what is trained; leave it out, or {given[0]}")
        refuse_unsearchable(run.train)
    elif given or not args.runtime.device.startswith("cpu") or launch().count > 1 or not _is_small(run):
        return run
    fields = {field.name: getattr(run, field.name) for field in dataclasses.fields(run)}
    return CandidateRun(**fields, minutes=MINUTES if options.minutes is None else options.minutes)


def _is_small(run: FineTuneRun) -> bool:
    if not FEWEST <= len(run.train) < BELOW or not is_searchable(run.train):
        return False
    return max(units_of(run.train)) + 1 >= FOLDS
