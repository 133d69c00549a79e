"""The available encoders: `[model]` of a recipe is one of these, selected by its `type`.

    [model]
    type = "transformer"          # the default
    layers = 12

An encoder is a module (`encoder_base.py` defines its interface) with a config that builds it: one file, and its line in
`EncoderConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.nn.elmo import ElmoConfig
from larvatus.models.nn.encoder_base import Encoder
from larvatus.models.nn.encoder_decoder import EncoderDecoderConfig
from larvatus.models.nn.static import StaticConfig
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.nn.xlnet import XLNetConfig

__all__ = ["DEFAULT_TYPE", "ENCODERS", "Encoder", "EncoderConfig", "with_type", "without_default_type"]

EncoderConfig = (
    TransformerConfig
    | CausalTransformerConfig
    | XLNetConfig
    | EncoderDecoderConfig
    | ElmoConfig
    | StaticConfig
)  # fmt: skip

ENCODERS: dict[str, type[Any]] = {
    str(config.__struct_config__.tag): config for config in get_args(EncoderConfig) or (EncoderConfig,)
}
"""The members of the union by their type."""
DEFAULT_TYPE = "transformer"
"""Type of settings that name none: recipes and directories from before there was a choice."""


def with_type(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they are read: the default type is filled in.

    >>> with_type({"layers": 2})
    {'type': 'transformer', 'layers': 2}
    """
    return {"type": DEFAULT_TYPE, **settings}


def without_default_type(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they are written: the default type is omitted, so that older files and runs stay equal.

    >>> without_default_type({"type": "transformer", "layers": 2})
    {'layers': 2}
    """
    return {name: value for name, value in settings.items() if (name, value) != ("type", DEFAULT_TYPE)}
