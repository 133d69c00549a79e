"""The encoders there are: `[model]` of a recipe is one of these, told apart by its `type`.

    [model]
    type = "transformer"          # may be left out
    layers = 12

An encoder is a module of its own (`encoder_base.py` says what it offers) with a config that builds it: one file, and
its line in `EncoderConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.nn.elmo import ElmoConfig
from larvatus.models.nn.encoder_base import Encoder
from larvatus.models.nn.encoder_decoder import EncoderDecoderConfig
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.nn.xlnet import XLNetConfig

__all__ = ["DEFAULT_TYPE", "ENCODERS", "Encoder", "EncoderConfig", "with_type", "without_default_type"]

EncoderConfig = (
    TransformerConfig
    | CausalTransformerConfig
    | XLNetConfig
    | EncoderDecoderConfig
    | ElmoConfig
)  # fmt: skip

ENCODERS: dict[str, type[Any]] = {
    str(config.__struct_config__.tag): config for config in get_args(EncoderConfig) or (EncoderConfig,)
}
"""The members of the union by their type."""
DEFAULT_TYPE = "transformer"
"""Of settings that name none: recipes and directories of before there was a choice."""


def with_type(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they are read: the default type is said.

    >>> with_type({"layers": 2})
    {'type': 'transformer', 'layers': 2}
    """
    return {"type": DEFAULT_TYPE, **settings}


def without_default_type(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they are written: the default type is left out, so that files and runs of before stay equal.

    >>> without_default_type({"type": "transformer", "layers": 2})
    {'layers': 2}
    """
    return {name: value for name, value in settings.items() if (name, value) != ("type", DEFAULT_TYPE)}
