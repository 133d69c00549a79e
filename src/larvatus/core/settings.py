"""One way to declare settings: frozen, keyword-only, unknown fields refused, every number held to its range.

    class OptimizerConfig(Settings, path="optimizer.", error=RecipeError):
        clip: Clip = 1.0                                # Annotated[float, Range(0, 1e6)]

    OptimizerConfig(clip=-1)        # RecipeError: optimizer.clip = -1 must lie between 0 and 1,000,000

`path` precedes field names in errors and `error` is the exception raised; subclasses inherit both. A class with further
checks defines ``__post_init__`` and calls ``super().__post_init__()`` first.
"""

from __future__ import annotations

from typing import Any, ClassVar, dataclass_transform

import msgspec

from larvatus.core.errors import LarvatusError, UsageError
from larvatus.core.ranges import Seed, check_ranges

_CONFIG = {"frozen": True, "kw_only": True, "forbid_unknown_fields": True}


class SettingsMeta(msgspec.StructMeta):
    """Gives every subclass the same struct options; msgspec itself does not inherit ``kw_only``."""

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        /,
        path: str | None = None,
        error: type[LarvatusError] | None = None,
        **config: Any,
    ) -> SettingsMeta:
        if path is not None:
            namespace["__range_path__"] = path
        if error is not None:
            namespace["__range_error__"] = error
        return super().__new__(mcls, name, bases, namespace, **(_CONFIG | config))


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Settings(msgspec.Struct, metaclass=SettingsMeta, frozen=True):
    """Base of every settings struct."""

    __range_path__: ClassVar[str] = ""
    __range_error__: ClassVar[type[LarvatusError]] = UsageError

    def __post_init__(self) -> None:
        check_ranges(self, self.__range_path__, self.__range_error__)


class SeededSettings(Settings):
    """Settings of something that samples."""

    seed: Seed = 0
    """Seed of all sampling and resampling."""
