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
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from rich.console import Console
from rich.markup import escape

from larvatus.core.errors import UsageError
from larvatus.core.flags import Flag
from larvatus.core.outputs import check_outputs
from larvatus.core.settings import Settings
from larvatus.core.tables import Table
from larvatus.core.tabular import Row
from larvatus.data.bulk.row_files import check_row_file, row_file
from larvatus.data.labelled.glue import PUBLISHED, GlueTask, glue_task
from larvatus.data.labelled.problems import Errors
from larvatus.data.labelled.squad import write_predictions
from larvatus.data.text.streams import labelled_encoding
from larvatus.evaluation.compare.transfer import TransferResult
from larvatus.evaluation.suite.results import as_table
from larvatus.evaluation.suite.settings import SuiteSettings
from larvatus.evaluation.suite.suites import SuiteName
from larvatus.inference.model.loading import LoadOptions
from larvatus.interfaces.api.evaluating import (
    COLUMNS,
    HeldOutSettings,
    TaskScores,
    named_after,
    read_for,
    score_examples,
    score_glue,
    score_languages,
    score_text,
)
from larvatus.interfaces.api.suite import JSON, MARKDOWN, SuiteRunSettings, run_suite_evaluation
from larvatus.interfaces.api.task_settings import EvaluationSettings
from larvatus.interfaces.cli.commands.data import Columns
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.options import READING, Machine, MixedText, TextSources, check_plot
from larvatus.interfaces.cli.progress import is_quiet, report_skipped_counts
from larvatus.interfaces.cli.tables import print_json, show_part, show_report, wide_console
from larvatus.interfaces.cli.vector_evaluation import VectorFlags, measure_vectors
from larvatus.interfaces.settings import TextSettings
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.new_heads import sentence_bundle
from larvatus.tasks.evaluation.evaluation import Evaluation
from larvatus.tasks.evaluation.tables import draw_confusion
from larvatus.tasks.registry import is_finetuned, task_of
from larvatus.tasks.scoring import head_of
from larvatus.training.engine.reporter import Reporter, rich_table

TASK, LANGUAGES, SUITE, VECTORS = "A fine-tuned model", "Other languages", "A suite", "Vectors"
SUITE_WIDTH = 320
"""Characters of a line of the table of a suite, where the output is not a terminal."""


class EvaluateRequest(Settings):
    """Models, labelled examples and output files of an evaluation."""

    models: Annotated[tuple[Path, ...], Flag(argument=True, metavar="DIR...")]
    """A model directory; several for GLUE. After --transfer FILE, more files: the shell may expand a pattern."""
    data: Annotated[tuple[str, ...], Flag(metavar="FILE")] = ()
    """Labelled examples, for a fine-tuned model; repeatable. With --suite, the folder of its files."""
    against: Annotated[str | None, Flag(metavar="DIR")] = None
    """Another model to compare with."""
    as_json: Annotated[bool, Flag("--json")] = False
    """JSON for programs."""
    tasks: Annotated[tuple[str, ...], Flag("--task", metavar="NAME", panel=TASK)] = ()
    """Task of GLUE, one for each DIR; default: as DIR is named."""
    glue: Annotated[Path | None, Flag(metavar="DIR", panel=TASK)] = None
    """Directory of GLUE's files."""
    plot: Annotated[Path | None, Flag(metavar="PNG", panel=TASK)] = None
    """Draw the confusion matrix."""
    predictions: Annotated[Path | None, Flag(metavar="FILE", panel=TASK)] = None
    """Answers to questions by id, for official scorers."""
    errors: Annotated[Errors, Flag(panel=TASK)] = "refuse"
    """Rows of --data that cannot be used, without text or label: refuse with a list of all, or skip them."""
    overwrite: Annotated[bool, Flag(panel=TASK)] = False
    """Replace files that exist; never those that are read."""
    transfer: Annotated[tuple[str, ...], Flag(metavar="FILE", panel=LANGUAGES)] = ()
    """Labelled examples in several languages, one table over all: dev-de.tsv, de/test.conll, de=FILE; repeatable."""
    source: Annotated[str | None, Flag(metavar="xx", panel=LANGUAGES)] = None
    """With --transfer: language of the fine-tuning examples; default: from the names of the training files."""
    metric: Annotated[str | None, Flag(metavar="NAME", panel=LANGUAGES)] = None
    """With --transfer: metric of the table; default: the first of the task, F1 for entities."""

    @property
    def of_task(self) -> bool:
        """Whether options of a task are given."""
        return bool(self.data or self.tasks or self.glue or self.against or self.plot or self.predictions)

    @property
    def beyond_data(self) -> bool:
        """Whether options of tasks or languages other than --data are given."""
        of_task = self.tasks or self.glue or self.against or self.plot or self.predictions
        return bool(of_task or self.transfer or self.source or self.metric)


