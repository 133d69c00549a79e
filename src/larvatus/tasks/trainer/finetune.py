"""Fine-tuning, from labelled examples to a calibrated model: prepare, train each seed, keep the best, calibrate.

    result = finetune("classify", bundle, train, dev, FineTuneArguments(seeds=(0, 1, 2)))
    result.bundle, result.scores, result.runs

Several seeds train several models, and the one with the best validation score is kept. Mean and deviation over the
seeds are reported, since a single run on a small data set says little (Dodge et al. 2020).
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from larvatus.data.labelled.records import Dataset
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import attach_head
from larvatus.models.heads.head import HeadConfig
from larvatus.models.network import Network, tag
from larvatus.models.nn.lora import merge_lora, parameter_counts
from larvatus.tasks.arguments import TaskArguments
from larvatus.tasks.candidates.report import SearchReport
from larvatus.tasks.examples import split_validation
from larvatus.tasks.features import EncodedExamples, Features, PlannedBatches, epoch_steps
from larvatus.tasks.multitask.arguments import OneTaskArguments
from larvatus.tasks.multitask.data import TaskBatches, long_texts, parts_of
from larvatus.tasks.multitask.validation import TaskValidation, joined_values, task_features
from larvatus.tasks.multitask.views import bundle_view
from larvatus.tasks.registry import AnyTask, get_task
from larvatus.tasks.scoring import ScoringOptions, head_of
from larvatus.tasks.task import TaskData
from larvatus.tasks.trainer.causal import with_delimiters, with_lm_weight
from larvatus.tasks.trainer.checkpoint import CheckpointStore, SeedRun, compare
from larvatus.tasks.trainer.config import FineTuneArguments, TrainConfig
from larvatus.tasks.trainer.step_parts import FrozenFeatures
from larvatus.tasks.trainer.trainer import Trainer
from larvatus.tasks.validation import Calibration, Scores, ValidationSet, set_temperature

Spread = dict[str, tuple[float, float]]
"""Mean and deviation of each metric over the seeds."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FineTuneResult:
    """A fine-tuned model, and how it was trained."""

    bundle: Bundle
    metric: str
    config: TrainConfig
    """Settings with the defaults filled in: rates, epochs."""
    runs: tuple[SeedRun, ...]
    kept: int
    """Seed of these weights."""
    scores: Scores | None
    """Scores of these weights on the validation examples."""
    train: Any
    dev: Any
    """The data sets."""
    validation: ValidationSet | None
    calibration: Calibration
    reused: tuple[str, ...]
    """Parameters of the head that the model had already."""
    trained: int
    """Number of parameters that were trained."""
    windows: tuple[int, int]
    """Training examples that are longer than a window, and their windows."""
    search: SearchReport | None = None
    """Candidates that were compared by cross-validation, if the model was chosen so."""
    by_task: Mapping[str, FineTuneResult] = field(default_factory=dict)
    """Where several tasks were trained together: the result of each, with its own head, scores and calibration."""

    @property
    def parts(self) -> Mapping[str, FineTuneResult]:
        """The results of all tasks by name; a model of one task is its own, without a name."""
        return self.by_task or {"": self}

    @property
    def spread(self) -> Spread:
        return seed_spread(self.runs)

    @property
    def fitted(self) -> bool:
        """Whether `scores` use a threshold that was fitted after training, which those of `runs` do not."""
        config = self.bundle.objectives[0]
        return self.scores is not None and hasattr(config, "threshold") and getattr(config, "null", True)


def seed_spread(runs: Sequence[SeedRun]) -> Spread:
    """Mean and deviation of each metric over the seeds, each with its best weights."""
    scores = [run.best.scores.values for run in runs if run.best and run.best.scores]
    if not scores:
        return {}
    return {
        name: (
            statistics.fmean(each := [values[name] for values in scores]),
            statistics.stdev(each) if len(each) > 1 else 0.0,
        )
        for name in scores[0]
    }


def finetune(
    task: str,
    bundle: Bundle,
    train: Dataset[Any],
    dev: Dataset[Any] | None,
    args: FineTuneArguments = FineTuneArguments(),
) -> FineTuneResult:
    """Fine-tune a model for a task; without `dev`, some training examples are held out for validation."""
    chosen = get_task(task)
    train, dev = split_validation(*chosen.check_examples(train, dev, args), args)
    return finetune_on_split(chosen, bundle, train, dev, args)


