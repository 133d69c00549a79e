"""How a model is fine-tuned: epochs, batch, rates and what is trained. The defaults are those of `larvatus finetune`.

    TrainConfig(epochs=3, batch=16, trained=TrainableConfig.read("lora"))
    FineTuneArguments(config=…, seeds=(0, 1, 2))

Small data sets need many epochs and bias-corrected Adam (Mosbach et al. 2021, Zhang et al. 2021): by default the number
of epochs, from 3 to 20, follows from a number of updates. The default rates of classify and tag were chosen on the
development sets of GLUE and of tagging, with a small encoder (6 layers, 384 hidden). Those of spans and answers, and of
training only a part of the model, were hardly tuned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.ranges import (
    SEED,
    Clip,
    Count,
    CountOrNone,
    Decay,
    DropoutRate,
    LearningRate,
    Length,
    Size,
    Weight,
)
from larvatus.core.settings import Settings
from larvatus.core.signals import Stop
from larvatus.models.bundle.directory import Bundle
from larvatus.models.network import Network
from larvatus.models.objectives import Loss
from larvatus.models.recipes.recipe import OptimizerConfig, ScheduleConfig
from larvatus.tasks.arguments import Defaults, Trainable
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.registry import option_names, parse_options
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.trainer.checkpoint import CheckpointStore, Epoch
from larvatus.tasks.trainer.trainable import TrainableConfig
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.settings import Runtime

FEWEST_EPOCHS, MOST_EPOCHS = 3, 20
RATE = 5e-5
"""Learning rate where neither the task nor the user gives one."""
RATE_FACTORS = {"all": 1.0, "last": 2.0, "lora": 10.0, "bias": 10.0}
"""Factors of the task's rate: a part of the model may learn faster than the whole."""
HEAD_RATE = 1e-3
"""Rate of a head over a frozen encoder."""
LINEAR_HEAD_RATE = 1e-2
"""Rate of a head over a frozen encoder that is a single linear layer over the pooled text."""


class TrainConfig(Settings):
    epochs: Count | None = None
    """Passes over the training examples; default: by their number."""
    batch: Size = 32
    """Texts of a step."""
    rate: LearningRate | None = None
    """Peak learning rate; default: by task and what is trained."""
    decay: Decay = 0.01
    """Weight decay of matrices; 0: none."""
    clip: Clip = 1.0
    """Largest norm of the gradient; 0: not clipped."""
    warmup: DropoutRate = 0.1
    """Share of all steps over which the rate rises."""
    patience: CountOrNone | None = None
    """Evaluations without a gain, in score or in validation loss, after which training ends; 0: never early; default:
    half of all, but 10 at least."""
    evaluations: Count = 2
    """How often validation examples are scored in an epoch."""
    length: Length | None = None
    """Tokens of a window, special tokens included; default: as many as the model has positions."""
    truncate: bool = False
    """Read only the first window of a long text."""
    lm_weight: Weight | msgspec.UnsetType = msgspec.UNSET
    """Weight of the language-model loss added to the task's loss, of left-to-right models only; default: 0.5."""
    trained: TrainableConfig = TrainableConfig()

    def with_defaults(self, defaults: Defaults, examples: int, *, linear: bool = False) -> TrainConfig:
        """Fill in epochs and rates that were not given, from the task's defaults and the number of examples."""
        head_only = self.trained.part == "head"
        if head_only:
            rate = LINEAR_HEAD_RATE if linear else HEAD_RATE
        else:
            rate = defaults.rate * RATE_FACTORS[self.trained.part]
        head_rate = 1.0 if head_only or self.trained.part in ("lora", "bias") else defaults.head_rate
        epochs = min(
            defaults.epochs or MOST_EPOCHS, max(FEWEST_EPOCHS, round(defaults.steps * self.batch / max(1, examples)))
        )
        return msgspec.structs.replace(
            self,
            epochs=self.epochs or epochs,
            rate=self.rate or rate,
            trained=msgspec.structs.replace(self.trained, head_rate=self.trained.head_rate or head_rate),
        )

    @property
    def peak(self) -> float:
        return self.rate if self.rate is not None else RATE

    @property
    def schedule(self) -> ScheduleConfig:
        return ScheduleConfig(type="linear", warmup=self.warmup)

    @property
    def optimizer(self) -> OptimizerConfig:
        return OptimizerConfig(rate=self.peak, decay=self.decay, clip=self.clip, epsilon=1e-8)


class AuxiliaryLoss(Protocol):
    """A loss on other texts that is added to the task's loss: L = (1 − α) L_task + α L_auxiliary.

    The texts of a step, and what is masked in them, follow from seed and step, so a resumed run ends with the same
    weights. `MaskedPrompts` (tasks/few_shot/training.py) is PET's masked language model.
    """

    @property
    def share(self) -> float:
        """α."""

    def batch(self, step: int, *, seed: int) -> TrainingBatch[Ints]:
        """The texts of a step."""

    def count(self, batch: TrainingBatch[Ints]) -> int:
        """Number of predictions that the mean is over."""

    def loss(self, model: Network, batch: TrainingBatch[Tensor], *, limit: int) -> Loss:
        """Sum of the losses of a microbatch."""


