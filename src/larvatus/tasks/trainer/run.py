"""A fine-tuning run in its own directory: locked, resumable, saved; and its learning curve.

    run = FineTuneRun(task="tag", bundle=bundle, name="bert-base", train=train, dev=dev, out=Path("runs/mine"))
    result = run_finetuning(run, args)

Existing files are not overwritten; a run that was stopped continues with `resume`. A learning curve is the validation
score by number of training examples, and shows whether more of them would help:

    read_shares("10,30,100%")                  # [0.1, 0.3, 1.0]
    sample_share(train, 0.3)                   # a larger share contains every smaller one
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from larvatus.core import files
from larvatus.core.checksummed import read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError, Preempted, UsageError
from larvatus.core.outputs import check_outputs, remove_run
from larvatus.core.regular_files import is_there, only_regular, refuse_link
from larvatus.core.rng import stream
from larvatus.core.signals import handle_signals, resumable
from larvatus.data.labelled.check import UNSEEN, check
from larvatus.data.labelled.records import Dataset
from larvatus.models.bundle.checksums import model_checksums
from larvatus.models.bundle.directory import CONFIG, Bundle, check_model_directory
from larvatus.models.bundle.manifest import NAME as MANIFEST
from larvatus.models.nn.device import explain_out_of_memory
from larvatus.tasks.examples import Split, split_validation
from larvatus.tasks.multitask.data import TaskDatasets, parts_of
from larvatus.tasks.registry import get_task
from larvatus.tasks.trainer.checkpoint import CheckpointStore, check_same_run
from larvatus.tasks.trainer.config import Callbacks, FineTuneArguments
from larvatus.tasks.trainer.finetune import FineTuneResult, finetune_on_split
from larvatus.tasks.trainer.save import HISTORY, claimed_validation, contents_hash, save_result
from larvatus.training.engine.checkpoint import (
    FOLDER,
    NEW_RUN,
    names_in,
    refuse_other_kind,
    refuse_resume_with_overwrite,
)
from larvatus.training.engine.ranks import Ranks, ranks


@dataclass(frozen=True)
class LearningCurvePoint:
    examples: int
    metric: str
    mean: float
    deviation: float
    """Deviation over the seeds."""


D = TypeVar("D", bound=Dataset[Any])


def read_shares(text: str) -> list[float]:
    """Percentages, in rising order; all examples come last, whether named or not.

    >>> read_shares("30,10")
    [0.1, 0.3, 1.0]
    """
    percentages = [share.strip().removesuffix("%") for share in text.split(",")]
    if not all(re.fullmatch(r"\d+(\.\d+)?", share) for share in percentages):
        raise UsageError(f"--curve {text} is no list of percentages, such as 10,30,100%")
    shares = sorted({float(share) / 100 for share in percentages} | {1.0})
    if shares[0] <= 0 or shares[-1] > 1:
        raise UsageError(f"--curve {text}: percentages are above 0 and at most 100")
    return shares


def shuffled(data: Dataset[Any], purpose: str) -> tuple[list[int], int]:
    """Numbers of the examples in a random order, those first that show every label once; and how many those are."""
    order = stream(0, purpose).permutation(len(data)).tolist()
    seen: set[str] = set()
    first = []
    for number in order:
        labels = data.examples[number].strata()
        if labels - seen:
            first.append(number)
            seen |= labels
    shown = set(first)
    return first + [number for number in order if number not in shown], len(first)


def sample_share(data: D, share: float) -> D:
    """A random share of the examples; a larger share contains the smaller, and each has every label."""
    order, fewest = shuffled(data, "finetune curve")
    count = max(2, fewest, round(share * len(data)))
    if count >= len(data):
        return data
    chosen = set(order[:count])
    examples = tuple(example for number, example in enumerate(data.examples) if number in chosen)
    return dataclasses.replace(data, examples=examples, notes=(*data.notes, f"{share:.0%} of the examples"))


LOWER = (
    "lower --microbatch or --length, or take a smaller --model; what was saved stays, and --resume continues from there"
)
CURVE = "curve.json"
ENSEMBLE = "ensemble.json"
"""Scores of patterns on unlabelled texts, on which a classifier is then trained
(`tasks/few_shot/pet.py`)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FineTuneRun:
    """A fine-tuning run: model, examples and output directory."""

    task: str
    bundle: Bundle
    name: str
    """Name of the model that is fine-tuned, as the user gave it."""
    train: Any
    dev: Any
    out: Path
    resume: bool = False
    overwrite: bool = False
    """Start again in a directory that holds a run or a model."""
    curve: tuple[float, ...] = ()
    """Shares of the training examples that are also trained on, for a learning curve."""
    how: Mapping[str, Any] = field(default_factory=dict)
    """How files were read, for claims: `columns` by name, and the column `by` which examples were grouped."""

    ranked: ClassVar[bool] = True
    """Whether several processes can share it."""

    @property
    def more_identity(self) -> dict[str, Any]:
        """What else the result depends on, which must be equal on resume."""
        return {}

    def split(self, args: FineTuneArguments) -> Split:
        """Training and validation examples."""
        return split_validation(self.train, self.dev, args)

    def finetune(self, train: Any, args: FineTuneArguments) -> FineTuneResult:
        """Fine-tune on training examples from which the validation examples are split off."""
        task = get_task(self.task)
        return finetune_on_split(task, self.bundle, *task.check_examples(train, self.dev, args), args)


