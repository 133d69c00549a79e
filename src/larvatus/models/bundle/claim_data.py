"""Where the data of claims are looked for: below what the user named, the model's directory, and where the user stands.

    shelf = Shelf([Path("held_out/"), Path("runs/law")])
    shelf.paths(data)                              # the files, or MissingData

A card may come from anywhere, so what it names is looked up by relative names below these places, never elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from larvatus.core.errors import DataError
from larvatus.core.files import sha256
from larvatus.models.bundle.claims import Data


class MissingData(DataError):
    """Data that a claim needs, and that stand nowhere."""

    def __init__(self, *data: Data) -> None:
        super().__init__(f"needs {', '.join(map(str, data))}")
        self.data = data


class ChangedData(DataError):
    """Data that have the right name and say something else."""

    def __init__(self, data: Data, actual: str, path: Path) -> None:
        super().__init__(f"{path} is not what was measured on: sha256 {actual[:12]}…, claimed {data.sha256[:12]}…")


@dataclass(frozen=True)
class DataFinder:
    places: Sequence[Path]

    def paths(self, data: Data) -> list[Path]:
        """All files of the data, in their order; those of kind `file` are checked against their checksum."""
        paths = [self._path(name, data) for name in data.files or (data.name,)]
        if data.kind == "file":
            actual = sha256(paths[0])
            if actual != data.sha256:
                raise ChangedData(data, actual, paths[0])
        return paths

    def _path(self, name: str, data: Data) -> Path:
        for path in self._candidates(name):
            if path.is_file() or (path.is_dir() and data.kind != "file"):  # a pipe would wait for its writer
                return path
        raise MissingData(data)

    def _candidates(self, name: str) -> Iterator[Path]:
        parts = PurePath(name).parts  # none of "" and "."
        if not parts or "\0" in name:
            return
        ends = [parts[start:] for start in range(len(parts))]
        safe = [end for end in ends if ".." not in end and not PurePath(*end).is_absolute()]
        for place in self.places:
            if place.name and place.name == parts[-1]:
                yield place
            yield from (place.joinpath(*end) for end in safe)
