"""`larvatus evaluate --data`, `--glue` and `--transfer`: fine-tuned models on labelled examples.

larvatus evaluate runs/rte --data test.tsv --against runs/other --plot confusion.png
larvatus evaluate runs/glue/* --glue glue/
larvatus evaluate runs/xnli-en --source en --transfer xnli/dev-*.tsv
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.markup import escape

from larvatus.core.errors import UsageError
from larvatus.core.outputs import check_outputs
from larvatus.core.settings import Flag, Settings
from larvatus.core.tables import Row, Table
from larvatus.data.bulk.row_files import row_file
from larvatus.data.labelled.glue import PUBLISHED, TASKS, GlueTask, glue_task
from larvatus.data.labelled.problems import Errors
from larvatus.data.labelled.squad import write_predictions
from larvatus.evaluation.compare.languages import TransferResult
from larvatus.inference.model.loading import LoadOptions
from larvatus.interfaces.api.evaluating import (
    LabelledSource,
    TaskScores,
    named_after,
    score_glue,
    score_languages,
    score_tasks,
)
from larvatus.interfaces.api.task_settings import EvaluationSettings
from larvatus.interfaces.cli.options import check_plot
from larvatus.interfaces.cli.output import show_part, show_report, wide_console
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.new_heads import sentence_bundle
from larvatus.tasks.evaluation.evaluation import Evaluation
from larvatus.tasks.evaluation.tables import draw_confusion
from larvatus.tasks.registry import task_of, tasks_of, with_task
from larvatus.tasks.scoring import head_of

TASK, LANGUAGES = "A fine-tuned model", "Other languages"


class EvaluateRequest(Settings):
    """Models, labelled examples and output files of an evaluation."""

    models: Annotated[tuple[Path, ...], Flag(argument=True, metavar="DIR...")]
    """A model directory; several for GLUE. After --transfer FILE, more files: the shell may expand a pattern."""
    data: Annotated[tuple[str, ...], Flag(metavar="FILE")] = ()
    """Labelled examples, for a fine-tuned model; repeatable. Of a model with several tasks, for all, or TASK=FILE. With
    --suite, the folder of its files."""
    against: Annotated[str | None, Flag(metavar="DIR")] = None
    """Another model to compare with."""
    as_json: Annotated[bool, Flag("--json")] = False
    """JSON for programs."""
    tasks: Annotated[tuple[str, ...], Flag("--task", metavar="NAME", panel=TASK)] = ()
    """Task of GLUE, one for each DIR; default: as DIR is named. With --data, one task of a model that has several."""
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
            name = next(iter(request.tasks), None)
            self.check_model(with_task(bundle, name))
            source = LabelledSource(data_by_task(request.data, tasks_of(bundle)), self.columns, request.errors)
            return score_tasks(bundle, source, options, against=against, task=name)
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
        if request.data and (request.glue or len(request.tasks) > 1 or set(request.tasks) & set(TASKS)):
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


def data_by_task(files: Sequence[str], tasks: Collection[str]) -> Sequence[str] | dict[str, list[str]]:
    """Files of labelled examples, those of each task apart where they are given as TASK=FILE."""
    named = [word.partition("=") for word in files]
    if len(tasks) < 2 or not any(name in tasks for name, equals, _ in named if equals):
        return files
    by_task: dict[str, list[str]] = {}
    for name, _, file in named:
        if name not in tasks or not file:
            raise UsageError(f"--data {name}: give TASK=FILE for every file, or for none; tasks: {', '.join(tasks)}")
        by_task.setdefault(name, []).append(file)
    return by_task


def write_scores(out: Path | None, results: Sequence[tuple[Row, Sequence[Row]]]) -> None:
    """Scores to a file: in full as JSONL and Parquet, a row for each metric as CSV and TSV."""
    if out is None:
        return
    with row_file(out) as write:
        for record, rows in results:
            write(record, rows)


def evaluate_languages(work: ExampleEvaluation) -> None:
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
    write_scores(work.out, [(table.to_dict(), table.to_dicts())])
    show_transfer(table, as_json=request.as_json)


def evaluate_task(work: ExampleEvaluation) -> None:
    """Check, evaluate, print."""
    work.check()
    request, scores = work.request, work.scores()
    drawn = _draw(request.plot, scores[0].evaluation)
    write_scores(work.out, [(each.to_dict(), each.to_dicts()) for each in scores])
    if request.predictions is not None and (answers := scores[0].evaluation.predictions) is not None:
        write_predictions(request.predictions, answers)
    if request.as_json:
        records = [each.to_dict() for each in scores]
        if work.machine.on_cpu:  # in other numbers than the weights': no figures for their card
            records = [{name: value for name, value in record.items() if name != "claims"} for record in records]
        plain = {"tasks": records} if request.data else {"tasks": records, "published": PUBLISHED}
        plain = records[0] if request.data and len(records) == 1 else plain
        print(json.dumps(plain, ensure_ascii=False, allow_nan=False))
        return
    _show(scores, glue=not request.data, written={"picture": drawn, "predictions": request.predictions})


def _show(scores: Sequence[TaskScores], *, glue: bool, written: Mapping[str, Path | None]) -> None:
    out = wide_console()
    for each in scores:
        if each.name and not glue:
            out.print(each.name, style="bold")
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


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.1f}"
