"""Options of vectors: units, layers, pooling.

EmbedOptions(unit="word", layers="last4", pool="mean")
"""

from __future__ import annotations

from typing import Literal, get_args

from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.ranges import Count, SizeOrNone
from larvatus.core.settings import Settings
from larvatus.inference.vectors.layers import PARTS, Layers, Pool, Unit
from larvatus.inference.vectors.standardise import Standardiser

__all__ = ["EmbedOptions", "Pool", "Precision", "Unit", "VectorOptions"]

Precision = Literal["fp32", "bf16"]
_PIECES: tuple[Pool, ...] = ("mean", "sum", "max", "first", "last")
_WHOLE: tuple[Pool, ...] = ("mean", "max", "cls")


class VectorOptions(Settings):
    """Options of vectors, for Python and for commands."""

    unit: Unit = "sentence"
    """What gets a vector; span: words between stars, as in the *bank* of a river."""
    layers: Layers | None = None
    """last, last4 (mean), last4-sum, a number (0: embeddings), or weights 0.1,0.2,… of all. Default: the
    model's own for words, mostly the last; the last for texts."""
    pool: Pool | None = None
    """Words, spans: mean, sum, max, first, last. Texts: mean, max, cls. Default: mean, or as the model was trained."""
    normalise: bool | None = None
    """Scale vectors to length 1; default: no, or as the sentence encoder has it."""
    overlap: SizeOrNone | None = None
    """Tokens that windows of a long text share, at least; a quarter of a window by default."""
    precision: Precision = "fp32"
    """bf16 is for GPUs, and for CPUs that support it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unit not in get_args(Unit):
            raise UsageError(f"{self.unit!r} is not a unit{did_you_mean(str(self.unit), get_args(Unit))}")
        allowed = _PIECES if self.unit in PARTS else _WHOLE
        if self.pool is not None and self.pool not in allowed:
            raise UsageError(f"a {self.unit} cannot be pooled by {self.pool!r}; use {', '.join(allowed)}")
        if self.precision not in get_args(Precision):
            raise UsageError(f"precision is fp32 or bf16, not {self.precision!r}")


class EmbedOptions(VectorOptions):
    """`sentence` and `document` are the whole text, from [CLS] to [SEP]."""

    layers: Layers = "last"
    pool: Pool = "mean"
    """How the tokens of a unit are pooled."""
    normalise: bool = False
    """Scale vectors to length 1."""
    projected: bool = False
    """Embed as a sentence encoder: with the weights of its adapter, and the linear layers after its pooling."""
    tokens: Count | None = None
    """Tokens of a batch; by default what suits the device. Vectors do not depend on it."""
    standardise: Standardiser | None = None
    """Scale every dimension to mean 0 and deviation 1 before `normalise`; it must be fitted for these units."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.projected and (self.unit in PARTS or self.layers != "last" or self.standardise is not None):
            raise UsageError("linear layers and adapter of a sentence encoder are for whole texts of its last layer")
        if self.standardise is not None:
            self.standardise.check(self.unit, self.pool)
