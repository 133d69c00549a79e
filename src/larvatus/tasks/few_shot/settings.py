"""Settings of few-shot prompting, for Python and for the command.

FewShotSettings(k=16, draws=5, methods=("zero", "tune", "pet"), baseline="finetune")
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, UnsetType

from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.ranges import (
    Count,
    CountOrNone,
    LearningRate,
    Length,
    Seed,
    Share,
    Size,
    Temperature,
    whole,
)
from larvatus.core.settings import Flag, Settings
from larvatus.tasks.prompt.prompted import NEUTRAL_TEXTS

METHODS = ("zero", "calibrated", "context", "tune", "pet")
DRAWS = whole(1, 10_000)


class FewShotSettings(Settings):
    """Number of examples and of samples, and the methods."""

    k: CountOrNone = 16
    """Examples to sample of each class (LM-BFF); 0: none, the model as it is."""
    total: bool = False
    """--k examples in all, not of each class (PET)."""
    draws: Annotated[int, DRAWS] = 5
    """Number of samples: the table shows mean, deviation and interval over them."""
    seed: Seed = 0
    """Seed of all randomness."""
    methods: Annotated[tuple[str, ...], Flag("--method", metavar="NAME")] = ()
    """zero, calibrated (by neutral texts), context (examples shown), tune (the prompt is fine-tuned), pet; repeatable;
    default: zero and calibrated, with --k tune too."""
    baseline: Literal["finetune"] | None = None
    """finetune: plain fine-tuning on the same samples, as a baseline."""
    neutral: Annotated[tuple[str, ...], Flag(metavar="TEXT")] = NEUTRAL_TEXTS
    """Neutral text, to calibrate by; repeatable; default: N/A and the empty text."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for method in self.methods:
            if method not in METHODS:
                raise UsageError(f"there is no method {method!r} of prompting{did_you_mean(method, METHODS)}")
        if not self.k and set(self.chosen) & {"context", "tune", "pet"}:
            raise UsageError("context, tune and pet need examples: give --k 1 or more, or leave these methods out")
        if not self.k and self.baseline:
            raise UsageError("--baseline finetune needs examples: give --k 1 or more")

    @property
    def chosen(self) -> tuple[str, ...]:
        """The methods, in the order of the table."""
        usual = ("zero", "calibrated", *(("tune",) if self.k else ()))
        return tuple(method for method in METHODS if method in (self.methods or usual))


class FewShotTraining(Settings):
    """Training of prompts and of the plain classifier on few examples."""

    steps: Count = 250
    """Updates on the sampled examples (PET: 250), of prompts and of plain fine-tuning."""
    batch: Size = 16
    """Texts of a step."""
    rate: LearningRate | None = None
    """Peak learning rate; default: by what is trained."""
    trained: str = "all"
    """Trainable part: all, head, last2, bias (BitFit), lora, lora16."""
    length: Length | None = None
    """Tokens of a sequence, special ones included: the pattern stays whole, the text is cut; default: the model's."""
    unlabelled_most: Annotated[int, whole(1, 10**9)] = 10_000
    """PET: unlabelled texts that the patterns label, at most."""
    distil_steps: Count = 1_000
    """PET: updates of the classifier on what they labelled (published: 5,000)."""
    temperature: Temperature = 2.0
    """PET: scores are divided by it to give soft labels."""
    mlm_weight: Share | UnsetType = UNSET
    """PET: share of the masked-lm loss of the unlabelled texts while a pattern learns (published: 0.0001); default: 0,
    none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mlm_share and self.trained == "head":
            raise UsageError("--mlm-weight needs an encoder that is trained, and only the head is; leave it out")

    @property
    def mlm_share(self) -> float:
        """α; 0 by default."""
        return 0.0 if self.mlm_weight is UNSET else self.mlm_weight
