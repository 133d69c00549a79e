"""A fine-tuning run with a directory of its own: locked, resumable, saved; and the learning curve beside it.

    tuned = run(FineTuneRun(task="tag", model="bert-base", train=train, dev=dev, out=Path("runs/mine")), job)

What stands in the directory already is never overwritten: a run that was stopped goes on with `resume`.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from larvatus.core import files
from larvatus.core.checksummed import read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError, Preempted, UsageError
from larvatus.core.outputs import check_outputs, remove_run
from larvatus.core.regular_files import is_there, only_regular, refuse_link
from larvatus.core.signals import handle_signals, resumable
from larvatus.data.labelled.check import UNSEEN, check
from larvatus.models.bundle.checksums import model_checksums
from larvatus.models.bundle.directory import CONFIG, Bundle, check_model_directory
from larvatus.models.bundle.manifest import NAME as MANIFEST
from larvatus.models.nn.device import explain_out_of_memory
from larvatus.tasks.trainer.checkpoint import CheckpointStore, check_same_run
from larvatus.tasks.trainer.curve import sample_share
from larvatus.tasks.trainer.finetune import Callbacks, FineTuneArguments, FineTuneResult, finetune, split_validation
from larvatus.tasks.trainer.save import HISTORY, claimed_data, contents_hash, save_result, source_files
from larvatus.training.engine.checkpoint import (
    FOLDER,
    NEW_RUN,
    names_in,
    refuse_other_kind,
    refuse_resume_with_overwrite,
)
from larvatus.training.engine.ranks import Ranks, ranks

LOWER = (
    "lower --microbatch or --length, or take a smaller --model; what was saved stays, and --resume goes on from there"
)
CURVE = "curve.json"
ENSEMBLE = "ensemble.json"
"""What the patterns of a prompt said of unlabelled texts, of which a classifier then learns
(`tasks/few_shot/run.py`)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FineTuneRun:
    """What to fine-tune, on what, and where to."""

    task: str
    bundle: Bundle
    name: str
    """Of the model that is fine-tuned, as the user gave it."""
    train: Any
    dev: Any
    out: Path
    resume: bool = False
    overwrite: bool = False
    """Begin anew where a run or a model stands."""
    curve: tuple[float, ...] = ()
    """Shares of the training examples to train with as well."""
    how: Mapping[str, Any] = field(default_factory=dict)
    """How files were read, for claims: `columns` by name, and the column `by` which some were held out together."""

    ranked: ClassVar[bool] = True
    """Whether several processes can share it."""

    def finetune(self, train: Any, job: FineTuneArguments) -> FineTuneResult:
        return finetune(self.task, self.bundle, train, self.dev, job)


@dataclass(frozen=True)
class LearningCurvePoint:
    examples: int
    metric: str
    mean: float
    deviation: float
    """Over the seeds."""


def run_finetuning(
    order: FineTuneRun, job: FineTuneArguments, point: Callable[[LearningCurvePoint], None] = lambda point: None
) -> FineTuneResult:
    """Carry out an order, of several processes together; `point` is told of each share of a learning curve."""
    with (
        ranks(job.runtime.device) as group,
        handle_signals() as stop,
        resumable(lambda: _way_on(order.out)),
        files.locked(order.out) if group.main else nullcontext(),
        _under_way(order, job.watch.say) if group.main else nullcontext(),
        explain_out_of_memory(LOWER),
    ):
        _refuse_ranks(order, group)
        group.wait()  # until the main rank has seen to the directory
        if not group.main:
            job, point = dataclasses.replace(job, watch=Callbacks()), lambda point: None
        job = dataclasses.replace(job, watch=dataclasses.replace(job.watch, stop=stop), ranks=group)
        for line in data_warnings(order.train, order.dev):
            job.watch.say(line)
        identity = _identity(order, job)
        read = source_files(order.train) if order.dev is None else None
        train, dev = split_validation(order.train, order.dev, job)
        held_out = None if dev is None else claimed_data(dev, read)
        order = dataclasses.replace(order, train=train, dev=dev)
        keeper = CheckpointStore.open(
            order.out,
            identity,
            resume=order.resume,
            say=job.watch.say,
            runtime=job.runtime,
            processes=group.count,
        )
        points = _curve(order, job, identity, point)
        whole = dataclasses.replace(job, keeper=keeper)
        tuned = order.finetune(order.train, whole)
        with stop.noting():
            if group.main:
                save_result(order.out, tuned, parent=order.name, dev=held_out, how=order.how, processes=group.count)
                _save_curve(order, [*points, _point(tuned)], point)
                keeper.clear()
            group.wait()  # the model is there for all
    return tuned


def _save_curve(
    order: FineTuneRun, points: list[LearningCurvePoint], point: Callable[[LearningCurvePoint], None]
) -> None:
    if order.curve:
        point(points[-1])
        files.write_json(order.out / CURVE, [dataclasses.asdict(share) for share in points])


def _refuse_ranks(order: FineTuneRun, group: Ranks) -> None:
    if group.count > 1 and not order.ranked:
        raise UsageError(f"this trains in one process, not in {group.count}; start it without torchrun")


def _way_on(out: Path) -> str:
    """How a run that was stopped outside its training goes on."""
    way = "with --resume goes on from what was saved" if has_unfinished_run(out) else "starts it again"
    return f"the same command {way}"


