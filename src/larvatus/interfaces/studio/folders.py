"""Where the studio reads training runs, and where it keeps what it has taught.

folders = Folders(runs=Path("runs"))
folders.models / "reviews"                # the model that Learn made of reviews.csv
folders.examples / "reviews"              # that file, as it was given
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TAUGHT = "studio"
"""Folder of `runs` that holds what Learn made."""
EXAMPLES = "studio-examples"
"""Folder of `runs` with the files that it learnt from: a card names them, and `larvatus card --verify` reads them."""


@dataclass(frozen=True, kw_only=True)
class Folders:
    runs: Path
    """Training folders, however deep; it may be missing."""

    @property
    def models(self) -> Path:
        return self.runs / TAUGHT

    @property
    def examples(self) -> Path:
        return self.runs / EXAMPLES
