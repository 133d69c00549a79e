"""What all pictures share: they want matplotlib, the extra `plots`, which is imported only where one is drawn."""

from __future__ import annotations

from importlib.util import find_spec

from larvatus.core.errors import UsageError


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def check_can_draw() -> None:
    """Before the work, not after it."""
    if not can_draw():
        raise UsageError('a picture wants matplotlib; pip install "larvatus[plots]"')


def as_written(text: str) -> str:
    """Text as it stands: a dollar sign is matplotlib's mark of mathematics."""
    return text.replace("$", r"\$")
