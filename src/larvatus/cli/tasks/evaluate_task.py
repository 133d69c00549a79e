"""`larvatus evaluate DIR --data FILE`: how well a fine-tuned model does its task, alone or against another.

larvatus evaluate runs/rte --data test.tsv --against runs/other --plot confusion.png
larvatus evaluate runs/qa --data dev-v2.0.json --predictions predictions.json
larvatus evaluate runs/glue/* --glue glue/
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from larvatus.bundle.directory import Bundle, load_bundle
from larvatus.cli.tasks.evaluate_tables import console, show_comparison, show_evaluation, show_glue
from larvatus.cli.tasks.labelled import Labelled
from larvatus.errors import UsageError
from larvatus.labelled.glue import PUBLISHED, TASKS, GlueTask, glue_task, read_glue
from larvatus.labelled.records import Dataset
from larvatus.labelled.squad_file import write_predictions
from larvatus.outputs import check_outputs
from larvatus.plots import check_can_draw
from larvatus.tasks.evaluation.comparison import ModelComparison, compare_evaluations
from larvatus.tasks.evaluation.confusion_picture import draw_confusion
from larvatus.tasks.evaluation.evaluated import Evaluation
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.registry import AnyTask, task_named, task_of
from larvatus.tasks.scoring import head_of


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command was given."""

    models: Sequence[Path]
    data: Sequence[str] = ()
    against: Path | None = None
    tasks: Sequence[str] = ()
    glue: Path | None = None
    plot: Path | None = None
    predictions: Path | None = None
    overwrite: bool = False
    reading: Labelled = field(default_factory=Labelled)
    options: EvaluationOptions = field(default_factory=EvaluationOptions)
    as_json: bool = False

    @property
    def any(self) -> bool:
        """Whether a task is to be evaluated at all."""
        return bool(self.data or self.tasks or self.glue or self.against or self.plot or self.predictions)


@dataclass(frozen=True, kw_only=True)
class _Evaluated:
    name: str
    """Of a task of GLUE, with its own name for the mismatched set of MNLI."""
    task: GlueTask | None
    found: Evaluation
    comparison: ModelComparison | None

    def to_dict(self) -> dict[str, Any]:
        record: dict[str, Any] = {}
        if self.task is not None:
            record = {"task": self.name, "decides": self.task.metrics[0]}
        record |= self.found.to_dict()
        return record if self.comparison is None else {**record, "comparison": self.comparison.to_dict()}


def evaluate_task(asked: Asked) -> None:
    """Check, evaluate, print."""
    _check(asked)
    if asked.data:
        bundle = load_bundle(asked.models[0])
        examples = _read(asked, bundle, asked.models[0])
        done = [_evaluated(asked, bundle, examples, of_task=task_of(bundle))]
    else:
        done = _over_glue(asked)
    drawn = _draw(asked, done[0].found)
    if asked.predictions is not None and (answers := done[0].found.predictions) is not None:
        write_predictions(asked.predictions, answers)
    if asked.as_json:
        records = [one.to_dict() for one in done]
        plain = records[0] if asked.data else {"tasks": records, "published": PUBLISHED}
        print(json.dumps(plain, ensure_ascii=False, allow_nan=False))
        return
    out = console()
    for one in done:
        show_evaluation(out, one.found)
        if one.comparison is not None:
            show_comparison(out, one.comparison)
        out.print()
    if not asked.data:
        show_glue(out, [(one.name, one.task, one.found) for one in done if one.task is not None])
    for what, path in (("picture", drawn), ("predictions", asked.predictions)):
        if path:
            out.print(f"{what}: {path}", markup=False, soft_wrap=True)


