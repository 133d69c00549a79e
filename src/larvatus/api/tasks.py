"""Fine-tune and evaluate, as one call each, on files or on what is in memory.

tagger = finetune("tag", "bert-base", train=frame, dev="dev.conll", crf=True)
evaluate(tagger, data=[(["Mt.", "Sanitas"], ["B-LOC", "I-LOC"])]).metrics
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from larvatus.engine.settings import Runtime
from larvatus.errors import UsageError, did_you_mean
from larvatus.labelled.groups import with_groups
from larvatus.labelled.in_memory import Examples, as_files
from larvatus.labelled.records import Dataset, Kind
from larvatus.model import Model, load
from larvatus.tasks.evaluation.evaluated import Evaluation
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.fit.job import job_of
from larvatus.tasks.fit.loop import scoring_of
from larvatus.tasks.fit.run import Order, run
from larvatus.tasks.registry import TaskName, task_named, task_of
from larvatus.tasks.scoring import head_of


def finetune(
    task: TaskName,
    model: str | Path | Model,
    *,
    train: Examples,
    dev: Examples | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    **settings: Any,
) -> Model:
    """Fine-tune a model to `classify` texts, `tag` words, find nested `spans` or `answer` questions.

    Args:
        task: `classify`, `tag`, `spans` or `answer`.
        model: A model directory, a hub name, or a model that is loaded.
        train: Labelled examples: files (columns are guessed), a DataFrame, an Arrow table, a `datasets` object, a list
            of rows or of pairs (a text and its label; words and their tags), or what `larvatus.labelled` has read.
        dev: The same, held out; without it a tenth of the examples is held out at random.
        out: Where the model is saved; the run can then be resumed.
        resume: Go on with a run in `out` that was stopped.
        overwrite: Begin anew where a run or a model stands in `out`.
        **settings: Those of `larvatus finetune`: `epochs=3, batch=16, rate=5e-5, trained="lora", crf=True, seeds=3`, …;
            `group` names a column of `train` whose equal values are held out together.

    Returns:
        The fine-tuned model.

    Example:
        >>> examples = [("good fine good", "pos"), ("bad poor bad", "neg")] * 8
        >>> model = finetune("classify", directory, train=examples, epochs=1, device="cpu")
        >>> model("good fine").label in ("pos", "neg")
        True
    """
    task_named(task)
    group = settings.pop("group", None)
    loaded = model if isinstance(model, Model) else load(model, device=settings.get("device", "auto"))
    job = job_of(task, {"device": str(loaded.device), **settings})
    examples = read_examples(task, train, group=group)
    if group is not None and dev is not None:
        raise UsageError("group names a column of the files of train, of which some are held out: give no dev")
    order = Order(
        task=task,
        bundle=loaded.bundle,
        name=str(loaded.bundle.path),
        train=examples,
        dev=None if dev is None else read_examples(task, dev, like=examples),
        out=Path(out or ""),
        resume=resume,
        overwrite=overwrite,
    )
    if out is None:
        return Model(order.finetune(examples, job).bundle, loaded.device)
    run(order, job)
    return load(out, device=str(loaded.device))


def evaluate(model: str | Path | Model, *, data: Examples, **settings: Any) -> Evaluation:
    """How well a fine-tuned model does its task on labelled examples: metrics with 95% intervals.

    Args:
        model: A directory of a fine-tuned model, or the model.
        data: Labelled examples, in any of the ways that `finetune` takes them.
        **settings: `merge`, `length`, `truncate`, `repair`, `strict`, `samples`, `seed`, and `device`.

    Returns:
        The evaluation: `.metrics["accuracy"].value`, `.low`, `.high`; it shows as a table in a notebook.

    Example:
        >>> accuracy = evaluate(classifier, data=[("good", "pos"), ("bad", "neg")], samples=50).metrics["accuracy"]
        >>> 0 <= accuracy.low <= accuracy.value <= accuracy.high <= 1
        True
    """
    loaded = model if isinstance(model, Model) else load(model, device=settings.pop("device", "auto"))
    runtime = Runtime.here(device=str(loaded.device), precision="fp32", compile=False)
    known = [name for name in EvaluationOptions.__dataclass_fields__ if name != "scoring"]
    for name in settings:
        if name not in known:
            raise UsageError(f"evaluate has no setting {name!r}{did_you_mean(name, known)}")
    options = EvaluationOptions(scoring=scoring_of(runtime), **settings)
    task, head = task_of(loaded.bundle), head_of(loaded.network, str(loaded.bundle.path))
    return task.evaluate(loaded.bundle, read_examples(task.name, data, kind=task.label_kind(head.config)), options)


def read_examples(
    task: TaskName,
    given: Examples,
    *,
    like: Dataset[Any] | None = None,
    kind: Kind | None = None,
    group: str | None = None,
) -> Dataset[Any]:
    """Labelled examples of a task, whatever they come in. `like`: training examples, whose kind of labels holds."""
    if isinstance(given, Dataset):
        if group is not None:
            raise UsageError("group names a column of the files of train, of which some are held out: give no dev")
        return given
    kind = kind or (None if like is None else like.kind)
    with as_files(given, task) as names:
        examples: Dataset[Any] = task_named(task).read(names, kind=kind)
        return examples if group is None else with_groups(examples, names, group)
