"""Fine-tune, as one call, on files or on what is in memory.

tagger = finetune("tag", "bert-base", train=frame, dev="dev.conll", crf=True)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from larvatus.bundle.directory import Bundle, load_bundle
from larvatus.errors import UsageError
from larvatus.labelled.in_memory import Examples
from larvatus.model import Model, load
from larvatus.tasks.examples import read_examples
from larvatus.tasks.fit.curve import read_shares
from larvatus.tasks.fit.finetune import Job
from larvatus.tasks.fit.job import job_of
from larvatus.tasks.fit.run import Order, run
from larvatus.tasks.registry import TaskName, column_names, reading_of, task_named


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
    """Fine-tune a model to `classify` texts, `tag` words, find nested `spans`, `answer` questions, `choose`, `prompt`.

    Args:
        task: `classify`, `tag`, `spans`, `answer`, `choose`, `prompt` or `write`.
        model: A model directory, a hub name, or a model that is loaded.
        train: Labelled examples: files (columns are guessed), a DataFrame, an Arrow table, a `datasets` object, a list
            of rows or of pairs (a text and its label; words and their tags), or what `larvatus.labelled` has read.
        dev: The same, held out; without it a tenth of the examples is held out at random.
        out: Where the model is saved; the run can then be resumed.
        resume: Go on with a run in `out` that was stopped.
        overwrite: Begin anew where a run or a model stands in `out`.
        **settings: Those of `larvatus finetune`: `epochs=3, batch=16, rate=5e-5, trained="lora", crf=True, seeds=3`, …;
            `group` names a column of `train` whose equal values are held out together; columns of files may be named,
            as in `text="review", label="stars"`.

    Returns:
        The fine-tuned model.

    Example:
        >>> examples = [("good fine good", "pos"), ("bad poor bad", "neg")] * 8
        >>> model = finetune("classify", directory, train=examples, epochs=1, device="cpu")
        >>> model("good fine").label in ("pos", "neg")
        True
    """
    task_named(task)
    loaded = model if isinstance(model, Model) else load(model, device=settings.get("device", "auto"))
    settings = {"device": str(loaded.device), **settings, "resume": resume, "overwrite": overwrite}
    order, job = prepare_finetuning(task, loaded.bundle, train=train, dev=dev, out=Path(out or ""), **settings)
    if out is None:
        return Model(order.finetune(order.train, job).bundle, loaded.device)
    run(order, job)
    return load(out, device=str(loaded.device))


def prepare_finetuning(
    task: TaskName, model: str | Path | Bundle, *, train: Examples, dev: Examples | None, out: Path, **settings: Any
) -> tuple[Order, Job]:
    """What `finetune` carries out, by `larvatus.tasks.fit.run.run`: the examples read, the settings checked.

    Settings are those of `finetune`: of the task, of training, of the run; names of columns, `group`, `curve`.
    """
    order = {name: settings.pop(name) for name in ("resume", "overwrite") if name in settings}
    group, curve = settings.pop("group", None), settings.pop("curve", None)
    columns = {name: settings.pop(name) for name in column_names() & settings.keys()}
    if group is not None and dev is not None:
        raise UsageError("group names a column of the files of train, of which some are held out: give no dev")
    job = job_of(task, settings)
    reading = reading_of(task, columns)
    shares = tuple(share for share in read_shares(curve) if share < 1) if curve is not None else ()
    bundle = model if isinstance(model, Bundle) else load_bundle(model)
    examples = read_examples(task, train, reading, group=group)
    return Order(
        task=task,
        bundle=bundle,
        name=str(bundle.path if isinstance(model, Bundle) else model),
        train=examples,
        dev=None if dev is None else read_examples(task, dev, reading, kind=examples.kind),
        out=out,
        curve=shares,
        how={"columns": columns, "by": group},
        **order,
    ), job
