"""`larvatus evaluate DIR --suite english --data DATA`: many measurements of a model in one table.

larvatus evaluate runs/mine --suite english --data data/ --out runs/suite --beside minilm
larvatus evaluate runs/mine --suite english --data data/ --out runs/suite --resume --only blimp,ewt
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from rich.console import Console

from larvatus.core.errors import UsageError
from larvatus.core.flags import Flag
from larvatus.evaluation.suite.settings import SuiteSettings
from larvatus.evaluation.suite.shown import as_table
from larvatus.evaluation.suite.suites import SuiteName
from larvatus.inference.model.loading import LoadOptions
from larvatus.interfaces.api.suite import JSON, MARKDOWN, SuiteRunSettings, run_suite_evaluation
from larvatus.interfaces.cli.progress import is_quiet
from larvatus.interfaces.cli.tables import wide_console
from larvatus.training.engine.reporter import Reporter, rich_table

PANEL = "A suite"
WIDE = 320  # where there is no terminal whose width must be kept


class SuiteRequest(SuiteSettings):
    """A suite of measurements, and where its results go."""

    suite: SuiteName | None = None
    """Measure a model on all parts of a suite, whose files lie in --data DIR."""
    beside: Annotated[str | None, Flag(metavar="DIR")] = None
    """A second model, in a column next to the first."""
    out: Annotated[Path | None, Flag(metavar="PATH")] = None
    """Directory of the results, part by part; without --suite, a file of the scores: .jsonl, .csv, .tsv or .parquet."""
    resume: bool = False
    """Take what --out holds, and measure what is missing."""

    def refuse_alone(self) -> None:
        """Refuse options of a suite without --suite."""
        for name in self.__struct_fields__:
            if name != "out" and getattr(self, name) != getattr(SuiteRequest(), name):
                flag = f"--{name.replace('_', '-')}"
                raise UsageError(f"{flag} is for a suite of measurements; name one: --suite english --data DIR")


def measure_suite(
    models: tuple[Path, ...],
    data: tuple[str, ...],
    machine: LoadOptions,
    chosen: SuiteRequest,
    *,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Measure, then print the table or the JSON."""
    if len(models) != 1:
        raise UsageError("a suite measures one model; name one directory, and a second by --beside DIR")
    if len(data) != 1:
        raise UsageError("a suite reads its files from one folder: --data DIR (docs/suite.md says how it is laid out)")
    if machine.on_cpu:
        raise UsageError(f"a suite fine-tunes, which {machine.on_cpu} cannot; leave out --quantise and --runtime")
    results = run_suite_evaluation(
        models[0],
        SuiteSettings(**{name: getattr(chosen, name) for name in SuiteSettings.__struct_fields__}),
        SuiteRunSettings(resume=chosen.resume, overwrite=overwrite, device=machine.device),
        data=data[0],
        suite=str(chosen.suite),
        beside=chosen.beside,
        out=chosen.out,
        reporter=Reporter.on_stream(quiet=is_quiet(), stderr=as_json),
    )
    if as_json:
        print(json.dumps(results.to_dict(), ensure_ascii=False, allow_nan=False))
        return
    console = Console(markup=False, emoji=False, highlight=False)
    wide = wide_console(WIDE, markup=False, emoji=False)
    wide.print()
    wide.print(rich_table(as_table(results)))
    if chosen.out is not None:
        console.print(f"results: {chosen.out / JSON} · {chosen.out / MARKDOWN}", soft_wrap=True)
