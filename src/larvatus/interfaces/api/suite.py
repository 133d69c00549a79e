"""A whole suite of measurements of a model, as one call.

results = evaluate_suite("runs/mine", data="data/", out="runs/suite", beside="minilm")
results.figure("blimp").value
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from larvatus.core import files
from larvatus.core.errors import UsageError
from larvatus.core.settings import Settings
from larvatus.evaluation.cards.claims import suite_claims
from larvatus.evaluation.suite.language import NAME as LANGUAGE
from larvatus.evaluation.suite.language import language_suite
from larvatus.evaluation.suite.part import DataFolder, Suite, SuiteModel, SuiteSettings
from larvatus.evaluation.suite.results import ROLES, SuiteResults, as_markdown
from larvatus.evaluation.suite.run import SuiteRun, get_suite, run_suite
from larvatus.inference.model import Model
from larvatus.interfaces.settings import read_settings
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Runtime

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import EvaluateSuiteKeywords

JSON, MARKDOWN = "suite.json", "suite.md"


class SuiteRunSettings(Settings):
    """Device of a suite, and what happens to results that are in `out`."""

    resume: bool = False
    """Take what is measured as it is, and measure the rest."""
    overwrite: bool = False
    """Measure again what is there."""
    device: str = "auto"
    """auto, cpu or cuda."""
    treebank: tuple[str, ...] = ()
    """Treebank of the suite `language` in CoNLL-U: a file, a fifth of which is scored, or two; the second is scored."""
    corpus: str | None = None
    """Held-out text of the suite `language`."""


def evaluate_suite(
    model: str | Path | Model,
    *,
    data: str | Path | None = None,
    suite: str = "english",
    beside: str | Path | Model | None = None,
    out: str | Path | None = None,
    quiet: bool = False,
    to_stderr: bool = False,
    **settings: Unpack[EvaluateSuiteKeywords],
) -> SuiteResults:
    """Measure a model on all parts of a suite: hidden words, grammar, fine-tuned tasks, meanings, isotropy.

    Args:
        model: A model directory, a hub name, or a loaded model (its directory is read again).
        data: The folder of the files of the suite `english`; docs/suite.md describes its layout.
        suite: Which one: `english`, or `language`, which is made from a treebank.
        beside: A second model, measured on the same.
        out: Where results go, a file for each part as soon as it is measured; all of them in `suite.json`, `suite.md`.
        quiet: Show no progress.
        to_stderr: Write progress to standard error.
        **settings: `only`, `leave_out`: names of parts; `quick`; of fine-tuning `examples`, `epochs`, `rate`, `seeds`,
            `precision`, `microbatch`; of word vectors `layers`; of the suite `language` `treebank` (one or two files)
            and `corpus` (held-out text); `resume` takes what `out` holds and measures the rest,
            `overwrite` measures it again; `device`.

    Returns:
        Every figure with its interval, of this run and of those before it in `out`; it shows as a table in a notebook.

    Example:
        >>> evaluate_suite("runs/mine", data="my_texts", only="blimp", quiet=True)
        Traceback (most recent call last):
        larvatus.core.errors.DataError: --data my_texts holds the files of no requested part (…)
    """
    chosen, running = read_settings(_as_lists(settings), SuiteSettings, SuiteRunSettings, function="evaluate_suite")
    reporter = Reporter.on_stream(quiet=quiet, stderr=to_stderr)
    return run_suite_evaluation(
        model, chosen, running, data=data, suite=suite, beside=beside, out=out, reporter=reporter
    )


def run_suite_evaluation(
    model: str | Path | Model,
    chosen: SuiteSettings,
    running: SuiteRunSettings,
    *,
    data: str | Path | None,
    suite: str,
    beside: str | Path | Model | None,
    out: str | Path | None,
    reporter: Reporter,
) -> SuiteResults:
    """Run `evaluate_suite` from structs."""
    if (running.resume or running.overwrite) and out is None:
        raise UsageError("--resume and --overwrite need --out, the directory with the results of a run")
    if running.resume and running.overwrite:
        raise UsageError("give one of the two: --resume keeps what is measured, --overwrite measures it again")
    with tempfile.TemporaryDirectory() as aside:
        place = Path(aside if out is None else out)
        run = _run(chosen, running, suite=suite, data=data, models=(model, beside), out=place)
        results = run_suite(run, reporter)
        results = dataclasses.replace(results, claims=suite_claims(results, run.subjects[0]))
    if out is not None:
        _write(Path(out), results)
    return results


def _run(
    chosen: SuiteSettings,
    running: SuiteRunSettings,
    *,
    suite: str,
    data: str | Path | None,
    models: tuple[str | Path | Model | None, ...],
    out: Path,
) -> SuiteRun:
    """The run, after its settings are checked."""
    wanted, folder = _suite(suite, data, running)
    wanted.chosen(chosen.only, chosen.leave_out)
    runtime = Runtime.here(
        device=running.device, precision=chosen.precision, compile=False, microbatch=chosen.microbatch
    )
    return SuiteRun(
        suite=wanted,
        subjects=tuple(
            SuiteModel(role, str(model.bundle.path if isinstance(model, Model) else model), runtime.device)
            for role, model in zip(ROLES, models, strict=True)
            if model is not None
        ),
        data=folder,
        out=out,
        settings=chosen,
        runtime=runtime,
        resume=running.resume,
        overwrite=running.overwrite,
    )


def _suite(name: str, data: str | Path | None, running: SuiteRunSettings) -> tuple[Suite, DataFolder]:
    """A suite and its files: a folder with fixed names, or a treebank and text."""
    if name == LANGUAGE:
        if data is not None or not running.treebank:
            raise UsageError("the suite language reads --treebank FILE and --corpus FILE, and no --data")
        return language_suite(running.treebank, running.corpus)
    if running.treebank or running.corpus is not None:
        raise UsageError(f"--treebank and --corpus are for the suite language, not {name}; give --suite language")
    wanted = get_suite(name)
    if data is None:
        raise UsageError(f"the suite {name} reads its files from one folder: --data DIR (see docs/suite.md)")
    return wanted, DataFolder.open(data)


def _as_lists(settings: Mapping[str, object]) -> dict[str, object]:
    """Names of parts may be one word with commas between; a treebank may be one path."""
    lists = dict(settings)
    for name in ("only", "leave_out"):
        if isinstance(value := lists.get(name), str):
            lists[name] = value.split(",")
    if isinstance(value := lists.get("treebank"), str | Path):
        lists["treebank"] = [value]
    return lists


def _write(out: Path, results: SuiteResults) -> None:
    out.mkdir(parents=True, exist_ok=True)
    files.write_text(out / JSON, json.dumps(results.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    files.write_text(out / MARKDOWN, as_markdown(results))