class SuiteRequest(SuiteSettings):
    """A suite of measurements, and where its results go."""

    suite: SuiteName | None = None
    """Measure a model on all parts of a suite, whose files are in --data DIR."""
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
    """Evaluate a model: masked loss, perplexity and accuracy on validation text (--corpus), with fixed masks.

    Of a fine-tuned model, on labelled examples (--data, or --glue): metrics with 95% intervals, classes, confusions,
    entity errors, calibration; of spans types and depths, of answers exact match and F1; two models by paired tests
    (--against); one table over languages (--transfer). Of any model: a suite of measurements (--suite), or its
    vectors of texts on a task (--vectors).
    """
    if of_suite.suite is not None:
        if request.beyond_data or text.corpus or text.languages or shown.by or columns:
            raise UsageError("--suite cannot be combined; leave out --corpus, --against, --glue, --transfer, columns")
        _measure_suite(request, machine, of_suite)
        return
    of_suite.refuse_alone()
    read: list[str | Path] = [*request.models, *request.data, *request.transfer, *text.corpus]
    check_outputs(of_suite.out, overwrite=request.overwrite, inputs=read)
    check_row_file(of_suite.out)
    on_examples = ExampleEvaluation(request=request, machine=machine, chosen=chosen, columns=columns, out=of_suite.out)
    if of_vectors.vectors is not None:
        if request.beyond_data or text.corpus or text.languages or shown.by:
            raise UsageError("--vectors cannot be combined; leave out --corpus, --against, --glue, --transfer")
        with labelled_encoding(reading.encoding):
            measure_vectors(on_examples, of_vectors)
        return
    of_vectors.refuse_alone()
    if request.transfer:
        if request.of_task or text.corpus or text.languages or shown.by:
            raise UsageError("--transfer cannot be combined; leave out --data, --against, --glue, --plot, --corpus …")
        with labelled_encoding(reading.encoding):
            _over_languages(on_examples)
        return
    if request.source or request.metric:
        raise UsageError("--source and --metric are for a table over languages; name its files: --transfer FILE")
    if request.of_task:
        if text.corpus or text.languages or shown.by:
            raise UsageError("give one of the two: --corpus for masked words, or --data and the like for a task")
        with labelled_encoding(reading.encoding):
            _on_task(on_examples)
        return
    _on_text(on_examples, text, shown, reading)


