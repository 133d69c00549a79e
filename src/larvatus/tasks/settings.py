"""How a model is fine-tuned: epochs, batch, rates, and what is trained. The defaults are what `larvatus finetune` uses.

    FineTuneConfig(epochs=3, batch=16, trained=TrainedConfig.read("lora"))

Small sets want many epochs and bias-corrected Adam (Mosbach et al. 2021, Zhang et al. 2021): where nothing is said,
epochs are as many as make `STEPS` updates, from 3 to 20.
"""

from __future__ import annotations

from msgspec import Struct

from larvatus.errors import UsageError
from larvatus.recipes.training import OptimizerConfig, ScheduleConfig
from larvatus.tasks.trained import TrainedConfig

STEPS = 1_500
FEWEST, MOST = 3, 20
"""Epochs."""
RATES = {"all": 5e-5, "last": 1e-4, "lora": 5e-4, "head": 1e-3}


class FineTuneConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    epochs: int | None = None
    """Passes over the training examples; None: by their number."""
    batch: int = 32
    """Texts of a step."""
    rate: float | None = None
    """Peak learning rate; None: by what is trained."""
    decay: float = 0.01
    """Weight decay of matrices."""
    clip: float = 1.0
    """Largest norm of the gradient; 0: not clipped."""
    warmup: float = 0.1
    """Share of all steps over which the rate rises."""
    patience: int = 0
    """Evaluations without a better score after which training ends; 0: never early."""
    evaluations: int = 1
    """How often held-out examples are scored in an epoch."""
    length: int | None = None
    """Tokens of a window, special ones included; None: as many as the model has positions."""
    truncate: bool = False
    """Read the first window of long texts alone."""
    trained: TrainedConfig = TrainedConfig()

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "evaluations", "length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}")
        if self.rate is not None and not self.rate > 0:
            raise UsageError(f"the learning rate must be above 0, not {self.rate}")
        if self.decay < 0 or self.clip < 0 or self.patience < 0 or not 0 <= self.warmup < 1:
            raise UsageError("decay, clip and patience must not be negative, and warm-up is a share below 1")

    def epochs_of(self, examples: int) -> int:
        """How often to read so many examples."""
        if self.epochs is not None:
            return self.epochs
        return min(MOST, max(FEWEST, round(STEPS * self.batch / max(1, examples))))

    @property
    def peak(self) -> float:
        return self.rate if self.rate is not None else RATES[self.trained.what]

    @property
    def schedule(self) -> ScheduleConfig:
        return ScheduleConfig(type="linear", warmup=self.warmup)

    @property
    def optimizer(self) -> OptimizerConfig:
        return OptimizerConfig(rate=self.peak, decay=self.decay, clip=self.clip, epsilon=1e-8)