def _check(asked: Asked) -> None:
    if asked.data and (asked.tasks or asked.glue):
        raise UsageError("give one of the two: --data FILE, or --task NAME with --glue DIR")
    if not asked.data and asked.glue is None:
        wanted = "--glue DIR, which holds GLUE's files" if asked.tasks else "labelled data: --data FILE"
        raise UsageError(f"a task is evaluated on {wanted}")
    if asked.glue is not None and asked.reading != Labelled():
        raise UsageError("the columns of GLUE's files are known; leave them away, or name a file: --data FILE")
    if asked.tasks and len(asked.tasks) != len(asked.models):
        raise UsageError(
            f"{len(asked.models)} directories but {len(asked.tasks)} tasks; give --task once for each, in their order"
        )
    if asked.predictions is not None and not asked.data:
        raise UsageError("--predictions are answers to questions; give them with --data FILE")
    if len(asked.models) > 1 and (asked.data or asked.against or asked.plot):
        raise UsageError("--data, --against and --plot want one directory; compare two by --against OTHER_DIR")
    if asked.plot is not None:
        if asked.plot.suffix != ".png":
            raise UsageError(f"--plot {asked.plot} must end in .png")
        check_can_draw()
    read: list[str | Path] = [
        *asked.models,
        *asked.data,
        *(one for one in (asked.against, asked.glue) if one is not None),
    ]
    check_outputs(asked.plot, asked.predictions, overwrite=asked.overwrite, inputs=read)


def _read(asked: Asked, bundle: Bundle, model: Path) -> Dataset[Any]:
    """What the model's head is held against; what cannot go with it is refused before anything is scored."""
    task, head = task_of(bundle), head_of(bundle.network, str(model))
    if asked.predictions is not None and not task.answers_by_id:
        raise UsageError(f"{model} does not answer questions; --predictions is for models that do (larvatus predict)")
    _check_plot(asked, bundle)
    return asked.reading.read(task.name, asked.data, kind=task.label_kind(head.config))


def _check_plot(asked: Asked, bundle: Bundle) -> None:
    if asked.plot is not None and not task_of(bundle).tells_classes_apart(head_of(bundle.network).config):
        raise UsageError(f"{bundle.path} does not tell classes apart: no confusion matrix to draw; leave --plot away")


def _evaluated(
    asked: Asked,
    bundle: Bundle,
    data: Dataset[Any],
    *,
    of_task: AnyTask,
    name: str = "",
    task: GlueTask | None = None,
) -> _Evaluated:
    _check_plot(asked, bundle)
    found = of_task.evaluate(bundle, data, asked.options)
    comparison = None
    if asked.against is not None:
        other = of_task.evaluate(load_bundle(asked.against), data, asked.options)
        comparison = compare_evaluations(other, found, samples=asked.options.samples, seed=asked.options.seed)
    return _Evaluated(name=name, task=task, found=found, comparison=comparison)


def _over_glue(asked: Asked) -> list[_Evaluated]:
    assert asked.glue is not None
    tasks = [glue_task(name) for name in asked.tasks] or [_named_after(model) for model in asked.models]
    done = []
    for model, task in zip(asked.models, tasks, strict=True):
        bundle = load_bundle(model)
        data = read_glue(task.name, asked.glue, splits=("dev",))
        for dev, examples in data.dev.items():
            name = task.name if dev == task.dev[0] else f"{task.name}-mm"
            done.append(_evaluated(asked, bundle, examples, of_task=task_named("classify"), name=name, task=task))
    return done


def _named_after(model: Path) -> GlueTask:
    """The task that a directory has its name from."""
    try:
        return glue_task(model.absolute().name)
    except UsageError as unknown:
        raise UsageError(
            f"{model} is not named after a task of GLUE ({', '.join(TASKS)}); say which it does: --task NAME"
        ) from unknown


def _draw(asked: Asked, found: Evaluation) -> str:
    if asked.plot is None or found.confusions is None:
        return ""
    name, best = next((name, one.value) for name, one in found.metrics.items())
    title = f"{Path(found.model).name} · {Path(found.data.source).name} · {name} {best:.3f}"
    draw_confusion(*found.confusions, asked.plot, title=title)
    return str(asked.plot)
