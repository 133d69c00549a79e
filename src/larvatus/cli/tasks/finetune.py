"""`larvatus finetune`: a classifier, a tagger, a finder of spans or an answerer from a model and labelled examples.

larvatus finetune classify --model DIR --train train.tsv --dev dev.tsv --out runs/mine
larvatus finetune tag --model DIR --train train.conll --dev dev.conll --out runs/ner --crf
larvatus finetune spans --model DIR --train train.conllu --dev dev.conllu --out runs/nested
larvatus finetune answer --model DIR --train train.json --dev dev.json --out runs/qa --length 384
larvatus finetune classify --model DIR --task rte --glue glue/ --out runs/rte --seeds 3
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from larvatus.bundle.directory import load_bundle
from larvatus.cli.numbers import MICROBATCH, SEEDS, ranged
from larvatus.cli.options import Device, Encoding, ModelName, Overwrite
from larvatus.cli.tasks.finetuning import Show, show_result
from larvatus.cli.tasks.labelled import (
    Group,
    Header,
    Label,
    Labelled,
    Labels,
    Length,
    Merge,
    Pair,
    Quoting,
    Repair,
    Separator,
    Strict,
    Tag,
    Text,
    Truncate,
    Word,
)
from larvatus.engine.settings import Runtime
from larvatus.errors import UsageError
from larvatus.heads.trunk import Dense
from larvatus.labelled.glue import PUBLISHED, TASKS, GlueTask, glue_task, read_glue
from larvatus.ranges import (
    COUNT,
    COUNT_OR_NONE,
    DECAY,
    DROPOUT,
    FACTOR,
    FOCAL,
    POSITIVE_SHARE,
    RATE,
    SEED,
    SIZE,
    SIZE_OR_NONE,
)
from larvatus.tasks.fit.curve import read_shares
from larvatus.tasks.fit.finetune import Job, Spread, Tuned, spread_of
from larvatus.tasks.fit.run import Order, is_begun, is_done, refuse_what_is_there, run
from larvatus.tasks.fit.save import read_history
from larvatus.tasks.fit.settings import FineTuneConfig
from larvatus.tasks.fit.trained import TrainedConfig
from larvatus.tasks.registry import TaskName, options_of
from larvatus.text.surrogates import refuse_surrogates
from larvatus.text.tag_schemes import Scheme

Files = Annotated[list[str] | None, typer.Option(metavar="FILE", help="Labelled examples to learn; repeatable.")]
HeldOutFiles = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE", help="Held-out examples, to choose and calibrate by; default: a tenth of --train."),
]
GlueTasks = Annotated[
    str | None, typer.Option("--task", metavar="NAME", help="A task of GLUE by name, several with commas, or all.")
]
GlueDir = Annotated[Path | None, typer.Option("--glue", metavar="DIR", help="With --task: the directory of GLUE.")]
Weights = Annotated[
    list[str] | None, typer.Option(metavar="NAME=W", help="How much a class counts, or balanced; repeatable.")
]


def finetune(
    task: Annotated[TaskName, typer.Argument(help="Classify texts or pairs, tag words, find spans, answer questions.")],
    model: ModelName,
    out: Annotated[Path, typer.Option(help="Where the fine-tuned model goes.")],
    train: Files = None,
    dev: HeldOutFiles = None,
    no_dev: Annotated[bool, typer.Option("--no-dev", help="Hold nothing out: no scores, the last weights.")] = False,
    glue_tasks: GlueTasks = None,
    glue: GlueDir = None,
    text: Text = None,
    pair: Pair = None,
    label: Label = None,
    labels: Labels = None,
    separator: Separator = None,
    header: Header = None,
    quoting: Quoting = None,
    encoding: Encoding = None,  # holds while the command runs
    group: Group = None,
    word: Word = None,
    tag: Tag = None,
    trained: Annotated[str, typer.Option(help="What learns: all, head, last2, lora, lora16.")] = "all",
    epochs: Annotated[int | None, ranged(COUNT, help="Passes over the examples; default: more of few.")] = None,
    batch: Annotated[int, ranged(SIZE, help="Texts of a step, however they are split.")] = 32,
    rate: Annotated[float | None, ranged(RATE, help="Peak learning rate; default: by task and --trained.")] = None,
    head_rate: Annotated[float | None, ranged(FACTOR, help="Rate of the head, times --rate; default: by task.")] = None,
    layer_decay: Annotated[float, ranged(POSITIVE_SHARE, help="Rate of a layer as a share of the one above.")] = 1.0,
    decay: Annotated[float, ranged(DECAY, help="Weight decay.")] = 0.01,
    warmup: Annotated[float, ranged(DROPOUT, help="Share of the steps in which the rate rises.")] = 0.1,
    patience: Annotated[
        int | None,
        ranged(
            COUNT_OR_NONE,
            help="Evaluations without gain after which to stop; 0: never; default: half of all, at least 10.",
        ),
    ] = None,
    evaluations: Annotated[int, ranged(COUNT, help="Evaluations in an epoch.")] = 2,
    metric: Annotated[str | None, typer.Option(help="By which the best is chosen; default: by the labels.")] = None,
    seeds: Annotated[int, ranged(SEEDS, help="Models to train, from seeds 0, 1, …; the best is kept.")] = 1,
    seed: Annotated[int, ranged(SEED, help="The first seed.")] = 0,
    curve: Annotated[str | None, typer.Option(metavar="10,30,100%", help="Scores of smaller shares too.")] = None,
    pool: Annotated[
        Literal["cls", "first", "mean", "max"] | None,
        typer.Option(help="Of a text: cls, mean, max; of a word's subwords: first, mean, max."),
    ] = None,
    dense: Annotated[Dense | None, typer.Option(help="Layer before the classes; none: W_C alone.")] = None,
    dropout: Annotated[float | None, ranged(DROPOUT, help="Dropout before the classes or tags; default 0.1.")] = None,
    mix: Annotated[bool, typer.Option("--mix", help="Read a learned mix of all layers (ELMo).")] = False,
    class_weight: Weights = None,
    focal: Annotated[float, ranged(FOCAL, help="γ of the focal loss; 0: cross-entropy.")] = 0.0,
    smoothing: Annotated[float, ranged(DROPOUT, help="Share of a target that is spread over all classes.")] = 0.0,
    crf: Annotated[bool, typer.Option("--crf", help="A CRF over the tags: learned transitions.")] = False,
    lstm: Annotated[int, ranged(SIZE_OR_NONE, help="Size of a BiLSTM over the words; 0: none.")] = 0,
    learn: Annotated[
        Literal["subwords", "words"], typer.Option(help="The gold tag stands on every subword, or on the word.")
    ] = "subwords",
    scheme: Annotated[Scheme | None, typer.Option(help="Scheme of tags to learn; others are converted.")] = None,
    repair: Repair = False,
    strict: Strict = False,
    length: Length = None,
    truncate: Truncate = False,
    merge: Merge = "mean",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Of spans and answer, such as longest=8; repeatable."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, if one was begun.")] = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
    precision: Annotated[str, typer.Option(help="fp32, bf16 (mixed, on a GPU), or auto.")] = "auto",
    microbatch: Annotated[
        int | None, ranged(MICROBATCH, help="Tokens of one pass; gradients add up to a step.")
    ] = None,
) -> None:
    """Fine-tune a model on labelled examples, choose the best weights on held-out ones, calibrate, and save."""
    console = Console(highlight=False)
    own = TrainedConfig.read(trained, layer_decay=layer_decay, head_rate=head_rate)
    config = FineTuneConfig(
        epochs=epochs, batch=batch, rate=rate, decay=decay, warmup=warmup, patience=patience, evaluations=evaluations,
        length=length, truncate=truncate, trained=own,
    )  # fmt: skip
    balanced, weights = _weights(class_weight or [])
    chosen = {
        "pool": pool, "dense": dense, "dropout": dropout, "mix": mix, "balanced": balanced, "class_weights": weights,
        "focal": focal, "smoothing": smoothing, "crf": crf, "lstm": lstm, "learn": learn, "scheme": scheme,
        "merge": merge, "repair": repair,
    }  # fmt: skip
    job = Job(
        config=config,
        options=options_of(task, {**_given(chosen), **_settings(settings or [])}),
        runtime=Runtime.here(device=device, precision=precision, compile=False, microbatch=microbatch),
        seeds=tuple(range(seed, seed + seeds)),
        metric=metric,
        strict=strict,
        hold_out=not no_dev,
    )
    reading = Labelled(
        text=text, pair=pair, label=label, separator=separator, header=header, quoting=quoting, word=word, tag=tag
    )
    shares = tuple(share for share in read_shares(curve) if share < 1) if curve is not None else ()
    if no_dev and (dev or shares):
        raise UsageError("--no-dev holds nothing out, so it goes with neither --dev nor --curve")
    if task != "classify" and labels:
        raise UsageError(f"--labels belongs to finetune classify, not {task}")
    if group is not None and (dev or no_dev or glue_tasks):
        raise UsageError("--group says what is held out together, so it goes with none of --dev, --no-dev and --task")
    if glue_tasks is None:  # each task of GLUE has a folder of its own, and may be done already
        read = [model, *(train or ()), *(dev or ())]
        refuse_what_is_there(out, resume=resume, overwrite=overwrite, inputs=read)
    bundle = load_bundle(model)
    order: dict[str, Any] = {
        "task": task, "bundle": bundle, "name": model, "resume": resume, "overwrite": overwrite, "curve": shares,
    }  # fmt: skip
    if glue_tasks is not None:
        if task != "classify" or train or dev or no_dev or glue is None or labels or reading != Labelled():
            raise UsageError(
                "--task goes with finetune classify and --glue DIR, in place of --train, --dev and names of columns"
            )
        _glue(glue_tasks, glue, out, order=order, job=job, console=console)
        return
    if not train or glue is not None:
        raise UsageError("name labelled examples with --train FILE, or a task of GLUE with --task NAME --glue DIR")
    examples = reading.read(task, train, kind=labels)
    examples = examples if group is None else reading.grouped(examples, train, group)
    held = reading.read(task, dev, kind=examples.kind) if dev else None
    _carry_out(Order(train=examples, dev=held, out=out, **order), job, console)


def _given(chosen: dict[str, Any]) -> dict[str, Any]:
    """What was chosen by flags: not what they are by default."""
    usual = {"focal": 0.0, "smoothing": 0.0, "lstm": 0, "learn": "subwords", "merge": "mean"}
    return {name: value for name, value in chosen.items() if value and value != usual.get(name)}


def _settings(given: list[str]) -> dict[str, Any]:
    """What is set by name; a dot leads into a group: ``decoding.merge=window``."""
    found: dict[str, Any] = {}
    for one in given:
        path, equals, value = one.partition("=")
        refuse_surrogates(one, "--set")
        if not equals:
            raise UsageError(f"--set {one} is not name=value, such as longest=8")
        *groups, name = path.split(".")
        place = found
        for group in groups:
            place = place.setdefault(group, {})
            if not isinstance(place, dict):
                raise UsageError(f"--set {one}: {group} is set already, as a whole")
        place[name] = value
    return found


def _weights(given: list[str]) -> tuple[bool, dict[str, float]]:
    """Whether classes are balanced, or the weights of those that are named."""
    if "balanced" in given:
        if len(given) > 1:
            raise UsageError("--class-weight balanced gives every class its weight; leave the others away")
        return True, {}
    found = {}
    for one in given:
        refuse_surrogates(one, "--class-weight")
        name, _, weight = one.rpartition("=")
        try:
            found[name] = float(weight)
        except ValueError:
            name = ""
        if not name or not 0 <= found[name] < math.inf:
            raise UsageError(f"--class-weight {one} is neither NAME=NUMBER, at least 0, nor balanced")
    return False, found


def _carry_out(order: Order, job: Job, console: Console) -> Tuned:
    with Show(console, order.out) as show:
        for part in (order.train, order.dev):
            if part is not None:
                show.say(part.describe())
        tuned = run(order, dataclasses.replace(job, watch=show.watch), show.point)
    show_result(console, tuned, order.out)
    return tuned


def _glue(names: str, glue: Path, out: Path, *, order: dict[str, Any], job: Job, console: Console) -> None:
    """One task into `out`, several into folders of it; a table with published scores at the end."""
    tasks = list(TASKS.values()) if names == "all" else [glue_task(name) for name in names.split(",")]
    done: list[tuple[GlueTask, Spread]] = []
    for task in tasks:
        place = out if len(tasks) == 1 else out / task.name
        console.print(f"[bold]{task.title}[/]")
        if order["resume"] and len(tasks) > 1 and is_done(place) and not is_begun(place):
            console.print(f"{place} is done already", markup=False, soft_wrap=True)
            done.append((task, spread_of(read_history(place))))
            continue
        data = read_glue(task.name, glue)
        chosen = dataclasses.replace(job, metric=job.metric or task.metrics[0])
        asked = Order(train=data.train, dev=next(iter(data.dev.values())), out=place, **order)
        done.append((task, _carry_out(asked, chosen, console).spread))
    _published(done, console)


def _published(done: list[tuple[GlueTask, Spread]], console: Console) -> None:
    table = Table(box=None, pad_edge=False, title="beside published scores (test sets, %)", title_justify="left")
    table.add_column("")
    for task, _ in done:
        table.add_column(f"{task.title} {task.metrics[0]}", justify="right")
    ours = [spread.get(task.metrics[0], (math.nan, 0.0)) for task, spread in done]
    table.add_row("this model (dev)", *(f"{100 * mean:.1f} ± {100 * spread:.1f}" for mean, spread in ours))
    for system, scores in PUBLISHED.items():
        table.add_row(system, *(f"{scores[task.name]:.1f}" if task.name in scores else "–" for task, _ in done))
    console.print(table)
