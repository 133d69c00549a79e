"""What a run's vocabulary was learnt from, and that it is still what was learnt: `vocabulary/vocabulary.json`.

note_vocabulary(folder, wanted)          # after all of its files were written
learnt_like(folder, wanted)              # whether it can be taken up: a changed file is refused by name
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from larvatus.core.checksummed import check_file, read_checksummed, write_checksummed
from larvatus.core.files import sha256
from larvatus.core.regular_files import is_there

NOTE = "vocabulary.json"


def note_vocabulary(folder: Path, wanted: dict[str, Any]) -> None:
    """Say what it was made of, with the checksum of every file."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != NOTE)
    files = {path.relative_to(folder).as_posix(): sha256(path) for path in paths}
    write_checksummed(folder / NOTE, {**wanted, "files": files})


def learnt_like(folder: Path, wanted: dict[str, Any]) -> bool:
    """Whether a vocabulary stands there that was made of the same; what is said of another one no longer holds."""
    noted = _read(folder)
    files = noted.pop("files", {})
    if noted != wanted:
        (folder / NOTE).unlink(missing_ok=True)
        return False
    _check(folder, files)
    return True


def has_sound(folder: Path, beginning: str) -> bool:
    """Whether a vocabulary has files whose names begin so; those that are missing or changed are refused by name."""
    files: dict[str, str] = _read(folder).get("files", {})
    files = {name: wanted for name, wanted in files.items() if name.startswith(beginning)}
    _check(folder, files)
    return bool(files)


def _check(folder: Path, files: dict[str, str]) -> None:
    for name, wanted in files.items():
        check_file(folder / name, wanted, way=_way(folder))


def _read(folder: Path) -> dict[str, Any]:
    return read_checksummed(folder / NOTE, way=_way(folder)) if is_there(folder / NOTE) else {}


def _way(folder: Path) -> str:
    return f"remove {folder} to have it learnt anew"
