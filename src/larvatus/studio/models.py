"""What the studio needs to know of the models that are served: where each stands, and how one is put beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class StudioModels(Protocol):
    def directory(self, name: str | None) -> Path:
        """Of a served model; None: the first. One that is not served is refused."""

    def publish(self, name: str, directory: Path) -> str:
        """Serve a model that was just made here; gives the name that it is served by."""
