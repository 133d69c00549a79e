"""A fine-tuning run, from labelled examples to a model directory: head, encode, train, calibrate, score.

    tuned = finetune_texts(bundle, train, dev, Job(seeds=(0, 1, 2)))
    tuned.bundle, tuned.scores, tuned.runs

Several seeds train several models, of which the one with the best held-out score is kept; their mean and deviation are
told, since a single run of a small set says little (Dodge et al. 2020).
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from larvatus.bundle.directory import Bundle
from larvatus.bundle.heads import natural_classification, natural_tagging, with_head
from larvatus.bundle.huggingface.task_heads import TaskConfig
from larvatus.errors import DataError, Preempted, UsageError
from larvatus.nn.lora import merge_lora, parameter_counts
from larvatus.objectives import ClassificationConfig, TaggingConfig
from larvatus.rng import stream
from larvatus.tasks.classify import LabelledTexts, Merge, label_array, texts_of
from larvatus.tasks.data.records import Dataset, Example, TaggedExample, TextExample
from larvatus.tasks.features import Examples, Features
from larvatus.tasks.heads import HeadOptions, classification_head, tagging_head
from larvatus.tasks.held_out import (
    HeldOut,
    HeldOutTags,
    HeldOutTexts,
    calibrated,
    metric_of_tags,
    metric_of_texts,
)
from larvatus.tasks.loop import Epoch, FineTuning, Fit, Fitting, Scores, scoring_of
from larvatus.tasks.schemes import in_scheme, scheme_of
from larvatus.tasks.sequences import Sequences, text_sequences, word_sequences
from larvatus.tasks.settings import FineTuneConfig
from larvatus.tasks.tag import TaggedWords, align_examples, tag_array
from larvatus.text.tag_schemes import Scheme
from larvatus.train.settings import Runtime

HELD_OUT = 0.1
MOST_HELD_OUT = 2_000
"""Of the training examples, where no held-out ones are given."""


@dataclass(frozen=True)
class Watch:
    """Who is told what while it runs."""

    say: Callable[[str], None] = lambda line: None
    epoch: Callable[[int, Epoch], None] = lambda seed, epoch: None
    progress: Callable[[int, int, float, float], None] = lambda step, steps, loss, speed: None
    stop: Callable[[], str | None] = lambda: None


@dataclass(frozen=True, kw_only=True)
class Job:
    """How to fine-tune; what is in `config` and `head` decides the result, the rest does not."""

    config: FineTuneConfig = field(default_factory=FineTuneConfig)
    head: HeadOptions = field(default_factory=HeadOptions)
    runtime: Runtime = field(default_factory=Runtime)
    seeds: tuple[int, ...] = (0,)
    metric: str | None = None
    """That decides which weights are kept; None: by the task."""
    merge: Merge = "mean"
    """How the windows of a long text answer together."""
    repair: bool = False
    """Illegal sequences of tags are read as conlleval does, not refused."""
    hold_out: bool = True
    """Whether some training examples are held out where no others are given."""
    watch: Watch = field(default_factory=Watch)

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise UsageError(f"seeds must be one or more, each once, not {list(self.seeds)}")


class SeedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What one seed came to."""

    seed: int
    steps: int
    seconds: float
    history: tuple[Epoch, ...]
    best: Epoch | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Tuned:
    """A fine-tuned model, and how it came about."""

    bundle: Bundle
    metric: str
    runs: tuple[SeedRun, ...]
    kept: int
    """The seed whose weights these are."""
    scores: Scores | None
    """Of those weights, on the held-out examples."""
    train: Any
    dev: Any
    """The data sets."""
    held_out: HeldOut | None
    taken: tuple[str, ...]
    """Parameters of the head that the model had already."""
    trained: int
    """Parameters that learnt."""
    windows: tuple[int, int]
    """Training examples that are longer than a window, and their windows."""

    @property
    def spread(self) -> dict[str, tuple[float, float]]:
        """Mean and deviation of each metric over the seeds."""
        found = [run.best.scores.values for run in self.runs if run.best and run.best.scores]
        if not found:
            return {}
        return {
            name: (
                statistics.fmean(own := [values[name] for values in found]),
                statistics.stdev(own) if len(own) > 1 else 0.0,
            )
            for name in found[0]
        }