def finetune_on_split(
    task: AnyTask, bundle: Bundle, train: Dataset[Any], dev: Dataset[Any] | None, args: FineTuneArguments
) -> FineTuneResult:
    """Fine-tune on training and validation examples that were checked and split before."""
    bundle = task.initial_model(with_delimiters(bundle), train, args)
    config = with_lm_weight(args.config, bundle, task)
    data = task.prepare(bundle, train, dev, args)
    examples = len(data.encoded) if isinstance(data.encoded, TaskBatches) else len(train)
    config = config.with_defaults(task.defaults, examples, linear=task.is_linear(data.head))
    args = dataclasses.replace(args, config=config)
    result = train_seeds(bundle, data, args)
    if isinstance(data.encoded, TaskBatches):
        return _of_tasks(result, data.encoded, args)
    return _with_threshold(task, result, args)


def _with_threshold(task: AnyTask, result: FineTuneResult, args: TaskArguments) -> FineTuneResult:
    """The result with a threshold that is fitted to the validation examples, if the task has one."""
    network, validation = result.bundle.network, result.validation
    scores = None if validation is None else task.fit_threshold(network, validation, args)
    if scores is None:
        return result
    fitted = dataclasses.replace(result.bundle, objectives=_with_objectives(head_of(network).config))
    return dataclasses.replace(result, bundle=fitted, scores=scores)


def _of_tasks(whole: FineTuneResult, batches: TaskBatches, args: FineTuneArguments) -> FineTuneResult:
    """The result of several tasks with that of each, calibrated and with its threshold as if trained by itself."""
    by_task: dict[str, FineTuneResult] = {}
    held_out = whole.validation if isinstance(whole.validation, TaskValidation) else None
    for name, head in batches.heads.items():
        validation = None if held_out is None else held_out.parts.get(name)
        part = dataclasses.replace(
            whole,
            bundle=bundle_view(whole.bundle, head),
            train=parts_of(whole.train)[name],
            dev=parts_of(whole.dev).get(name),
            validation=validation,
            metric="" if validation is None else validation.metric,
            runs=tuple(_run_of_task(run, name, held_out) for run in whole.runs),
            scores=None if whole.scores is None or held_out is None else held_out.of_task(name, whole.scores),
        )
        by_task[name] = _with_threshold(get_task(name), _calibrated(part, args), OneTaskArguments(args, name))
    objectives = tuple(config for part in by_task.values() for config in part.bundle.objectives)
    scores = whole.scores
    if scores is not None:  # with thresholds
        each = {name: part.scores for name, part in by_task.items() if part.scores is not None}
        scores = msgspec.structs.replace(scores, values=joined_values(each))
    return dataclasses.replace(
        whole, bundle=dataclasses.replace(whole.bundle, objectives=objectives), scores=scores, by_task=by_task
    )


def _run_of_task(run: SeedRun, task: str, held_out: TaskValidation | None) -> SeedRun:
    """The result of a seed with the scores of one task."""
    if held_out is None or run.best is None or run.best.scores is None:
        return run
    scores = held_out.of_task(task, run.best.scores)
    return msgspec.structs.replace(run, best=msgspec.structs.replace(run.best, scores=scores))


def _calibrated(result: FineTuneResult, args: FineTuneArguments) -> FineTuneResult:
    """The result of one head with a temperature that is fitted to the validation examples."""
    if result.validation is None:
        return result
    network = result.bundle.network
    calibration = result.validation.calibration(network, args.scoring)
    config = set_temperature(network, calibration.temperature).config
    bundle = dataclasses.replace(result.bundle, objectives=_with_objectives(config))
    return dataclasses.replace(result, bundle=bundle, calibration=calibration)