@dataclass(frozen=True)
class Callbacks:
    """Progress callbacks of a fine-tuning run, and the signal that stops it."""

    say: Callable[[str], None] = lambda line: None
    """Called with each log line."""
    epoch: Callable[[int, Epoch], None] = lambda seed, epoch: None
    """Called after each evaluation, with the seed."""
    progress: Callable[[int, int, float, float], None] = lambda step, steps, loss, speed: None
    """Called every few steps: step, number of steps, loss, examples a second."""
    stop: Stop = field(default_factory=Stop)


@dataclass(frozen=True, kw_only=True)
class FineTuneArguments:
    """How to fine-tune. Only `config`, `options`, `seeds` and `metric` decide the result."""

    config: TrainConfig = field(default_factory=TrainConfig)
    options: Struct | None = None
    """Options of the task (its `Options`); None uses the defaults."""
    runtime: Runtime = field(default_factory=Runtime)
    seeds: tuple[int, ...] = (0,)
    metric: str | None = None
    """Metric that selects the best checkpoint; None uses the task's default."""
    strict: bool = False
    """Refuse validation labels that training lacks, instead of counting them as wrong."""
    hold_out: bool = True
    """Hold out some training examples for validation where no validation examples are given."""
    callbacks: Callbacks = field(default_factory=Callbacks)
    store: CheckpointStore | None = None
    """Where checkpoints are saved; without it, a run that is stopped is lost."""
    auxiliary: AuxiliaryLoss | None = None
    """A loss on other texts that is added to the task's."""
    given: tuple[str, ...] = ()
    """Options of training that were given, such as `epochs`: a search of small data refuses them."""
    ranks: Ranks = field(default_factory=Ranks)
    """The processes that share each step."""

    @property
    def trainable(self) -> Trainable:
        """The part of the model that is trained."""
        return self.config.trained.part

    @property
    def scoring(self) -> ScoringOptions:
        """Device and precision with which validation examples are scored."""
        return scoring_options(self.runtime)

    def say(self, line: str) -> None:
        self.callbacks.say(line)

    def windows(self, bundle: Bundle) -> WindowOptions:
        """How the model reads long texts."""
        return WindowOptions.of(bundle, length=self.config.length, truncate=self.config.truncate)

    def __post_init__(self) -> None:
        for seed in self.seeds:
            SEED.check(seed, "seed")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise UsageError(f"seeds must be one or more, each once, not {list(self.seeds)}")


def scoring_options(runtime: Runtime) -> ScoringOptions:
    """Device and precision of a run, for scoring."""
    return ScoringOptions(device=runtime.device, precision=runtime.precision)


TRAINABLE_SETTINGS = ("layer_decay", "head_rate", "crf_rate", "embeddings")
_RUN = {"metric": "metric", "strict": "strict", "hold_out": "hold_out", "watch": "callbacks"}
_RUNTIME = ("device", "precision", "microbatch")
CHOOSING = ("trained", "seeds", "hold_out")
"""Settings that a search of small data refuses, as it refuses those of training."""
READING = ("length", "truncate")
"""Settings of `TrainConfig` that only say how a text is read."""


def parse_arguments(task: str, settings: Mapping[str, Any]) -> FineTuneArguments:
    """Arguments from settings by name, as `larvatus.finetune` takes them.

    A name belongs to training (`TrainConfig`), to what is trained (`TrainableConfig`), to the task (its `Options`) or
    to the run (`FineTuneArguments`). An unknown name is refused, with the nearest known one.

        parse_arguments("tag", {"epochs": 3, "trained": "lora", "crf": True, "seeds": 3})
    """
    given = dict(settings)
    options_given = given.pop("options", None)  # a struct of the task, or settings by name
    config = set(TrainConfig.__struct_fields__) - {"trained"}
    options = option_names()
    known = {*config, *options, *TRAINABLE_SETTINGS, *_RUN, *_RUNTIME, "trained", "seed", "seeds"}
    for name in given:
        if name not in known:
            raise UsageError(f"finetune has no setting {name!r}{did_you_mean(name, known)}")

    def take(names: Any) -> dict[str, Any]:
        return {name: given[name] for name in names if name in given}

    try:
        first = msgspec.convert(given.get("seed", 0), int)
        seeds = msgspec.convert(given.get("seeds", 1), int | tuple[int, ...])
        trained = TrainableConfig.read(msgspec.convert(given.get("trained", "all"), str), **take(TRAINABLE_SETTINGS))
        return FineTuneArguments(
            config=msgspec.convert({**take(config), "trained": trained}, TrainConfig, from_attributes=True),
            options=options_given or parse_options(task, take(options), strict=True),
            runtime=Runtime.here(compile=False, **take(_RUNTIME)),
            seeds=tuple(range(first, first + seeds)) if isinstance(seeds, int) else seeds,
            given=tuple(name for name in given if name in {*CHOOSING, *config, *TRAINABLE_SETTINGS} - {*READING}),
            **{_RUN[name]: value for name, value in take(_RUN).items()},
        )
    except msgspec.ValidationError as fault:
        raise UsageError(f"finetune: {fault}") from fault