class Encoded(Examples, Protocol):
    """Examples, and the sequences that they are read as."""

    @property
    def sequences(self) -> Sequences: ...


def finetune_texts(bundle: Bundle, train: Dataset[TextExample], dev: Dataset[TextExample] | None, job: Job) -> Tuned:
    """Classify texts or pairs."""
    train, dev = parted(train, dev, job)
    config = classification_head(train, job.head, natural=natural_classification(bundle))
    job.watch.say(balance(train))
    data = encode_texts(bundle, train, config, job.config)
    counts = [train.labels()[label] for label in config.labels]
    metric = metric_of_texts(config, counts, job.metric)
    held = HeldOutTexts(encode_texts(bundle, dev, config, job.config), config, metric, job.merge) if dev else None
    return tuned_with_head(bundle, config, data, job, held=held, train=train, dev=dev)


def finetune_tags(bundle: Bundle, train: Dataset[TaggedExample], dev: Dataset[TaggedExample] | None, job: Job) -> Tuned:
    """Tag words."""
    train, dev = parted(train, dev, job)
    written = scheme_of(train)
    scheme: Scheme = job.head.scheme or ("BIO" if written == "IOB1" else written)
    train = in_scheme(train, scheme, source=written, repair=job.repair)
    dev = in_scheme(dev, scheme, source=written, repair=job.repair) if dev else None
    config = tagging_head(train, job.head, scheme=scheme, natural=natural_tagging(bundle))
    data = encode_tags(bundle, train, config, job.config)
    metric = metric_of_tags(config, job.metric)
    held = HeldOutTags(encode_tags(bundle, dev, config, job.config), config, metric) if dev else None
    return tuned_with_head(bundle, config, data, job, held=held, train=train, dev=dev)


def parted(
    train: Dataset[Example], dev: Dataset[Example] | None, job: Job
) -> tuple[Dataset[Example], Dataset[Example] | None]:
    """Training and held-out examples; where none are given, a tenth of the training ones, drawn by lot."""
    if dev is not None or not job.hold_out:
        return train, dev
    count = min(MOST_HELD_OUT, round(HELD_OUT * len(train)))
    if count < 1 or len(train) - count < 2:
        raise DataError(f"{train.source}: {len(train)} examples are too few to hold some out; give --dev, or --no-dev")
    order = stream(0, "finetune held out").permutation(len(train))
    chosen = set(order[:count].tolist())
    said = f"{count:,} of {len(train):,} examples are held out by lot"
    job.watch.say(f"no held-out examples were given: {said}")
    own = tuple(one for number, one in enumerate(train.examples) if number not in chosen)
    others = tuple(one for number, one in enumerate(train.examples) if number in chosen)
    return dataclasses.replace(train, examples=own), dataclasses.replace(train, examples=others, notes=(said,))


def balance(train: Dataset[TextExample]) -> str:
    """The class balance in a line."""
    counts = train.labels()
    if not counts:
        return f"{len(train):,} numbers"
    shares = ", ".join(f"{label} {count:,} ({count / len(train):.0%})" for label, count in counts.most_common(12))
    more = f" and {len(counts) - 12} more" if len(counts) > 12 else ""
    return f"classes: {shares}{more}"


def window_of(bundle: Bundle, config: FineTuneConfig) -> int:
    """Tokens of a window."""
    most = bundle.model.max_positions
    if config.length is not None and config.length > most:
        raise UsageError(f"--length {config.length} is more than the model's {most} positions")
    return config.length or most


