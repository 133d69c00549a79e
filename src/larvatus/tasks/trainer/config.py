"""How a model is fine-tuned: epochs, batch, rates, and what is trained. The defaults are what `larvatus finetune` uses.

    TrainConfig(epochs=3, batch=16, trained=TrainableConfig.read("lora"))

Small sets want many epochs and bias-corrected Adam (Mosbach et al. 2021, Zhang et al. 2021): where nothing is said,
epochs are as many as make a number of updates, from 3 to 20. Rates of classify and tag were chosen on development sets
of GLUE and of tagging, with a small encoder (6 layers, 384 hidden); those of spans and answers, and of what is trained
in part, were hardly tried.
"""

from __future__ import annotations

import msgspec

from larvatus.core.ranges import (
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
from larvatus.models.recipes.recipe import OptimizerConfig, ScheduleConfig
from larvatus.tasks.arguments import Defaults
from larvatus.tasks.trainer.trainable import TrainableConfig

FEWEST, MOST = 3, 20
"""Epochs."""


RATE = 5e-5
"""Where neither task nor user says one."""
FASTER = {"all": 1.0, "last": 2.0, "lora": 10.0, "bias": 10.0}
"""What is trained in part may move faster."""
HEAD_RATE = 1e-3
"""Of a head alone, over a frozen encoder."""
LINEAR_HEAD_RATE = 1e-2
"""Of one that is a single linear layer over the pooled text."""


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
    """How often held-out examples are scored in an epoch."""
    length: Length | None = None
    """Tokens of a window, special ones included; default: as many as the model has positions."""
    truncate: bool = False
    """Read the first window of long texts alone."""
    lm_weight: Weight | msgspec.UnsetType = msgspec.UNSET
    """Share of the language-model loss that is learnt beside the task, of left-to-right models alone; default: 0.5."""
    trained: TrainableConfig = TrainableConfig()

    def settled(self, usual: Defaults, examples: int, *, linear: bool = False) -> TrainConfig:
        """The same with what suits the task and so many examples, wherever nothing was said."""
        alone = self.trained.what == "head"
        if alone:
            rate = LINEAR_HEAD_RATE if linear else HEAD_RATE
        else:
            rate = usual.rate * FASTER[self.trained.what]
        head_rate = 1.0 if alone or self.trained.what in ("lora", "bias") else usual.head_rate
        epochs = min(MOST, max(FEWEST, round(usual.steps * self.batch / max(1, examples))))
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
