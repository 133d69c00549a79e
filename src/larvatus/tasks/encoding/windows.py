"""How long texts are read: in overlapping windows, or only the first window.

windows = WindowOptions.of(bundle, length=384, truncate=False)
"""

from __future__ import annotations

from dataclasses import dataclass

from larvatus.core.errors import UsageError
from larvatus.models.bundle.directory import Bundle


@dataclass(frozen=True, kw_only=True)
class WindowOptions:
    limit: int
    """Tokens of a window, special ones included."""
    truncate: bool = False
    """Read only the first window of a long text."""
    overlap: int | None = None
    """Tokens that windows share; None: a quarter of a window."""

    @classmethod
    def of(
        cls, bundle: Bundle, *, length: int | None = None, truncate: bool = False, overlap: int | None = None
    ) -> WindowOptions:
        """Windows of the given length, or of as many tokens as the model has positions."""
        most = bundle.model.max_positions
        if length is not None and length > most:
            raise UsageError(f"--length {length} is more than the model's {most} positions")
        return cls(limit=length or most, truncate=truncate, overlap=overlap)
