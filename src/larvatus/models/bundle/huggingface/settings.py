"""Settings of a config.json as structs: what does not fit is named, with the file.

settings = convert(config, BertSettings, source=Path("model/config.json"))
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from larvatus.core.errors import ArtefactError, RecipeError, UsageError
from larvatus.core.ranges import check_ranges


def convert(value: Mapping[str, Any], to: Any, source: Path) -> Any:
    """A settings struct, or one of a union, from JSON; what does not fit is named, with the file."""
    try:
        converted = msgspec.convert(value, to)
        check_ranges(converted, "")
        return converted
    except (msgspec.ValidationError, RecipeError, UsageError) as fault:
        raise ArtefactError(f"{source}: {fault}") from fault
