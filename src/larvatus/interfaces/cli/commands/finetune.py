"""`larvatus finetune TASK`: one command for each task of the registry, built from the task's options.

larvatus finetune classify --model DIR --train train.tsv --dev dev.tsv --out runs/mine
larvatus finetune tag --model DIR --train train.conll --dev dev.conll --out runs/ner --crf
larvatus finetune spans --model DIR --train train.conllu --dev dev.conllu --out runs/nested
larvatus finetune answer --model DIR --train train.json --dev dev.json --out runs/qa --length 384
larvatus finetune classify --model DIR --task rte --glue glue/ --out runs/rte --seeds 3
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
import typer
from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from typer.core import TyperCommand

from larvatus.core.errors import UsageError, printable
from larvatus.core.tables import Table
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.labelled.file_options import FileOptions, refusal
from larvatus.data.labelled.glue import PUBLISHED, GlueTask, glue_task, read_glue
from larvatus.data.labelled.glue import TASKS as GLUE_TASKS
from larvatus.interfaces.api.finetuning import (
    FirstExamples,
    Others,
    RunRequest,
    job_from,
    join_tasks,
    others_of_command,
    prepare_finetuning,
    with_search,
)
from larvatus.interfaces.api.task_settings import ExampleSettings, GlueSettings, RunSettings, TuningMachine
from larvatus.interfaces.cli.from_struct import Panel, StructOption, from_structs, settings_of
from larvatus.interfaces.cli.options import EXAMPLES, MACHINE, Encoding
from larvatus.interfaces.cli.output import Quiet, is_quiet, show_part
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.tasks.registry import TASKS, AnyTask, choices, parse_options, task_of
from larvatus.tasks.trainer.config import FineTuneArguments, TrainConfig
from larvatus.tasks.trainer.finetune import FineTuneResult, Spread, seed_spread
from larvatus.tasks.trainer.progress import FineTuneProgress, result_parts
from larvatus.tasks.trainer.run import (
    FineTuneRun,
    check_run_directory,
    has_finished_run,
    has_unfinished_run,
    run_finetuning,
)
from larvatus.tasks.trainer.save import read_history
from larvatus.training.engine.launch import launch
from larvatus.training.engine.reporter import Reporter

TRAINING, RUN = "Training", "The run"
FIRST = ("model", "train", "dev", "out")

app = typer.Typer(
    help="Fine-tune a model on labelled examples, select the best checkpoint on validation examples, and calibrate it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneRequest:
    """Options of one `larvatus finetune` command."""

    task: AnyTask
    files: ExampleSettings
    reading: FileOptions
    run: RunSettings
    job: FineTuneArguments
    others: Others = dataclasses.field(default_factory=dict)
    """Tasks that are trained with it."""

    def check(self) -> None:
        files = self.files
        if files.no_dev and (files.dev or files.others_dev or self.run.curve):
            raise UsageError("--no-dev holds nothing out, so it goes with neither --dev nor --curve")
        if files.group is not None and (files.dev or files.no_dev):
            raise UsageError("--group sets what is held out together, so it cannot be combined with --dev or --no-dev")

    def order(self, model: Bundle | str, train: Any, dev: Any, out: Path) -> tuple[FineTuneRun, FineTuneArguments]:
        request = RunRequest(
            columns=msgspec.structs.asdict(self.reading),
            errors=self.files.errors,
            group=self.files.group,
            curve=self.run.curve,
            resume=self.run.resume,
            overwrite=self.run.overwrite,
        )
        order = prepare_finetuning(self.task.name, model, request, train=train, dev=dev, out=out)
        order = dataclasses.replace(order, name=self.files.model_name)
        return join_tasks(order, self.job, self.others, FirstExamples(train=train, dev=dev, errors=self.files.errors))


def command_of(task: AnyTask) -> Callable[..., None]:
    """`larvatus finetune` of one task."""

    def finetune(
        files: Annotated[ExampleSettings, Panel(EXAMPLES, first=FIRST)],
        options: Struct,
        training: Annotated[TrainConfig, Panel(TRAINING, first=("epochs",), without=("clip", "trained"))],
        chosen: Annotated[RunSettings, Panel(RUN, first=("seeds",))],
        reading: FileOptions,
        glue: GlueSettings,
        machine: Annotated[TuningMachine, Panel(MACHINE)],
        encoding: Encoding = None,  # holds while the command runs
        quiet: Quiet = False,
    ) -> None:
        names = {word.partition("=")[0] for word in files.others}
        words = [word for word in chosen.settings if word.partition(".")[0] not in names]
        of_others = by_name([word for word in chosen.settings if word not in words])
        others = others_of_command(files.others, files.others_dev, of_others)
        chosen_options = with_settings(task.name, options, words)
        job = job_from(chosen_options, training, chosen, machine, hold_out=not files.no_dev)
        request = FinetuneRequest(task=task, files=files, reading=reading, run=chosen, job=job, others=others)
        request.check()
        console = Console(highlight=False, quiet=not launch().main)
        if glue.glue_tasks is None:
            _on_files(request, glue, console)
        else:
            _on_glue(request, glue, console)

    columns = task.Reading.__struct_fields__
    finetune.__annotations__ |= {
        "options": Annotated[task.Options, Panel(f"The head, for {task.name}")],
        "reading": Annotated[task.Reading, Panel(EXAMPLES)] if columns else task.Reading,
        "glue": Annotated[GlueSettings, Panel("GLUE", without=() if task.of_glue else GlueSettings.__struct_fields__)],
    }
    finetune.__doc__ = task.title
    return from_structs(finetune)


def _on_files(request: FinetuneRequest, glue: GlueSettings, console: Console) -> None:
    files = request.files
    others = [word.partition("=")[2] for word in (*files.others, *files.others_dev)]
    read = [files.model_name, *files.train, *files.dev, *filter(None, others)]
    if launch().main:  # the others would find what it has begun
        check_run_directory(files.out, resume=request.run.resume, overwrite=request.run.overwrite, inputs=read)
    if not files.train or glue.glue is not None:
        other = ", or a task of GLUE with --task NAME --glue DIR" if request.task.of_glue else ""
        raise UsageError(f"name labelled examples with --train FILE{other}")
    order, job = request.order(files.model_name, files.train, files.dev or None, files.out)
    _carry_out(with_search(order, job), job, console)


def _carry_out(order: FineTuneRun, job: FineTuneArguments, console: Console) -> FineTuneResult:
    reporter = Reporter(Console(highlight=False, quiet=is_quiet() or not launch().main))
    with FineTuneProgress(reporter, order.out) as show:
        for part in (order.train, order.dev):
            if part is not None:
                show.say(part.describe())
        tuned = run_finetuning(order, dataclasses.replace(job, callbacks=show.callbacks), show.point)
    show_result(console, tuned, order.out)
    return tuned


def _on_glue(request: FinetuneRequest, glue: GlueSettings, console: Console) -> None:
    """One task into --out, several into folders of it; a table with published scores at the end."""
    files = request.files
    if glue.glue is None or files.train or files.dev or files.no_dev or request.reading != type(request.reading)():
        raise UsageError(
            "--task goes with finetune classify and --glue DIR, in place of --train, --dev and names of columns"
        )
    if files.group is not None or files.others:
        raise UsageError("--task is trained by itself and knows its held-out examples; leave out --group and --with")
    bundle = load_bundle(files.model_name)
    names = str(glue.glue_tasks)
    tasks = list(GLUE_TASKS.values()) if names == "all" else [glue_task(name) for name in names.split(",")]
    done: list[tuple[GlueTask, Spread]] = []
    for task in tasks:
        place = files.out if len(tasks) == 1 else files.out / task.name
        console.print(f"[bold]{task.title}[/]")
        if request.run.resume and len(tasks) > 1 and has_finished_run(place) and not has_unfinished_run(place):
            console.print(f"{place} is done already", markup=False, soft_wrap=True)
            done.append((task, seed_spread(read_history(place))))
            continue
        data = read_glue(task.name, glue.glue)
        order, job = request.order(bundle, data.train, next(iter(data.dev.values())), place)
        job = dataclasses.replace(job, metric=job.metric or task.metrics[0])
        done.append((task, _carry_out(order, job, console).spread))
    _published(done, console)


def _published(done: Sequence[tuple[GlueTask, Spread]], console: Console) -> None:
    ours = [spread.get(task.metrics[0], (math.nan, 0.0)) for task, spread in done]
    rows = [("this model (dev)", *(f"{100 * mean:.1f} ± {100 * spread:.1f}" for mean, spread in ours))]
    for system, scores in PUBLISHED.items():
        rows.append((system, *(f"{scores[task.name]:.1f}" if task.name in scores else "–" for task, _ in done)))
    columns = ("", *(f"{task.title} {task.metrics[0]}" for task, _ in done))
    show_part(console, Table(columns, rows, title="next to published scores (test sets, %)"))


def with_settings(task: str, options: Struct, words: Sequence[str]) -> Struct:
    """Options as flags gave them, with those that are set by name."""
    return parse_options(task, _merged(_changed(options), by_name(words))) if words else options


def by_name(words: Sequence[str]) -> dict[str, Any]:
    """Settings as a tree of names."""
    tree: dict[str, Any] = {}
    for word in words:
        path, equals, value = word.partition("=")
        refuse_surrogates(word, "--set")
        if not equals:
            raise UsageError(f"--set {word} is not name=value, such as longest=8")
        *groups, name = path.split(".")
        place = tree
        for group in groups:
            place = place.setdefault(group, {})
            if not isinstance(place, dict):
                raise UsageError(f"--set {word}: {group} is set already, as a whole")
        place[name] = value
    return tree


def _changed(options: Struct) -> dict[str, Any]:
    """Fields that differ from their defaults, by name."""
    usual, given = (msgspec.to_builtins(struct) for struct in (type(options)(), options))
    return {name: value for name, value in given.items() if value != usual[name]}


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The second over the first, group by group."""
    both = dict(first)
    for name, value in second.items():
        inner = both.get(name)
        both[name] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return both