def train_seeds(bundle: Bundle, data: TaskData, args: FineTuneArguments) -> FineTuneResult:
    """Train a new head, with or without the rest of the model, for each seed; keep the best and calibrate it."""
    scoring, validation, windows = args.scoring, data.validation, long_texts(data.encoded)
    heads = data.encoded.heads if isinstance(data.encoded, TaskBatches) else {"": data.head}
    store = args.store or CheckpointStore(Path(), {})
    trained, features = 0, None
    for seed in args.seeds:
        if store.is_done(seed):
            continue
        tuned, reused = attach_head(bundle, *heads.values(), seed=seed)
        network = tuned.network.to(args.runtime.device)
        size = parameter_counts(network).total
        trainer = Trainer(network, data.encoded, args, seed=seed, validation=validation, features=features)
        if not trained:  # the first seed: all train the same parameters
            trained = parameter_counts(network).trained
            for name, head in heads.items():
                view = bundle_view(tuned, head) if name else tuned
                args.say(f"{name} {_describe_head(view, bundle, reused)}".lstrip())
            for line in _plan(data, args.config, trained=trained, size=size, windows=windows):
                args.say(line)
        if args.trainable == "head" and features is None:  # all seeds have the same frozen encoder
            trainer.features = features = _features(network, data.encoded, scoring)
            if validation is not None:
                trainer.validation = validation = validation.read_once(network, scoring)
        run = trainer.train()
        merge_lora(network.encoder)
        store.finish(run, network, best=all(_is_better(run, other) for other in store.done))
    assert store.kept is not None
    run = next(run for run in store.done if run.seed == store.kept[0])
    network.load_state_dict(store.kept[1])
    network.requires_grad_().eval()
    result = FineTuneResult(
        bundle=tuned,
        metric=data.validation.metric if data.validation is not None else "",
        config=args.config,
        runs=tuple(store.done),
        kept=run.seed,
        scores=run.best.scores if run.best is not None else None,
        train=data.train,
        dev=data.dev,
        validation=data.validation,
        calibration=Calibration(),
        reused=reused,
        trained=trained,
        windows=windows,
    )
    return result if isinstance(data.encoded, TaskBatches) else _calibrated(result, args)


def _features(network: Network, data: EncodedExamples, scoring: ScoringOptions) -> FrozenFeatures:
    if isinstance(data, TaskBatches):
        return task_features(network, data, scoring)
    return Features.build(network, data, scoring)


def _is_better(first: SeedRun, second: SeedRun) -> bool:
    """By the selection metric, then by validation loss; of equal seeds the first is kept."""
    mine, theirs = (run.best.scores if run.best is not None else None for run in (first, second))
    return compare(mine, theirs) > 0


def _plan(data: TaskData, config: TrainConfig, *, trained: int, size: int, windows: tuple[int, int]) -> Iterator[str]:
    """The training plan, in lines for people.

    training: all 22,713,986 parameters · 3 epochs of 9 steps, 32 texts each · peak rate 5e-05
    """
    steps = epoch_steps(data.encoded, config.batch)
    everything = config.trained.part == "all"
    part = "all" if everything else f"{config.trained.word},"
    share = "" if everything else f" ({trained / size:.1%} of all)"
    yield (
        f"training: {part} {trained:,} parameters{share} · {config.epochs} epochs of {steps:,} steps, "
        f"{config.batch} texts each · peak rate {config.peak:g}"
    )
    if isinstance(data.encoded, PlannedBatches):
        yield from data.encoded.remarks(config.batch)
    if windows[0]:
        many = "1 text is" if windows[0] == 1 else f"{windows[0]:,} texts are"
        yield f"{many} longer than a window and read in {windows[1]:,} windows"


def _describe_head(tuned: Bundle, bundle: Bundle, reused: tuple[str, ...]) -> str:
    """``head: 2 classes; a new classifier, dense from the model``"""
    head = head_of(tuned.network).config
    shape, weights = head.describe(), any(True for _ in tuned.network.objectives.parameters())
    if head.begins_as is not None and (reused or not weights):
        return f"head: {shape}; the model's own {head.begins_as} head"
    if not weights:
        return f"head: {shape}"
    prefixes = tuple(f"objectives.{tag(config)}." for config in tuned.objectives)
    parts = sorted({name.split(".")[2] for name in reused if name.startswith(prefixes)})
    if "classifier" in parts:
        return f"head: {shape}; the model's own, which has the same labels"
    old = [config for config in bundle.objectives if isinstance(config, HeadConfig)]
    others = f" for {len(old[0].labels):,} other labels" if old and old[0].names_labels else ""
    replaced = f" in place of the model's own{others}" if old else ""
    taken_over = f", {' and '.join(parts)} from the model" if parts else ""
    new = "a new classifier" if hasattr(head_of(tuned.network), "classifier") else "new layers"
    return f"head: {shape}; {new}{replaced}{taken_over}"


def _with_objectives(config: HeadConfig) -> tuple[Any, ...]:
    """A head, and the pretraining objectives whose layers it uses."""
    return (config, *config.objectives)
