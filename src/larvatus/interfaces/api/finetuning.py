"""Fine-tune a model on files or on data in memory, and check labelled data before.

    print(check_data("tickets.csv"))
    tagger = finetune("tag", "bert-base", train=frame, dev="dev.conll", crf=True)
    print(tagger)                                            # its scores on validation examples

`others` trains further tasks with the first on one encoder: `{"spans": None, "classify": {"train": "topics.csv",
"weight": 0.5}}` (`--with spans --with classify=topics.csv` of the command; None reads the first task's files). `auto`
or `minutes` makes the run a search among candidates; it refuses options of training and head, which state what to
train.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

import msgspec
from msgspec import Struct

from larvatus.core import notebook
from larvatus.core.errors import UsageError
from larvatus.core.tables import render_text
from larvatus.data.labelled.check import check
from larvatus.data.labelled.in_memory import Examples, are_files
from larvatus.data.labelled.problems import Errors, Problems, Report
from larvatus.data.labelled.tables import path_strings
from larvatus.inference.model import Model, load
from larvatus.interfaces.api.task_settings import RunSettings, TuningMachine, split_columns
from larvatus.interfaces.settings import loaded_model
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.tasks.candidates.finetune import SearchRun
from larvatus.tasks.candidates.report import SearchReport
from larvatus.tasks.candidates.search import refuse_unsearchable
from larvatus.tasks.classify.options import ClassifyOptions
from larvatus.tasks.examples import read_examples, read_with_problems, task_of_file
from larvatus.tasks.multitask.arguments import MultiTaskOptions
from larvatus.tasks.multitask.data import TaskDatasets
from larvatus.tasks.registry import TaskName, get_task, parse_file_options, parse_options
from larvatus.tasks.trainer.config import READING, FineTuneArguments, TrainConfig, parse_arguments
from larvatus.tasks.trainer.finetune import FineTuneResult
from larvatus.tasks.trainer.finetune import finetune as finetune_examples
from larvatus.tasks.trainer.progress import FineTuneProgress, result_parts
from larvatus.tasks.trainer.run import FineTuneRun, data_warnings, read_shares, run_finetuning
from larvatus.tasks.trainer.trainable import TrainableConfig
from larvatus.training.engine.launch import launch
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Runtime

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import ColumnKeywords, FinetuneKeywords


Others = Mapping[str, object]
"""For each task its examples, None for those of the first task, or a mapping with `train`, `dev` and settings."""


@dataclass(frozen=True, kw_only=True)
class FirstExamples:
    """The examples of the first task, which others may read too."""

    train: Any
    dev: Any
    errors: Errors | None = None


def join_tasks(
    run: FineTuneRun, args: FineTuneArguments, others: Others, first: FirstExamples
) -> tuple[FineTuneRun, FineTuneArguments]:
    """The run and arguments of a first task with others on the same encoder, if there are others."""
    if not others:
        return run, args
    names = "+".join([run.task, *others])
    get_task(names)  # refuses tasks that cannot be trained together
    if run.curve:
        raise UsageError("a learning curve is of one task; leave out --curve, or the other tasks")
    train, dev = {run.task: run.train}, {run.task: run.dev} if run.dev is not None else {}
    options, how = {run.task: args.options}, {run.task: run.how}
    weights: dict[str, object] = {}
    for name, given in others.items():
        settings = dict(given) if isinstance(given, Mapping) and "train" in given else {"train": given}
        examples: Examples | None = settings.pop("train")
        held_out: Examples | None = settings.pop("dev", None)
        if examples is None and held_out is not None:
            raise UsageError(f"{name} reads the examples of {run.task}; name its own: --with {name}=FILE")
        if "weight" in settings:
            weights[name] = settings.pop("weight")
        columns, rest = split_columns(settings)
        options[name] = parse_options(name, rest)
        reading = parse_file_options(name, columns)
        train[name] = read_examples(name, first.train if examples is None else examples, reading, errors=first.errors)
        if (held_out := first.dev if examples is None else held_out) is not None:
            dev[name] = read_examples(name, held_out, reading, kind=train[name].kind, errors=first.errors)
        how[name] = {"columns": columns, "by": None}
    joined = dataclasses.replace(
        run, task=names, train=TaskDatasets.of(train), dev=TaskDatasets.of(dev) if dev else None, how=how
    )
    return joined, dataclasses.replace(args, options=MultiTaskOptions.of(options, weights))


def others_of_command(files: Sequence[str], dev: Sequence[str], settings: Mapping[str, Any]) -> Others:
    """What `--with`, `--with-dev` and `--set TASK.NAME=VALUE` say of other tasks."""
    others: dict[str, dict[str, Any]] = {}
    for flag, field, words in (("--with", "train", files), ("--with-dev", "dev", dev)):
        for word in words:
            name, equals, file = word.partition("=")
            get_task(name)
            if field == "dev" and (name not in others or not file):
                raise UsageError(f"{flag} {word}: give TASK=FILE, of a task with a file of its own: --with {name}=FILE")
            given = others.setdefault(name, {"train": None})
            if equals:
                given[field] = [*(given.get(field) or ()), file]
    for name, given in settings.items():
        others[name] |= given
    return others


# Search among candidates.

MINUTES = 2.0
"""Default time budget."""


def with_search(run: FineTuneRun, args: FineTuneArguments) -> FineTuneRun:
    """The run as a search, where that is requested; else itself."""
    options = args.options
    if not isinstance(options, ClassifyOptions) or run.task != "classify":
        return run
    if not options.auto and options.minutes is None:
        return run
    plain = ClassifyOptions(auto=options.auto, minutes=options.minutes)
    heads = [name for name in plain.__struct_fields__ if getattr(options, name) != getattr(plain, name)]
    if given := [*args.given, *heads, *(["curve"] if run.curve else [])]:
        raise UsageError(f"--auto chooses what is trained; leave it out, or {given[0]}")
    if launch().count > 1:
        raise UsageError("--auto searches on one process; start it without torchrun")
    refuse_unsearchable(run.train)
    fields = {field.name: getattr(run, field.name) for field in dataclasses.fields(run)}
    return SearchRun(**fields, minutes=MINUTES if options.minutes is None else options.minutes)


def finetune(
    task: TaskName,
    model: str | Path | Model | None = None,
    *,
    train: Examples,
    dev: Examples | None = None,
    others: Others | None = None,
    out: str | Path | None = None,
    errors: Errors = "refuse",
    quiet: bool = False,
    **settings: Unpack[FinetuneKeywords],
) -> FineTunedModel:
    """Fine-tune a model to classify texts, tag words, find nested spans, answer questions, embed texts, and more.

    Args:
        task: `classify`, `tag`, `spans`, `answer`, `choose`, `prompt`, `write`, `embed` or `rerank`.
        model: A model directory, a hub name, or a loaded model; by default the English model, where it is installed.
        train: Labelled examples: files (columns are guessed), a DataFrame, an Arrow table, a `datasets` object, a dict
            of columns, a list of rows or of pairs (a text and its label; words and their tags).
        dev: The same, held out; without it a tenth of the examples is held out at random.
        others: Other tasks to train on the same encoder, each with examples as in `train`, None for those of `train`,
            or a mapping of `train`, `dev`, `weight` (of its loss) and settings: `{"classify": "topics.csv"}`.
        out: Folder for the model, with its card and `metrics.jsonl`; the run can then be resumed.
        errors: Rows that cannot be used, such as those without text or label: `refuse` with one error, or `skip`.
        quiet: Show no progress, and not how the examples were read.
        **settings: Those of `larvatus finetune`: `epochs=3, batch=16, rate=5e-5, trained="lora", crf=True, seeds=3`, …;
            `resume=True` continues a run in `out` that was stopped, `overwrite=True` replaces what is there; `group`
            names a column of `train` whose equal values are held out together; columns of files may be named, as in
            `text="review", label="stars"`.

    Returns:
        The fine-tuned model. Printed, it is the table of its scores on held-out examples, which are `.scores`. With
        `auto`, `.search` has the candidates, and `.search.comparison` the difference from TF-IDF with its interval.

    Example:
        >>> examples = [("good fine good", "pos"), ("bad poor bad", "neg")] * 20
        >>> model = finetune("classify", directory, train=examples, epochs=1, device="cpu", quiet=True)
        >>> model("good fine").label in ("pos", "neg")
        True
        >>> model.metric, sorted(model.scores)[0]
        ('accuracy', 'accuracy')
    """
    get_task(task)
    loaded = loaded_model(model, settings.get("device", "auto"))
    followed = "watch" in settings  # by the caller, who shows and keeps what happens
    request, given = _split_request({"device": str(loaded.device), **settings}, errors)
    job = parse_arguments(task, given)
    order = prepare_finetuning(task, loaded.bundle, request, train=train, dev=dev, out=Path(out or ""))
    order, job = join_tasks(order, job, others or {}, FirstExamples(train=train, dev=dev, errors=errors))
    order = with_search(order, job)
    reporter = Reporter.on_stream(quiet=quiet or followed or not launch().main)
    with FineTuneProgress(reporter, None if out is None else Path(out)) as show:
        for part in filter(None, (order.train, order.dev)):
            show.say(part.describe())
        job = job if followed else dataclasses.replace(job, callbacks=show.callbacks)
        if out is not None:
            tuned = run_finetuning(order, job, show.point)
            return FineTunedModel.of(load(out, device=str(loaded.device)), tuned)
        tuned = _in_memory(order, job)
        return FineTunedModel.of(Model(tuned.bundle, loaded.device), tuned)


def _in_memory(order: FineTuneRun, job: FineTuneArguments) -> FineTuneResult:
    """A run without a directory."""
    for line in data_warnings(order.train, order.dev):
        job.say(line)
    if isinstance(order, SearchRun):
        return order.finetune(order.train, job)
    return finetune_examples(order.task, order.bundle, order.train, order.dev, job)


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """How labelled files are read, and how a run treats its directory."""

    columns: Mapping[str, Any]
    """Columns of the files by name; None: guessed."""
    errors: Errors | None = None
    group: str | None = None
    curve: str | None = None
    resume: bool = False
    overwrite: bool = False


def _split_request(keywords: Mapping[str, object], errors: Errors) -> tuple[RunRequest, dict[str, object]]:
    """The request, and the keywords of the job."""
    columns, others = split_columns(keywords)
    names = {"group", "curve", "resume", "overwrite"} & others.keys()
    given: dict[str, Any] = {name: others.pop(name) for name in names}
    return RunRequest(columns=columns, errors=errors, **given), others


def job_from(
    options: Struct, training: TrainConfig, chosen: RunSettings, machine: TuningMachine, *, hold_out: bool
) -> FineTuneArguments:
    """The job of `larvatus finetune`, from the structs of its options."""
    trained = TrainableConfig.read(chosen.trained or "all", layer_decay=chosen.layer_decay, head_rate=chosen.head_rate)
    return FineTuneArguments(
        config=msgspec.structs.replace(training, trained=trained),
        options=options,
        runtime=Runtime.here(compile=False, **msgspec.structs.asdict(machine)),
        seeds=tuple(range(chosen.seed, chosen.seed + chosen.seeds)),
        metric=chosen.metric,
        strict=chosen.strict,
        hold_out=hold_out,
        given=tuple(_given(training, chosen, hold_out=hold_out)),
    )


def _given(training: TrainConfig, chosen: RunSettings, *, hold_out: bool) -> Iterator[str]:
    """Flags that say what is trained and how, which turn the search of small data off."""
    for struct, names in (
        (training, set(TrainConfig.__struct_fields__) - {*READING, "trained"}),
        (chosen, ("trained", "layer_decay", "head_rate", "seeds")),
    ):
        usual = type(struct)()
        yield from (f"--{name.replace('_', '-')}" for name in names if getattr(struct, name) != getattr(usual, name))
    if not hold_out:
        yield "--no-dev"


def prepare_finetuning(
    task: TaskName,
    model: str | Path | Bundle,
    request: RunRequest,
    *,
    train: Examples,
    dev: Examples | None,
    out: Path,
) -> FineTuneRun:
    """Read the examples of a fine-tuning run, which `larvatus.tasks.trainer.run.run_finetuning` carries out."""
    if request.group is not None and dev is not None:
        raise UsageError("group names a column of the files of train, of which some are held out: give no dev")
    reading, errors = parse_file_options(task, request.columns), request.errors
    shares = () if request.curve is None else tuple(share for share in read_shares(request.curve) if share < 1)
    bundle = model if isinstance(model, Bundle) else load_bundle(model)
    examples = read_examples(task, train, reading, group=request.group, errors=errors)
    return FineTuneRun(
        task=task,
        bundle=bundle,
        name=str(bundle.path if isinstance(model, Bundle) else model),
        train=examples,
        dev=None if dev is None else read_examples(task, dev, reading, kind=examples.kind, errors=errors),
        out=out,
        resume=request.resume,
        overwrite=request.overwrite,
        curve=shares,
        how={"columns": dict(request.columns), "by": request.group},
    )


class FineTunedModel(Model):
    """A fine-tuned model; printed, it is the table of its scores on held-out examples."""

    scores: Mapping[str, float]
    """Metrics on held-out examples; empty where none were held out."""
    metric: str
    """Metric that selected the weights; empty where none were held out."""
    search: SearchReport | None
    """Candidates of a search (`auto`), with their scores."""

    @classmethod
    def of(cls, model: Model, tuned: FineTuneResult) -> FineTunedModel:
        """A loaded model with the result of its training; of the data nothing is kept."""
        made = cls(model.bundle, model.device, number=model.number, origin=model.origin)
        made.scores = dict(tuned.scores.values) if tuned.scores is not None else {}
        if tuned.search is not None and tuned.scores is None:
            made.scores = dict(tuned.search.values)
        made.metric = tuned.metric
        made.search = tuned.search
        held_out = f", scored on {len(tuned.dev):,}" if tuned.dev is not None else ""
        made._read = f"fine-tuned on {len(tuned.train):,} examples{held_out}"
        made._table = render_text(result_parts(tuned))
        return made

    def __str__(self) -> str:
        return "\n".join(filter(None, [repr(self), self._read, self._table]))

    def _repr_html_(self) -> str:
        rows = [(name, f"{value:.4f}") for name, value in self.scores.items()]
        return notebook.table(("metric", "held out"), rows, title=repr(self), note=self._read)

    _read: str
    _table: str


def check_data(
    train: Examples, dev: Examples | None = None, *, task: str | None = None, **columns: Unpack[ColumnKeywords]
) -> Report:
    """Find what would stop a training or spoil it: rows without text or label, duplicates, leaks, illegal tags.

    Args:
        train: Labelled examples, in any of the ways that `finetune` takes them.
        dev: Held-out examples, to find leaks.
        task: Read as `finetune` of this task reads. None: as files look; `classify` for what is in memory.
        **columns: Columns by name, as in `text="body", label="topic"`.

    Returns:
        The report: `.errors`, which would stop training, `.warnings`, `.balance` of labels; printed, it is text.

    Example:
        >>> report = check_data([("good fine", "pos"), ("bad", "neg"), ("poor", None), ("good fine", "pos")])
        >>> [(finding.name, finding.count) for finding in report.errors]
        [('no label', 1)]
    """
    name = task or (task_of_file(path_strings(cast(Any, train))[0]) if are_files(train) else "classify")
    reading, problems = parse_file_options(name, columns), Problems()
    examples = read_with_problems(name, train, reading, problems)
    held_out = None if dev is None else read_with_problems(name, dev, reading, problems, kind=examples.kind)
    return check(examples, held_out, problems=problems)
