"""What may be chosen of a head for multiple choice.

config = choosing_head(ChooseOptions(dropout=0.2), natural={"dense": "tanh"})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from larvatus.core.ranges import DropoutRate
from larvatus.core.settings import Settings
from larvatus.models.heads.head import Dense
from larvatus.models.heads.multiple_choice import MultipleChoiceConfig


class ChooseOptions(Settings):
    """Of a head that chooses; None is what suits the model."""

    pool: Literal["cls", "mean"] | None = None
    """What stands for a context with an ending: cls, or the mean of its tokens; default: as its family has it."""
    dense: Dense | None = None
    """Layer before the score; none: one linear layer alone; default: as the model's family has it."""
    dropout: DropoutRate | None = None
    """Dropout before the score; default: 0.1."""
    mix: bool | None = None
    """Read a learned mix of all layers; default: with ELMo."""


def choosing_head(options: ChooseOptions, *, natural: Mapping[str, Any]) -> MultipleChoiceConfig:
    """`natural` is what the model's family has: its layer before the score and its way of pooling."""
    asked = {"pool": options.pool, "dense": options.dense, "dropout": options.dropout}
    settings: dict[str, Any] = {**natural, **{name: value for name, value in asked.items() if value is not None}}
    if settings.get("dense") == "none":
        settings["dense_norm"] = False
    return MultipleChoiceConfig(mix=bool(options.mix), **settings)
