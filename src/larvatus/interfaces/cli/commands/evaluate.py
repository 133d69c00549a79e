"""`larvatus evaluate`: masked-token loss and accuracy on validation text, overall or by language; scores of a
fine-tuned model on its task, optionally compared with another model; or a suite of measurements.

larvatus evaluate runs/two --language sw=held_out/sw.txt --language en=held_out/en.txt --by language
larvatus evaluate runs/rte --data test.tsv --against runs/other --plot confusion.png
larvatus evaluate runs/qa --data dev-v2.0.json --predictions predictions.json
larvatus evaluate runs/glue/* --glue glue/
larvatus evaluate runs/faq --vectors sts --data sts.tsv --baselines
larvatus evaluate runs/xnli-en --source en --transfer xnli/dev-*.tsv
larvatus evaluate runs/mine --suite english --data data/ --out runs/suite --beside minilm
larvatus evaluate runs/mine --suite english --data data/ --out runs/suite --resume --only blimp,ewt
larvatus evaluate runs/mine --suite language --treebank train.conllu --treebank dev.conllu --corpus held_out.txt
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from rich.console import Console

from larvatus.core.errors import UsageError
from larvatus.core.outputs import check_outputs
from larvatus.core.settings import Flag, Settings
from larvatus.core.tables import Table
from larvatus.data.bulk.row_files import check_row_file
from larvatus.data.text.streams import labelled_encoding
from larvatus.evaluation.suite.part import SuiteSettings
from larvatus.evaluation.suite.results import as_table
from larvatus.evaluation.suite.run import SuiteName
from larvatus.inference.model.loading import LoadOptions
from larvatus.interfaces.api.suite import JSON, MARKDOWN, SuiteRunSettings, run_suite_evaluation
from larvatus.interfaces.api.task_settings import EvaluationSettings
from larvatus.interfaces.api.text_evaluation import (
    COLUMNS,
    HeldOutSettings,
    VectorEvaluationSettings,
    run_vector_evaluation,
    score_text,
)
from larvatus.interfaces.cli.commands.data import Columns
from larvatus.interfaces.cli.example_evaluation import (
    TASK,
    EvaluateRequest,
    ExampleEvaluation,
    evaluate_languages,
    evaluate_task,
    write_scores,
)
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.options import READING, Machine, MixedText, TextSources
from larvatus.interfaces.cli.output import (
    ProgressReporter,
    is_quiet,
    print_json,
    report_skipped_counts,
    show_part,
    wide_console,
)
from larvatus.interfaces.settings import TextSettings
from larvatus.tasks.registry import is_finetuned
from larvatus.training.engine.reporter import Reporter, rich_table

SUITE, VECTORS = "A suite", "Vectors"
SUITE_WIDTH = 320
"""Characters of a line of the table of a suite, where the output is not a terminal."""


class SuiteRequest(SuiteSettings):
    """A suite of measurements, and where its results go."""

    suite: SuiteName | None = None
    """Measure a model on all parts of a suite: english, whose files are in --data DIR, or language."""
    treebank: Annotated[tuple[str, ...], Flag("--treebank", metavar="FILE")] = ()
    """CoNLL-U for --suite language: one file, a fifth of which is scored, or two, the second of which is scored."""
    beside: Annotated[str | None, Flag(metavar="DIR")] = None
    """A second model, in a column next to the first."""
    out: Annotated[Path | None, Flag(metavar="PATH")] = None
    """Directory of the results, part by part; without --suite, a file of the scores: .jsonl, .csv, .tsv or .parquet."""
    resume: bool = False
    """Take what --out holds, and measure what is missing."""


class VectorFlags(VectorEvaluationSettings):
    """What vectors are measured by, and the training examples."""

    train: Annotated[tuple[str, ...], Flag(metavar="FILE")] = ()
    """Training examples of classification, to sample from; repeatable."""


class ValidationTextSettings(HeldOutSettings):
    """Amount of validation text, and rows of the table."""

    by: Literal["language"] | None = None
    """language: a row for each language."""


@from_structs
def evaluate(
    request: Annotated[EvaluateRequest, Panel()],
    machine: Machine,
    text: MixedText,
    shown: Annotated[ValidationTextSettings, Panel("Validation text")],
    chosen: Annotated[EvaluationSettings, Panel(TASK)],
    columns: Columns,
    reading: Annotated[TextSettings, Panel(READING, without=("language", "licence", "text"))],
    of_suite: Annotated[SuiteRequest, Panel(SUITE, first=("suite",))],
    of_vectors: Annotated[VectorFlags, Panel(VECTORS, without=("samples",))],
) -> None:
    """Evaluate a fine-tuned model on labelled data (--data), masked words on text (--corpus), or a suite (--suite).

    On text: masked loss, perplexity and accuracy with fixed masks. On labelled examples (--data, or --glue):
    metrics with 95% intervals, classes, confusions, entity errors, calibration; of spans types and depths, of
    answers exact match and F1; two models by paired tests (--against); one table over languages (--transfer). Of
    any model: a suite of measurements (--suite), or its vectors of texts on a task (--vectors).
    """
    if of_suite.suite is not None:
        of_text = text.corpus and of_suite.suite != "language"
        if request.beyond_data or of_text or text.languages or shown.by or columns:
            raise UsageError("--suite cannot be combined; leave out --corpus, --against, --glue, --transfer, columns")
        _measure_suite(request, machine, of_suite, text.corpus)
        return
    if flag := _changed_flag(of_suite, "out"):
        raise UsageError(
            f"{flag} is for a suite of measurements; name one: --suite english --data DIR, or --suite language"
        )
    read: list[str | Path] = [*request.models, *request.data, *request.transfer, *text.corpus]
    check_outputs(of_suite.out, overwrite=request.overwrite, inputs=read)
    check_row_file(of_suite.out)
    on_examples = ExampleEvaluation(request=request, machine=machine, chosen=chosen, columns=columns, out=of_suite.out)
    if of_vectors.vectors is not None:
        if request.beyond_data or text.corpus or text.languages or shown.by:
            raise UsageError("--vectors cannot be combined; leave out --corpus, --against, --glue, --transfer")
        with labelled_encoding(reading.encoding):
            _measure_vectors(on_examples, of_vectors)
        return
    if flag := _changed_flag(of_vectors):
        raise UsageError(f"{flag} is for vectors; name the measurement: --vectors sts --data FILE")
    if request.transfer:
        if request.of_task or text.corpus or text.languages or shown.by:
            raise UsageError("--transfer cannot be combined; leave out --data, --against, --glue, --plot, --corpus …")
        with labelled_encoding(reading.encoding):
            evaluate_languages(on_examples)
        return
    if request.source or request.metric:
        raise UsageError("--source and --metric are for a table over languages; name its files: --transfer FILE")
    if request.of_task:
        if text.corpus or text.languages or shown.by:
            raise UsageError("give one of the two: --corpus for masked words, or --data and the like for a task")
        with labelled_encoding(reading.encoding):
            evaluate_task(on_examples)
        return
    _on_text(on_examples, text, shown, reading)


def _changed_flag(given: Settings, *without: str) -> str | None:
    """The first option that is not at its default."""
    defaults = type(given)()
    changed = (name for name in given.__struct_fields__ if getattr(given, name) != getattr(defaults, name))
    return next((f"--{name.replace('_', '-')}" for name in changed if name not in without), None)


def _measure_vectors(work: ExampleEvaluation, flags: VectorFlags) -> None:
    """Measure, then write the rows, or print a table or JSON."""
    request = work.request
    if len(request.models) != 1 or not request.data:
        raise UsageError("vectors of one model are measured on files: name one directory, and --data FILE")
    fields = {name: getattr(flags, name) for name in VectorEvaluationSettings.__struct_fields__}
    chosen = VectorEvaluationSettings(**{**fields, "samples": work.chosen.samples})
    loaded = work.machine.load(str(request.models[0]))
    with ProgressReporter("vectors") as progress:
        result = run_vector_evaluation(
            loaded,
            list(request.data),
            chosen,
            train=list(flags.train) or None,
            columns=work.columns,
            errors=request.errors,
            progress=progress,
        )
    write_scores(work.out, [(result.to_dict(), result.to_dicts())])
    if request.as_json:
        print_json(result.to_dict())
    else:
        show_part(wide_console(), result.table())


def _measure_suite(request: EvaluateRequest, machine: LoadOptions, chosen: SuiteRequest, corpus: Sequence[str]) -> None:
    """Measure, then print the table or the JSON."""
    if len(request.models) != 1:
        raise UsageError("a suite measures one model; name one directory, and a second by --beside DIR")
    if len(request.data) > 1 or len(corpus) > 1:
        raise UsageError("a suite reads one folder (--data DIR) or one text (--corpus FILE); see docs/suite.md")
    if machine.on_cpu:
        raise UsageError(f"a suite fine-tunes, which {machine.on_cpu} cannot; leave out --quantise and --runtime")
    results = run_suite_evaluation(
        request.models[0],
        SuiteSettings(**{name: getattr(chosen, name) for name in SuiteSettings.__struct_fields__}),
        SuiteRunSettings(
            resume=chosen.resume,
            overwrite=request.overwrite,
            device=machine.device,
            treebank=chosen.treebank,
            corpus=corpus[0] if corpus else None,
        ),
        data=request.data[0] if request.data else None,
        suite=str(chosen.suite),
        beside=chosen.beside,
        out=chosen.out,
        reporter=Reporter.on_stream(quiet=is_quiet(), stderr=request.as_json),
    )
    if request.as_json:
        print(json.dumps(results.to_dict(), ensure_ascii=False, allow_nan=False))
        return
    wide = wide_console(SUITE_WIDTH, markup=False, emoji=False)
    wide.print()
    wide.print(rich_table(as_table(results)))
    if chosen.out is not None:
        wide.print(f"results: {chosen.out / JSON} · {chosen.out / MARKDOWN}", soft_wrap=True)


def _on_text(work: ExampleEvaluation, text: TextSources, shown: ValidationTextSettings, reading: TextSettings) -> None:
    """Evaluate masked words of validation text."""
    request, machine, chosen, columns = work.request, work.machine, work.chosen, work.columns
    if len(request.models) > 1:
        raise UsageError("held-out text is read by one model at a time; name one directory")
    (model,) = request.models
    bundle = machine.bundle(model)
    if not (text.corpus or text.languages) and is_finetuned(bundle):
        raise UsageError(f"{model} was fine-tuned; give labelled examples: --data FILE, or --glue DIR")
    if columns.keys() - {"text"} or chosen != EvaluationSettings(samples=chosen.samples, merge=chosen.merge):
        flags = "columns, --truncate, --repair, --strict and --length"
        raise UsageError(f"{flags} are for labelled examples; name some: --data FILE")
    given, how = text.read_with(msgspec.structs.replace(reading, text=columns.get("text")))
    scores = score_text(bundle, given, how, device=str(machine.torch_device()), tokens=shown.tokens)
    rows = scores.rows(each=shown.by == "language")
    report_skipped_counts(scores.skipped)
    write_scores(work.out, [(row, [row]) for row in rows])
    if request.as_json:
        plain = rows if machine.on_cpu else scores.to_dicts(each=shown.by == "language")
        print_json(plain)
    else:
        show_text(str(model), rows, generator=bundle.network.generator is not None)


TITLES = {"accuracy": "right", "unigram_accuracy": "unigram right", "fertility": "fert."}


def show_text(model: str, rows: Sequence[Mapping[str, Any]], *, generator: bool) -> None:
    """Scores of held-out text, a row for each language."""
    columns = [TITLES.get(name, name.replace("_", " ")) for name in COLUMNS]
    cells = [[form.format(row[name]) for name, form in COLUMNS.items()] for row in rows]
    out = Console(highlight=False)
    show_part(out, Table(columns, cells, title=model))
    if generator:
        out.print("masked tokens were predicted by the generator, as in fill and score", soft_wrap=True)
