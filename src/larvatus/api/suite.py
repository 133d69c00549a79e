"""A whole suite of measurements of a model, as one call.

results = evaluate_suite("runs/mine", data="data/", out="runs/suite", beside="minilm")
results.figure("blimp").value
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from larvatus import files
from larvatus.engine.settings import Runtime
from larvatus.engine.watch import Watcher
from larvatus.errors import UsageError
from larvatus.evaluation.suite.layout import DataFolder
from larvatus.evaluation.suite.part import Subject
from larvatus.evaluation.suite.results import SuiteResults
from larvatus.evaluation.suite.run import SuiteRun, run_suite
from larvatus.evaluation.suite.settings import SuiteSettings
from larvatus.evaluation.suite.shown import as_markdown
from larvatus.evaluation.suite.suites import suite_named
from larvatus.model import Model
from larvatus.settings import structs_of

JSON, MARKDOWN = "suite.json", "suite.md"


def evaluate_suite(
    model: str | Path | Model,
    *,
    data: str | Path,
    suite: str = "english",
    beside: str | Path | Model | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    quiet: bool = False,
    **settings: Any,
) -> SuiteResults:
    """Measure a model on all parts of a suite: hidden words, grammar, fine-tuned tasks, meanings, isotropy.

    Args:
        model: A model directory, a hub name, or a model that is loaded (its directory is read again).
        data: The folder of the suite's files; docs/suite.md says how it is laid out.
        suite: Which one: `english`.
        beside: A second model, measured on the same.
        out: Where results go, a file for each part as soon as it is measured; all of them in `suite.json` and
            `suite.md`.
        resume: Take parts that are measured as they are, and measure the others.
        overwrite: Measure again what is there.
        device: `auto`, `cpu` or `cuda`.
        quiet: Show no progress.
        **settings: `only`, `leave_out`: names of parts; `quick`; of fine-tuning `examples`, `epochs`, `rate`, `seeds`,
            `precision`, `microbatch`; `to_stderr`: progress goes to standard error.

    Returns:
        Every figure with its interval, of this run and of those before it in `out`; it shows as a table in a notebook.

    Example:
        >>> evaluate_suite("runs/mine", data=folder, only="blimp", quiet=True)
        Traceback (most recent call last):
        larvatus.errors.DataError: … is missing); lay it out as docs/suite.md says
    """
    watcher = Watcher.on_stream(quiet=quiet, stderr=settings.pop("to_stderr", False))
    for name in ("only", "leave_out"):
        if isinstance(settings.get(name), str):
            settings[name] = [part.strip() for part in settings[name].split(",")]
    (chosen,) = structs_of(settings, SuiteSettings, of="evaluate_suite")
    wanted, folder = suite_named(suite), DataFolder.open(data)
    wanted.chosen(chosen.only, chosen.leave_out)
    if (resume or overwrite) and out is None:
        raise UsageError("--resume and --overwrite need --out, where the results of a run stand")
    runtime = Runtime.here(device=device, precision=chosen.precision, compile=False, microbatch=chosen.microbatch)
    given = [("model", model), *([("beside", beside)] if beside is not None else [])]
    subjects = tuple(Subject(role, _name(each), runtime.device) for role, each in given)
    with tempfile.TemporaryDirectory() as aside:
        run = SuiteRun(
            suite=wanted,
            subjects=subjects,
            data=folder,
            out=Path(aside if out is None else out),
            settings=chosen,
            runtime=runtime,
            resume=resume,
            overwrite=overwrite,
        )
        results = run_suite(run, watcher)
    if out is not None:
        _write(Path(out), results)
    return results


def _name(model: str | Path | Model) -> str:
    return str(model.bundle.path if isinstance(model, Model) else model)


def _write(out: Path, results: SuiteResults) -> None:
    out.mkdir(parents=True, exist_ok=True)
    files.write_text(out / JSON, json.dumps(results.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    files.write_text(out / MARKDOWN, as_markdown(results))