def run_finetuning(
    run: FineTuneRun, args: FineTuneArguments, point: Callable[[LearningCurvePoint], None] = lambda point: None
) -> FineTuneResult:
    """Run fine-tuning in one or several processes; `point` is called with each point of a learning curve."""
    with (
        ranks(args.runtime.device) as group,
        handle_signals() as stop,
        resumable(lambda: _way_on(run.out)),
        files.locked(run.out) if group.main else nullcontext(),
        _under_way(run, args.say) if group.main else nullcontext(),
        explain_out_of_memory(LOWER),
    ):
        _refuse_ranks(run, group)
        group.wait()  # until the main rank has seen to the directory
        if not group.main:
            args, point = dataclasses.replace(args, callbacks=Callbacks()), lambda point: None
        args = dataclasses.replace(args, callbacks=dataclasses.replace(args.callbacks, stop=stop), ranks=group)
        for line in data_warnings(run.train, run.dev):
            args.say(line)
        identity = _identity(run, args)
        train, dev = run.split(args)
        held_out = claimed_validation(dev, given=run.dev, train=run.train)
        run = dataclasses.replace(run, train=train, dev=dev)
        store = CheckpointStore.open(
            run.out,
            identity,
            resume=run.resume,
            say=args.say,
            runtime=args.runtime,
            processes=group.count,
        )
        points = _curve(run, args, identity, point)
        whole = dataclasses.replace(args, store=store)
        result = run.finetune(run.train, whole)
        with stop.noting():
            if group.main:
                save_result(run.out, result, parent=run.name, dev=held_out, how=run.how, processes=group.count)
                _save_curve(run, [*points, _point(result)], point)
                store.clear()
            group.wait()  # the model is there for all
    return result


def _save_curve(
    run: FineTuneRun, points: list[LearningCurvePoint], point: Callable[[LearningCurvePoint], None]
) -> None:
    if run.curve:
        point(points[-1])
        files.write_json(run.out / CURVE, [dataclasses.asdict(share) for share in points])


def _refuse_ranks(run: FineTuneRun, group: Ranks) -> None:
    if group.count > 1 and not run.ranked:
        raise UsageError(f"this trains in one process, not in {group.count}; start it without torchrun")


def _way_on(out: Path) -> str:
    """How to resume a run that was stopped outside training."""
    way = "with --resume continues from what was saved" if has_unfinished_run(out) else "starts it again"
    return f"the same command {way}"


def _curve(
    run: FineTuneRun, args: FineTuneArguments, identity: dict[str, Any], point: Callable[[LearningCurvePoint], None]
) -> list[LearningCurvePoint]:
    """Points of the learning curve; finished points are kept for a resume."""
    path = run.out / FOLDER / CURVE
    points = _points_before(path, run, identity) if run.resume and is_there(path) else []
    quiet = dataclasses.replace(args, callbacks=Callbacks(progress=args.callbacks.progress, stop=args.callbacks.stop))

    def save() -> None:
        if not args.ranks.main:
            return
        write_checksummed(path, {"identity": identity, "points": [dataclasses.asdict(share) for share in points]})

    for share in run.curve[len(points) :]:
        save()
        try:
            points.append(_point(run.finetune(sample_share(run.train, share), quiet)))
        except Preempted as fault:
            again = "the same command with --resume trains this part of the curve again, and what comes after"
            raise Preempted(f"{fault}; {again}") from fault
        save()
        point(points[-1])
    return points


