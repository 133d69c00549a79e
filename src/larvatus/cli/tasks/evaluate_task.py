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
from larvatus.heads import Answering, Classification, Spans
from larvatus.labelled.glue import PUBLISHED, TASKS, GlueTask, glue_task, read_glue
from larvatus.labelled.records import Dataset, QuestionExample, SpannedWords, TextExample
from larvatus.labelled.squad_file import write_predictions
from larvatus.outputs import check_outputs
from larvatus.plots import check_can_draw
from larvatus.tasks.answers.evaluation import AnswerEvaluation, evaluate_answers
from larvatus.tasks.evaluation.comparison import Evaluation, ModelComparison, compare_evaluations
from larvatus.tasks.evaluation.confusion_picture import draw_confusion
from larvatus.tasks.evaluation.evaluated import TagEvaluation, TextEvaluation
from larvatus.tasks.evaluation.evaluation import EvaluationOptions, evaluate_tags, evaluate_texts
from larvatus.tasks.scoring import head_of
from larvatus.tasks.spans.evaluation import evaluate_spans


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
        done = [_evaluated(asked, bundle, _read(asked, bundle, asked.models[0]))]
    else:
        done = _over_glue(asked)
    drawn = _draw(asked, done[0].found)
    if asked.predictions is not None and isinstance(done[0].found, AnswerEvaluation):
        write_predictions(asked.predictions, done[0].found.predictions)
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
    head = head_of(bundle.network, str(model))
    if asked.predictions is not None and not isinstance(head, Answering):
        raise UsageError(f"{model} does not answer questions; --predictions is for models that do (larvatus predict)")
    if asked.plot is not None and isinstance(head, Spans | Answering):
        raise UsageError(f"{model} does not tell classes apart: no confusion matrix to draw; leave --plot away")
    if isinstance(head, Classification):
        return asked.reading.texts(asked.data, kind=head.config.kind)
    if isinstance(head, Spans):
        return asked.reading.spanned(asked.data)
    if not isinstance(head, Answering):
        return asked.reading.tagged(asked.data)
    return asked.reading.read("answer", asked.data)


def _evaluated(
    asked: Asked,
    bundle: Bundle,
    data: Dataset[Any],
    *,
    name: str = "",
    task: GlueTask | None = None,
) -> _Evaluated:
    head = head_of(bundle.network, str(bundle.path))
    if asked.plot is not None and isinstance(head, Classification) and head.config.kind != "multi-class":
        raise UsageError(f"{bundle.path} does not tell classes apart: no confusion matrix to draw; leave --plot away")
    found = _evaluate(bundle, data, asked.options)
    comparison = None
    if asked.against is not None:
        other = _evaluate(load_bundle(asked.against), data, asked.options)
        comparison = compare_evaluations(other, found, samples=asked.options.samples, seed=asked.options.seed)
    return _Evaluated(name=name, task=task, found=found, comparison=comparison)


def _evaluate(bundle: Bundle, data: Dataset[Any], options: EvaluationOptions) -> Evaluation:
    one = data.examples[0]
    if isinstance(one, TextExample):
        return evaluate_texts(bundle, data, options)
    if isinstance(one, SpannedWords):
        return evaluate_spans(bundle, data, options)
    if isinstance(one, QuestionExample):
        return evaluate_answers(bundle, data, options)
    return evaluate_tags(bundle, data, options)


def _over_glue(asked: Asked) -> list[_Evaluated]:
    assert asked.glue is not None
    tasks = [glue_task(name) for name in asked.tasks] or [_named_after(model) for model in asked.models]
    done = []
    for model, task in zip(asked.models, tasks, strict=True):
        bundle = load_bundle(model)
        data = read_glue(task.name, asked.glue, splits=("dev",))
        for dev, examples in data.dev.items():
            name = task.name if dev == task.dev[0] else f"{task.name}-mm"
            done.append(_evaluated(asked, bundle, examples, name=name, task=task))
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
    if asked.plot is None or not isinstance(found, TextEvaluation | TagEvaluation) or found.confusion is None:
        return ""
    name, best = next((name, one.value) for name, one in found.metrics.items())
    title = f"{Path(found.model).name} · {Path(found.data.source).name} · {name} {best:.3f}"
    draw_confusion(found.confusion, found.labels, asked.plot, title=title)
    return str(asked.plot)
