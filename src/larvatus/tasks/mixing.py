"""Whether a new head reads a learned mix of all layers: as asked for, else as the model is made to be read.

    options = mixed(options, bundle)            # ELMo's tasks mix its layers (Peters et al. 2018), others read the last

Where the options say how layers are read in another way, nothing is mixed.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import msgspec

from larvatus.models.bundle.directory import Bundle


class MixesLayers(Protocol):
    """Options of a task that may mix layers."""

    @property
    def mix(self) -> bool | None: ...


O = TypeVar("O", bound=MixesLayers)  # noqa: E741


def with_layer_mix(options: O, bundle: Bundle, *, instead: bool = False) -> O:
    """The options with `mix` settled; `instead`: layers are read in a way that leaves no place for a mix."""
    if options.mix is not None:
        return options
    natural = bool(getattr(bundle.model, "mixed", False)) and not instead
    return msgspec.structs.replace(options, mix=natural)  # type: ignore[type-var]