_BadCommand: Any = typer.BadParameter.__mro__[1]  # click's own, wherever this typer keeps its click


class TaskCommand(TyperCommand):
    """`larvatus finetune tag`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except _BadCommand as fault:
            if (option := getattr(fault, "option_name", None)) is not None:
                refuse_of_others(TASKS[str(self.name)], option, given)
            elif (parameter := getattr(fault, "param", None)) is not None:
                _refuse_choice(str(self.name), parameter, given)
            raise


def refuse_of_others(task: AnyTask, option: str, given: Sequence[str]) -> None:
    """Name the task that has this option; nothing if none has."""
    owners = [
        (other, kind, setting)
        for other in TASKS.values()
        for kind, setting in _settings(other)
        if option in setting.flags
    ]
    if not owners:
        return
    names = " and ".join(dict.fromkeys(other.name for other, _, _ in owners))
    owner, kind, setting = owners[0]
    if kind is owner.Reading:
        words = refusal(task.Reading, [option.removeprefix("--")], owner.Reading)
        raise UsageError(f"{words} ({option} belongs to finetune {names})")
    value = "" if setting.is_switch else f" {_value(option, given)}".rstrip()
    raise UsageError(f"{option}{value} belongs to finetune {names}, not {task.name}")


def _refuse_choice(name: str, parameter: Any, given: Sequence[str]) -> None:
    """A word that an option of the task cannot be, in the words of Python."""
    hint = get_type_hints(TASKS[name].Options).get(parameter.name)
    if hint is not None and choices(hint):
        parse_options(name, {parameter.name: next(filter(None, (_value(option, given) for option in parameter.opts)))})


def _settings(task: AnyTask) -> Iterator[tuple[type[Struct], StructOption]]:
    for kind in (task.Options, task.Reading, *((GlueSettings,) if task.of_glue else ())):
        yield from ((kind, setting) for setting in settings_of(kind))


def _value(option: str, given: Sequence[str]) -> str:
    """What follows an option on the command line."""
    for word, following in zip(given, [*given[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else following
    return ""


def show_result(console: Console, tuned: FineTuneResult, out: Path) -> None:
    """What was reached, and what to do next."""
    for part in result_parts(tuned):
        show_part(console, part)
    taken = sum(path.stat().st_size for path in out.iterdir() if path.is_file())
    console.print(
        f"saved {escape(printable(str(out)))} ({taken / 1e6:,.0f} MB, a model directory; its card is README.md)",
        soft_wrap=True,
        highlight=False,
    )
    if is_quiet():
        return
    words = task_of(tuned.bundle).card.command
    console.print(f"next: larvatus predict {escape(printable(str(out)))} {words}", soft_wrap=True, highlight=False)


for kind in TASKS.values():
    app.command(kind.name, cls=TaskCommand, rich_help_panel="Tasks")(command_of(kind))
