"""A fine-tuning run, from labelled examples to a model directory: head, encode, train, calibrate, score.

    tuned = finetune("classify", bundle, train, dev, FineTuneArguments(seeds=(0, 1, 2)))
    tuned.bundle, tuned.scores, tuned.runs

Several seeds train several models, of which the one with the best held-out score is kept; their mean and deviation are
told, since a single run of a small set says little (Dodge et al. 2020).
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import Struct

from larvatus.core.errors import Preempted, UsageError
from larvatus.core.ranges import SEED
from larvatus.core.signals import Stop
from larvatus.data.labelled.records import Dataset
from larvatus.data.labelled.split import hold_out
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import attach_head
from larvatus.models.heads.head import HeadConfig
from larvatus.models.nn.lora import merge_lora, parameter_counts
from larvatus.tasks.arguments import Trainable
from larvatus.tasks.encoding.windows import WindowOptions
from larvatus.tasks.features import EncodedExamples, ExampleBatches, Features
from larvatus.tasks.registry import get_task
from larvatus.tasks.scoring import ScoringOptions, head_of
from larvatus.tasks.trainer.auxiliary import AuxiliaryLoss
from larvatus.tasks.trainer.causal import with_delimiters, with_lm_weight
from larvatus.tasks.trainer.checkpoint import CheckpointStore, SeedRun
from larvatus.tasks.trainer.config import TrainConfig
from larvatus.tasks.trainer.plan import plan
from larvatus.tasks.trainer.selection import Epoch, compare, no_progress_warning
from larvatus.tasks.trainer.trainable import trainable
from larvatus.tasks.trainer.trainer import Fitting, Trainer, TrainState, scoring_options
from larvatus.tasks.validation import Calibration, Scores, ValidationSet, set_temperature
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.settings import Runtime

Spread = dict[str, tuple[float, float]]
"""Mean and deviation of each metric over the seeds."""


@dataclass(frozen=True)
class Callbacks:
    """Who is told what while it runs."""

    say: Callable[[str], None] = lambda line: None
    epoch: Callable[[int, Epoch], None] = lambda seed, epoch: None
    progress: Callable[[int, int, float, float], None] = lambda step, steps, loss, speed: None
    stop: Stop = field(default_factory=Stop)


@dataclass(frozen=True, kw_only=True)
class FineTuneArguments:
    """How to fine-tune; what is in `config` and `options` decides the result, the rest does not."""

    config: TrainConfig = field(default_factory=TrainConfig)
    options: Struct | None = None
    """Of the task, one of its `Options`; None: all as by default."""
    runtime: Runtime = field(default_factory=Runtime)
    seeds: tuple[int, ...] = (0,)
    metric: str | None = None
    """That decides which weights are kept; None: by the task."""
    strict: bool = False
    """Held-out labels that training lacks are refused, not counted as wrong."""
    hold_out: bool = True
    """Whether some training examples are held out where no others are given."""
    watch: Callbacks = field(default_factory=Callbacks)
    keeper: CheckpointStore | None = None
    """Saves the run under way; without it, a run that is stopped is lost."""
    beside: AuxiliaryLoss | None = None
    """What is learnt beside the task from other texts."""
    ranks: Ranks = field(default_factory=Ranks)
    """The processes that share each step."""

    @property
    def what(self) -> Trainable:
        """What of the model is trained."""
        return self.config.trained.what

    @property
    def scoring(self) -> ScoringOptions:
        """Where held-out examples are scored."""
        return scoring_options(self.runtime)

    def say(self, line: str) -> None:
        self.watch.say(line)

    def windows(self, bundle: Bundle) -> WindowOptions:
        """How the model reads long texts."""
        return WindowOptions.of(bundle, length=self.config.length, truncate=self.config.truncate)

    def __post_init__(self) -> None:
        for seed in self.seeds:
            SEED.check(seed, "seed")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise UsageError(f"seeds must be one or more, each once, not {list(self.seeds)}")


@dataclass(frozen=True, kw_only=True, eq=False)
class FineTuneResult:
    """A fine-tuned model, and how it came about."""

    bundle: Bundle
    metric: str
    config: TrainConfig
    """As it was in the end: rates, epochs."""
    runs: tuple[SeedRun, ...]
    kept: int
    """The seed whose weights these are."""
    scores: Scores | None
    """Of those weights, on the held-out examples."""
    train: Any
    dev: Any
    """The data sets."""
    held_out: ValidationSet | None
    calibration: Calibration
    taken: tuple[str, ...]
    """Parameters of the head that the model had already."""
    trained: int
    """Parameters that learnt."""
    windows: tuple[int, int]
    """Training examples that are longer than a window, and their windows."""

    @property
    def spread(self) -> Spread:
        return seed_spread(self.runs)

    @property
    def fitted(self) -> bool:
        """Whether `scores` are under a threshold that was fitted after training, and those of `runs` are not."""
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


def split_validation(
    train: Dataset[Any], dev: Dataset[Any] | None, job: FineTuneArguments
) -> tuple[Dataset[Any], Dataset[Any] | None]:
    """Training and held-out examples; where none are given, a tenth of the training ones (`data/split.py`)."""
    if dev is not None or not job.hold_out:
        if dev is None and (len(job.seeds) > 1 or job.config.patience or job.metric):
            raise UsageError("several seeds, patience and a metric want held-out examples; leave out --no-dev")
        return train, dev
    parts = hold_out(train)
    job.say(f"no held-out examples were given: {parts.said}")
    return parts.train, parts.held_out


def finetune(
    task: str,
    bundle: Bundle,
    train: Dataset[Any],
    dev: Dataset[Any] | None,
    job: FineTuneArguments = FineTuneArguments(),
) -> FineTuneResult:
    """Fine-tune a model for a task: from examples to a calibrated model."""
    asked = get_task(task)
    asked.options(job)  # refuses those of other tasks
    bundle, job = with_delimiters(bundle), dataclasses.replace(job, config=with_lm_weight(job.config, bundle))
    train, dev = asked.before(train, dev, job)
    train, dev = split_validation(train, dev, job)
    train, dev = asked.spelt(train, dev, job)
    config = asked.head(bundle, train, job)
    settings = job.config.settled(asked.defaults, len(train), linear=asked.is_linear(config))
    job = dataclasses.replace(job, config=settings)
    data = asked.learn(bundle, train, config, job)
    held = asked.held_out(bundle, dev, config, job, train=train) if dev else None
    tuned = train_seeds(bundle, config, data, job, held=held, train=train, dev=dev)
    scores = None if held is None else asked.fitted(tuned.bundle.network, held, job)
    if scores is None:
        return tuned
    fitted = dataclasses.replace(tuned.bundle, objectives=(head_of(tuned.bundle.network).config,))
    return dataclasses.replace(tuned, bundle=fitted, scores=scores)


def train_seeds(
    bundle: Bundle,
    config: HeadConfig,
    data: EncodedExamples,
    job: FineTuneArguments,
    *,
    held: ValidationSet | None,
    train: Any,
    dev: Any,
) -> FineTuneResult:
    """Train the head that the config says, for each seed; keep the best and calibrate it."""
    scoring = job.scoring
    trained = trained_parameters(bundle, config, job.config)
    long = data.sequences.parts > 1
    windows = int(long.sum()), int(data.sequences.parts[long].sum())
    for line in plan(bundle, config, job.config, examples=len(data), trained=trained, windows=windows):
        job.say(line)
    keeper = job.keeper or CheckpointStore(Path(), {})
    features, scored = None, held
    for seed in job.seeds:
        if keeper.is_done(seed):
            continue
        fresh, _ = attach_head(bundle, config, seed=seed)
        fresh.network.to(job.runtime.device)
        if job.config.trained.what == "head" and features is None:  # all seeds have the same frozen encoder
            features = Features.build(fresh.network, data, scoring)
            scored = held.read_once(fresh.network, scoring) if held is not None else None
        training = _train(fresh, data, job, held=scored, seed=seed, features=features)
        run = _run(seed, training.fit)
        merge_lora(fresh.network.encoder)
        keeper.finish(run, fresh.network, best=all(_better(run, other) for other in keeper.done))
    assert keeper.kept is not None
    run = next(run for run in keeper.done if run.seed == keeper.kept[0])
    tuned, taken = attach_head(bundle, config, seed=run.seed)
    tuned.network.load_state_dict(keeper.kept[1])
    tuned.network.to(job.runtime.device)
    scores = run.best.scores if run.best is not None else None
    calibration = Calibration()
    if held is not None:
        calibration = held.calibration(tuned.network, scoring)
        head = set_temperature(tuned.network, calibration.temperature)
        tuned = dataclasses.replace(tuned, objectives=(head.config,))
    return FineTuneResult(
        bundle=tuned,
        metric=held.metric if held is not None else "",
        config=job.config,
        runs=tuple(keeper.done),
        kept=run.seed,
        scores=scores,
        train=train,
        dev=dev,
        held_out=held,
        calibration=calibration,
        taken=taken,
        trained=trained,
        windows=windows,
    )


def _train(
    fresh: Bundle,
    data: ExampleBatches,
    job: FineTuneArguments,
    *,
    held: ValidationSet | None,
    seed: int,
    features: Features | None,
) -> Trainer:
    model, scoring = fresh.network, job.scoring

    def pause() -> None:
        if job.keeper is not None and job.ranks.main and job.keeper.due():
            job.keeper.save(training, seed)

    fitting = Fitting(
        config=job.config,
        runtime=job.runtime,
        seed=seed,
        evaluate=(lambda: held.scores(model, scoring)) if held is not None else None,
        report=lambda epoch: job.watch.epoch(seed, epoch),
        progress=job.watch.progress,
        stop=job.watch.stop,
        warn=job.say,
        pause=pause,
        beside=job.beside,
        ranks=job.ranks,
    )
    training = Trainer(model, data, fitting, features)
    if job.keeper is not None:
        job.keeper.restore(training, seed)
    training.run()
    if not training.finished:
        raise Preempted(_stopped(training, job, seed))
    for line in _remarks(training):
        job.say(line)
    training.keep_best()
    return training


def _remarks(training: Trainer) -> Iterator[str]:
    """What is to be known of a run that ended before its last step, or learnt nothing that its metric sees."""
    fit = training.fit
    if fit.step < training.steps:
        yield (
            f"stopped at step {fit.step:,} of {training.steps:,}: the last {fit.waited} evaluations brought neither a "
            "better score nor a lower validation loss (--patience 0 trains to the end)"
        )
    if (line := no_progress_warning(fit.history)) is not None:
        yield line


def _stopped(training: Trainer, job: FineTuneArguments, seed: int) -> str:
    where = f"{job.watch.stop.by or 'another rank'} stopped it at step {training.fit.step:,} of {training.steps:,}"
    if job.keeper is None:
        return f"{where}, which was not saved"
    if job.ranks.main:
        with job.watch.stop.noting():
            job.keeper.save(training, seed)
    return f"{where}, where it was saved; the same command with --resume goes on from there"


def trained_parameters(bundle: Bundle, head: HeadConfig, config: TrainConfig) -> int:
    """How many numbers learn."""
    shell, _ = attach_head(bundle, head, seed=0)
    trainable(shell.network, config.trained, decay=0.0, seed=0)
    return parameter_counts(shell.network).trained


def _run(seed: int, fit: TrainState) -> SeedRun:
    return SeedRun(
        seed=seed,
        steps=fit.step,
        seconds=round(fit.seconds, 3),
        history=tuple(fit.history),
        best=fit.best_epoch,
    )


def _better(first: SeedRun, second: SeedRun) -> bool:
    """By the metric that decides, then by validation loss; of equal seeds the first is kept."""
    mine, theirs = (run.best.scores if run.best is not None else None for run in (first, second))
    return compare(mine, theirs) > 0
