"""Inputs that once ended in a traceback, or might: each must end in one line and the right exit code.

A module here holds `CASES: list[Case]`; `test_no_traceback.py` runs them all, each in an empty folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """Where a case runs, and what it may use."""

    here: Path
    """An empty folder of its own, which is also the working directory."""
    model: Path
    """A tiny BERT; shared by all cases, so none may change it (`shutil.copytree` it first)."""
    text: Path
    """Some lines of text."""

    def write(self, name: str, contents: str | bytes) -> Path:
        path = self.here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents.encode() if isinstance(contents, str) else contents)
        return path


@dataclass(frozen=True)
class Case:
    name: str
    command: Callable[[Place], list[object]]
    """Makes what the case needs and gives the arguments of `larvatus`."""
    code: int
    """2 usage, 3 recipe, 4 data, 5 artefact, 6 numerics; 0 where it must work. Never 70."""
    says: tuple[str, ...] = ()
    """Words that the one line on standard error must hold."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that are set meanwhile."""