def _points_before(path: Path, run: FineTuneRun, identity: dict[str, Any]) -> list[LearningCurvePoint]:
    held = read_checksummed(path, way=NEW_RUN)
    try:
        check_same_run(run.out, held["identity"], identity)
        return [LearningCurvePoint(**share) for share in held["points"]]
    except (AttributeError, KeyError, TypeError) as fault:
        raise ArtefactError(f"{path} is not the curve of a run: {fault}; start again in another --out") from fault


def data_warnings(train: Any, dev: Any) -> list[str]:
    """Warnings of the data check, a line each; errors that would stop training are raised by training itself."""
    if isinstance(train, TaskDatasets):
        parts = train.parts.items()
        return [f"{task} {line}" for task, part in parts for line in data_warnings(part, parts_of(dev).get(task))]
    if not train.examples[0].checked:
        return []
    warnings = [doubt for doubt in check(train, dev).warnings if doubt.name != UNSEEN]  # the training says how many
    return [f"data: {doubt.message}" for doubt in warnings] + (["larvatus data check shows where"] if warnings else [])


def _point(result: FineTuneResult) -> LearningCurvePoint:
    mean, deviation = result.spread.get(result.metric, (float("nan"), 0.0))
    return LearningCurvePoint(len(result.train), result.metric, mean, deviation)


def has_unfinished_run(out: Path) -> bool:
    """Whether a run there was begun and has not ended."""
    return (out / FOLDER).is_dir()


def has_finished_run(out: Path) -> bool:
    """Whether a run there has ended with a model."""
    return (out / MANIFEST).is_file()


@contextmanager
def _under_way(run: FineTuneRun, say: Callable[[str], None]) -> Iterator[None]:
    """Keep the folder of checkpoints while the run lasts: it marks a run that has not ended."""
    only_regular(run.out, (FOLDER, CURVE, "metrics.jsonl"))
    inputs = [run.bundle.path]
    check_run_directory(run.out, resume=run.resume, overwrite=run.overwrite, inputs=inputs)
    if run.overwrite:
        remove_run(run.out)
    folder = run.out / FOLDER
    if run.resume and not names_in(folder):
        say(f"{run.out} holds no checkpoint yet: starting at the beginning")
    files.sweep(run.out)
    files.sweep(folder)
    with files.saying_what_is_full(folder):
        folder.mkdir(exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):  # not empty: there is something to resume
            folder.rmdir()


def check_run_directory(out: Path, *, resume: bool, overwrite: bool, inputs: Sequence[str | Path] = ()) -> None:
    """Refuse a directory that holds a run or a model, unless it is resumed or overwritten."""
    refuse_resume_with_overwrite(resume=resume, overwrite=overwrite)
    refuse_link(out / FOLDER)
    refuse_other_kind(out, lambda name: name.startswith("seed-") or name in (CURVE, ENSEMBLE))
    held = names_in(out / FOLDER)
    begun = resume and has_unfinished_run(out)
    if not begun and not overwrite:
        there = [name for name in (MANIFEST, CONFIG) if (out / name).exists()] + ([FOLDER] if held else [])
        if there:
            way = "continue with --resume, start again" if there[0] == FOLDER else "start again"
            raise ArtefactError(
                f"{out} already holds a model or a run ({there[0]}); {way} with --overwrite, or choose another --out"
            )
    check_model_directory(out, overwrite=overwrite or begun, inputs=inputs)
    for name in (HISTORY, CURVE):
        check_outputs(out / name, overwrite=overwrite or begun, parents=True)


def _hash(groups: list[str | None]) -> str | None:
    """Hash of the groups of the examples; None if none has a group."""
    return hashlib.sha256(msgspec.json.encode(groups)).hexdigest() if any(groups) else None


def _identity(run: FineTuneRun, args: FineTuneArguments) -> dict[str, Any]:
    """Everything that the result depends on."""
    used = run.bundle.adapter if get_task(run.task).begins_with_adapter else None
    adapter = {} if used is None else {"sentence adapter": used.checksum}
    identity = {
        "task": run.task,
        "model": model_checksums(run.bundle.path) | adapter,
        "train": contents_hash(run.train),
        "dev": contents_hash(run.dev) if run.dev is not None else None,
        "settings": msgspec.to_builtins(args.config),
        "options": msgspec.to_builtins(args.options),
        "seeds": list(args.seeds),
        "metric": args.metric,
        "hold_out": args.hold_out,
        "groups": _hash([run.train.groups.get(example.place) for example in run.train.examples]),
        "curve": list(run.curve),
        "precision": args.runtime.precision,
        **run.more_identity,
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(identity))
    return plain