def _curve(
    order: FineTuneRun, job: FineTuneArguments, identity: dict[str, Any], point: Callable[[LearningCurvePoint], None]
) -> list[LearningCurvePoint]:
    """What shares of the examples come to; those that are done are kept for a resume."""
    path = order.out / FOLDER / CURVE
    points = _points_before(path, order, identity) if order.resume and is_there(path) else []
    quiet = dataclasses.replace(job, watch=Callbacks(progress=job.watch.progress, stop=job.watch.stop))

    def keep() -> None:
        if not job.ranks.main:
            return
        write_checksummed(path, {"identity": identity, "points": [dataclasses.asdict(share) for share in points]})

    for share in order.curve[len(points) :]:
        keep()
        try:
            points.append(_point(order.finetune(sample_share(order.train, share), quiet)))
        except Preempted as fault:
            again = "the same command with --resume trains this part of the curve anew, and what comes after"
            raise Preempted(f"{fault}; {again}") from fault
        keep()
        point(points[-1])
    return points


def _points_before(path: Path, order: FineTuneRun, identity: dict[str, Any]) -> list[LearningCurvePoint]:
    held = read_checksummed(path, way=NEW_RUN)
    try:
        check_same_run(order.out, held["identity"], identity)
        return [LearningCurvePoint(**share) for share in held["points"]]
    except (AttributeError, KeyError, TypeError) as fault:
        raise ArtefactError(f"{path} is not the curve of a run: {fault}; start anew in another --out") from fault


def data_warnings(train: Any, dev: Any) -> list[str]:
    """What a check of the data warns of, a line each; what would stop training is raised by the training itself."""
    if not train.examples[0].checked:
        return []
    warnings = [doubt for doubt in check(train, dev).warnings if doubt.name != UNSEEN]  # the training says how many
    return [f"data: {doubt.message}" for doubt in warnings] + (["larvatus data check shows where"] if warnings else [])


def _point(tuned: FineTuneResult) -> LearningCurvePoint:
    mean, deviation = tuned.spread.get(tuned.metric, (float("nan"), 0.0))
    return LearningCurvePoint(len(tuned.train), tuned.metric, mean, deviation)


def has_unfinished_run(out: Path) -> bool:
    """Whether a run there was begun and has not ended."""
    return (out / FOLDER).is_dir()


def has_finished_run(out: Path) -> bool:
    """Whether a run there has ended with a model."""
    return (out / MANIFEST).is_file()


@contextmanager
def _under_way(order: FineTuneRun, say: Callable[[str], None]) -> Iterator[None]:
    """The folder of checkpoints says that a run was begun and has not ended: what else stands there is its own."""
    only_regular(order.out, (FOLDER, CURVE, "metrics.jsonl"))
    inputs = [order.bundle.path]
    check_run_directory(order.out, resume=order.resume, overwrite=order.overwrite, inputs=inputs)
    if order.overwrite:
        remove_run(order.out)
    folder = order.out / FOLDER
    if order.resume and not names_in(folder):
        say(f"{order.out} holds no checkpoint yet: starting at the beginning")
    files.sweep(order.out)
    files.sweep(folder)
    with files.saying_what_is_full(folder):
        folder.mkdir(exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):  # not empty: there is something to go on with
            folder.rmdir()


def check_run_directory(out: Path, *, resume: bool, overwrite: bool, inputs: Sequence[str | Path] = ()) -> None:
    """A directory with a run or a model in it is only touched by a resume, or to begin anew."""
    refuse_resume_with_overwrite(resume=resume, overwrite=overwrite)
    refuse_link(out / FOLDER)
    refuse_other_kind(out, lambda name: name.startswith("seed-") or name in (CURVE, ENSEMBLE))
    held = names_in(out / FOLDER)
    begun = resume and has_unfinished_run(out)
    if not begun and not overwrite:
        there = [name for name in (MANIFEST, CONFIG) if (out / name).exists()] + ([FOLDER] if held else [])
        if there:
            way = "go on with --resume, begin anew" if there[0] == FOLDER else "begin anew"
            raise ArtefactError(
                f"{out} already holds a model or a run ({there[0]}); {way} with --overwrite, or choose another --out"
            )
    check_model_directory(out, overwrite=overwrite or begun, inputs=inputs)
    for name in (HISTORY, CURVE):
        check_outputs(out / name, overwrite=overwrite or begun, parents=True)


def _hash(groups: list[str | None]) -> str | None:
    """Which examples are of one group; None where none have one."""
    return hashlib.sha256(msgspec.json.encode(groups)).hexdigest() if any(groups) else None


def _identity(order: FineTuneRun, job: FineTuneArguments) -> dict[str, Any]:
    """All that the result depends on."""
    identity = {
        "task": order.task,
        "model": model_checksums(order.bundle.path),
        "train": contents_hash(order.train),
        "dev": contents_hash(order.dev) if order.dev is not None else None,
        "settings": msgspec.to_builtins(job.config),
        "options": msgspec.to_builtins(job.options),
        "seeds": list(job.seeds),
        "metric": job.metric,
        "hold_out": job.hold_out,
        "groups": _hash([order.train.groups.get(example.place) for example in order.train.examples]),
        "curve": list(order.curve),
        "precision": job.runtime.precision,
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(identity))
    return plain
