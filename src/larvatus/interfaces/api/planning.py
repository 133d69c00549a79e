"""Plan a pretraining run from its text, as one call.

made = plan("my_texts/", minutes=30)
made.expected.loss, made.minutes, made.warnings
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Unpack

from larvatus.core.errors import UsageError
from larvatus.data.corpus.sources import SourceText
from larvatus.data.text.languages import path_of
from larvatus.evaluation.planning.plan import PlanRequest, PretrainingPlan, make_plan
from larvatus.evaluation.planning.scan import scan_text
from larvatus.interfaces.settings import Corpus, MachineSettings, TextSettings, read_settings, text_given
from larvatus.training.engine.reporter import Reporter

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import PlanKeywords


def plan(
    corpus: Corpus,
    *,
    quiet: bool = True,
    **settings: Unpack[PlanKeywords],
) -> PretrainingPlan:
    """Read a text and recommend how to pretrain on it: settings, expected loss, minutes, and what more text would give.

    Args:
        corpus: Text, several, or a mapping from languages to text.
        quiet: Show no progress.
        **settings: What the plan keeps to: `recipe`, `size`, `vocabulary`, `epochs`, `minutes` (on this machine),
            `measure` (time some steps); how text is read, as in `pretrain`; the machine: `device`, `precision` and the
            other options of `pretrain`.

    Returns:
        The plan, which prints as tables; `command()` is that of the run.

    Example:
        >>> lines = [f"The boat of house {number} lay at bridge {7 * number} all day." for number in range(600)]
        >>> _ = (folder / "boats.txt").write_text(" ".join(lines))
        >>> made = plan(folder / "boats.txt", measure=False)
        >>> made.size, made.minutes is None
        ('tiny', True)
    """
    request, text, machine = read_settings(settings, PlanRequest, TextSettings, MachineSettings, function="plan")
    reporter = Reporter.on_stream(quiet=quiet, stderr=True)
    return run_plan(request, text, machine, corpus=corpus, say=reporter.say)


def run_plan(
    request: PlanRequest,
    text: TextSettings,
    machine: MachineSettings,
    *,
    corpus: Corpus,
    say: Callable[[str], None],
    progress: Callable[[int, int], None] = lambda documents, size: None,
) -> PretrainingPlan:
    """Run `plan` from structs."""
    if request.minutes is not None and not request.measure:
        raise UsageError("--minutes needs the speed of this machine; leave out --no-measure")
    given = text_given(corpus)
    if any(path_of(path) == "-" for path in given):
        raise UsageError("a plan reads files; write standard input to a file first")
    source = SourceText.of(given, text.reading())
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    scan = scan_text(source.read, language=text.language, workers=workers, progress=progress)
    return make_plan(scan, request, runtime=machine.runtime, say=say)