def encode_texts(
    bundle: Bundle, data: Dataset[TextExample], config: ClassificationConfig, settings: FineTuneConfig
) -> LabelledTexts:
    labels = label_array(data.examples, config)
    limit = window_of(bundle, settings)
    sequences = text_sequences(bundle.tokenizer, texts_of(data.examples), limit=limit, truncate=settings.truncate)
    return LabelledTexts(sequences, labels)


def encode_tags(
    bundle: Bundle, data: Dataset[TaggedExample], config: TaggingConfig, settings: FineTuneConfig
) -> TaggedWords:
    found = align_examples(bundle.tokenizer, data.examples)
    limit = window_of(bundle, settings)
    sequences = word_sequences(bundle.tokenizer, found, limit=limit, truncate=settings.truncate)
    return TaggedWords(sequences, tag_array(data.examples, sequences, config.labels))


def tuned_with_head(
    bundle: Bundle,
    config: TaskConfig,
    data: Encoded,
    job: Job,
    *,
    held: HeldOut | None,
    train: Any,
    dev: Any,
) -> Tuned:
    """Train the head that the config says, for each seed; keep the best and calibrate it."""
    runs: list[SeedRun] = []
    kept: tuple[Bundle, SeedRun, int] | None = None
    taken: tuple[str, ...] = ()
    for seed in job.seeds:
        fresh, taken = with_head(bundle, config, seed=seed)
        fresh.pretraining.to(job.runtime.device)
        training = _train(fresh, data, job, held=held, seed=seed)
        trained = parameter_counts(fresh.pretraining).trained
        run = _run(seed, training.fit)
        runs.append(run)
        merge_lora(fresh.pretraining.encoder)
        if kept is None or _better(run, kept[1]):
            kept = (fresh, run, trained)
    assert kept is not None
    tuned, run, trained = kept
    scoring = scoring_of(job.runtime)
    scores = run.best.scores if run.best is not None else None
    if held is not None:
        head = calibrated(tuned.pretraining, held.temperature(tuned.pretraining, scoring))
        tuned = dataclasses.replace(tuned, objectives=(head.config,))
    tuned.pretraining.requires_grad_(True).eval()
    long = data.sequences.parts > 1
    return Tuned(
        bundle=tuned,
        metric=held.metric if held is not None else "",
        runs=tuple(runs),
        kept=run.seed,
        scores=scores,
        train=train,
        dev=dev,
        held_out=held,
        taken=taken,
        trained=trained,
        windows=(int(long.sum()), int(data.sequences.parts[long].sum())),
    )


def _train(fresh: Bundle, data: Examples, job: Job, *, held: HeldOut | None, seed: int) -> FineTuning:
    model, scoring = fresh.pretraining, scoring_of(job.runtime)
    features = Features.build(model, data, scoring) if job.config.trained.what == "head" else None
    fitting = Fitting(
        config=job.config,
        runtime=job.runtime,
        seed=seed,
        evaluate=(lambda: held.scores(model, scoring)) if held is not None else None,
        report=lambda epoch: job.watch.epoch(seed, epoch),
        progress=job.watch.progress,
        stop=job.watch.stop,
    )
    training = FineTuning(model, data, fitting, features)
    training.run()
    if (signal := job.watch.stop()) is not None:
        raise Preempted(f"{signal} stopped it at step {training.fit.step:,} of {training.steps:,}; nothing was saved")
    training.keep_best()
    return training


def _run(seed: int, fit: Fit) -> SeedRun:
    return SeedRun(
        seed=seed,
        steps=fit.step,
        seconds=round(fit.seconds, 3),
        history=tuple(fit.history),
        best=fit.best_epoch,
    )


def _better(one: SeedRun, other: SeedRun) -> bool:
    mine, theirs = (run.best.scores.main if run.best and run.best.scores else -math.inf for run in (one, other))
    return mine > theirs