@dataclass(frozen=True, kw_only=True)
class ExampleEvaluation:
    """Evaluation of models on labelled examples."""

    request: EvaluateRequest
    machine: LoadOptions
    chosen: EvaluationSettings
    columns: Mapping[str, Any]
    out: Path | None = None
    """File of the scores."""

    def scores(self) -> list[TaskScores]:
        request, options = self.request, self.chosen.options(str(self.machine.torch_device()))
        against = None if request.against is None else sentence_bundle(load_bundle(request.against))
        if request.data:
            bundle = sentence_bundle(self.machine.bundle(request.models[0]))
            self.check_model(bundle)
            examples = read_for(bundle, request.data, self.columns, errors=request.errors)
            return [score_examples(bundle, examples, options, against=against, columns=self.columns)]
        tasks = [glue_task(name) for name in request.tasks] or [named_after(model) for model in request.models]
        scores: list[TaskScores] = []
        for model, task in zip(request.models, tasks, strict=True):
            bundle = self.machine.bundle(model)
            self.check_model(bundle)
            scores += score_glue(bundle, task, str(request.glue), options, against=against)
        return scores

    def check_model(self, bundle: Bundle) -> None:
        """Refuse outputs that a model cannot give, before anything is scored."""
        task, head, request = task_of(bundle), head_of(bundle.network, str(bundle.path)), self.request
        if request.predictions is not None and not task.answers_by_id:
            raise UsageError(
                f"{bundle.path} does not answer questions; --predictions is for models that do (larvatus predict)"
            )
        if request.plot is not None and not task.tells_classes_apart(head.config):
            raise UsageError(f"{bundle.path} has no classes, so there is no confusion matrix; leave --plot out")

    def check(self) -> None:
        request = self.request
        if request.data and (request.tasks or request.glue):
            raise UsageError("give one of the two: --data FILE, or --task NAME with --glue DIR")
        if not request.data and request.glue is None:
            wanted = "--glue DIR, which holds GLUE's files" if request.tasks else "labelled data: --data FILE"
            raise UsageError(f"a task is evaluated on {wanted}")
        if request.glue is not None and self.columns:
            raise UsageError("the columns of GLUE's files are known; leave them out, or name a file: --data FILE")
        if request.tasks and len(request.tasks) != len(request.models):
            raise UsageError(
                f"{len(request.models)} directories but {len(request.tasks)} tasks; "
                "give --task once for each, in their order"
            )
        if request.predictions is not None and not request.data:
            raise UsageError("--predictions are answers to questions; give them with --data FILE")
        if len(request.models) > 1 and (request.data or request.against or request.plot):
            raise UsageError("--data, --against and --plot need one directory; compare two by --against OTHER_DIR")
        check_plot(request.plot)
        read: list[str | Path] = [*request.models, *request.data]
        read += [path for path in (request.against, request.glue) if path is not None]
        check_outputs(request.plot, request.predictions, overwrite=request.overwrite, inputs=read)


def _measure_suite(request: EvaluateRequest, machine: LoadOptions, chosen: SuiteRequest) -> None:
    """Measure, then print the table or the JSON."""
    if len(request.models) != 1:
        raise UsageError("a suite measures one model; name one directory, and a second by --beside DIR")
    if len(request.data) != 1:
        raise UsageError("a suite reads its files from one folder: --data DIR (see docs/suite.md)")
    if machine.on_cpu:
        raise UsageError(f"a suite fine-tunes, which {machine.on_cpu} cannot; leave out --quantise and --runtime")
    results = run_suite_evaluation(
        request.models[0],
        SuiteSettings(**{name: getattr(chosen, name) for name in SuiteSettings.__struct_fields__}),
        SuiteRunSettings(resume=chosen.resume, overwrite=request.overwrite, device=machine.device),
        data=request.data[0],
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
    _write_scores(work.out, [(row, [row]) for row in rows])
    if request.as_json:
        plain = rows if machine.on_cpu else scores.to_dicts(each=shown.by == "language")
        print_json(plain)
    else:
        show_text(str(model), rows, generator=bundle.network.generator is not None)


def _write_scores(out: Path | None, results: Sequence[tuple[Row, Sequence[Row]]]) -> None:
    """Scores to a file: in full as JSONL and Parquet, a row for each metric as CSV and TSV."""
    if out is None:
        return
    with row_file(out) as write:
        for record, rows in results:
            write(record, rows)


def _over_languages(work: ExampleEvaluation) -> None:
    """One table. Where the shell has expanded a pattern after --transfer, its other files are among the models."""
    request, (model, *more) = work.request, work.request.models
    table = score_languages(
        work.machine.bundle(model),
        [*request.transfer, *map(str, more)],
        work.columns,
        work.chosen.options(str(work.machine.torch_device())),
        source=request.source,
        metric=request.metric,
    )
    _write_scores(work.out, [(table.to_dict(), table.to_dicts())])
    show_transfer(table, as_json=request.as_json)


def _on_task(work: ExampleEvaluation) -> None:
    """Check, evaluate, print."""
    work.check()
    request, scores = work.request, work.scores()
    drawn = _draw(request.plot, scores[0].evaluation)
    _write_scores(work.out, [(each.to_dict(), each.to_dicts()) for each in scores])
    if request.predictions is not None and (answers := scores[0].evaluation.predictions) is not None:
        write_predictions(request.predictions, answers)
    if request.as_json:
        records = [each.to_dict() for each in scores]
        if work.machine.on_cpu:  # in other numbers than the weights': no figures for their card
            records = [{name: value for name, value in record.items() if name != "claims"} for record in records]
        plain = records[0] if request.data else {"tasks": records, "published": PUBLISHED}
        print(json.dumps(plain, ensure_ascii=False, allow_nan=False))
        return
    _show(scores, glue=not request.data, written={"picture": drawn, "predictions": request.predictions})


def _show(scores: Sequence[TaskScores], *, glue: bool, written: Mapping[str, Path | None]) -> None:
    out = wide_console()
    for each in scores:
        show_report(out, each.evaluation.parts())
        if each.mix is not None:
            out.print(str(each.mix))
        if each.comparison is not None:
            out.print()
            show_report(out, each.comparison.parts())
        out.print()
    if glue:
        show_glue(out, [(each.name, each.task, each.evaluation) for each in scores if each.task is not None])
    for what, path in written.items():
        if path is not None:
            out.print(f"{what}: {path}", markup=False, soft_wrap=True)


def _draw(plot: Path | None, evaluation: Evaluation) -> Path | None:
    if plot is None or evaluation.confusions is None:
        return None
    name, best = next((name, metric.value) for name, metric in evaluation.metrics.items())
    title = f"{Path(evaluation.model).name} · {Path(evaluation.data.source).name} · {name} {best:.3f}"
    draw_confusion(*evaluation.confusions, plot, title=title)
    return plot


def show_glue(out: Console, scores: Sequence[tuple[str, GlueTask, Evaluation]]) -> None:
    """Print our scores next to the published ones, in percent."""
    systems = {"here (dev)": [_percent(each.metrics[task.metrics[0]].value) for _, task, each in scores]}
    for system, published in PUBLISHED.items():
        systems[system] = [_percent(published[name] / 100) if name in published else "–" for name, _, _ in scores]
    columns = ["", *(f"{name}\n{task.metrics[0]}" for name, task, _ in scores)]
    table = Table(columns, [[system, *row] for system, row in systems.items()])
    out.print()
    show_part(out, table)
    out.print("published: Devlin et al. (2019), table 1, on the test sets, which GLUE's server scores; ours on dev")


def show_transfer(table: TransferResult, *, as_json: bool) -> None:
    """One model over languages."""
    if as_json:
        print(json.dumps(table.to_dict(), ensure_ascii=False, allow_nan=False))
        return
    out = wide_console()
    out.print(escape(f"{table.model}: {table.metric} by language"))
    show_report(out, table.shown())


TITLES = {"accuracy": "right", "unigram_accuracy": "unigram right", "fertility": "fert."}


def show_text(model: str, rows: Sequence[Mapping[str, Any]], *, generator: bool) -> None:
    """Scores of held-out text, a row for each language."""
    columns = [TITLES.get(name, name.replace("_", " ")) for name in COLUMNS]
    cells = [[form.format(row[name]) for name, form in COLUMNS.items()] for row in rows]
    out = Console(highlight=False)
    show_part(out, Table(columns, cells, title=model))
    if generator:
        out.print("masked tokens were predicted by the generator, as in fill and score", soft_wrap=True)


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.1f}"
