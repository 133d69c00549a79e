"""The data folder of a suite: finds its files, compressed or not, and computes their checksums.

    data = DataFolder.open("data")
    data.path("glue/SST-2/train.tsv")             # data/glue/SST-2/train.tsv.xz, if that file exists
    data.missing(("blimp.jsonl",))                # the first missing file, or None

docs/suite.md lists the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from larvatus.core import files
from larvatus.core.errors import DataError
from larvatus.data.text.archives import COMPRESSIONS
from larvatus.data.text.readers import list_whole_folder


@dataclass(frozen=True)
class DataFolder:
    root: Path

    @classmethod
    def open(cls, root: str | Path) -> DataFolder:
        path = Path(root)
        if not path.is_dir():
            raise DataError(f"--data {path} is not a folder; give the one with the suite's files (docs/suite.md)")
        return cls(path)

    def find(self, name: str) -> Path | None:
        """A file, compressed or not, or a folder; an archive may be an unpacked folder without ``.tar``."""
        plain = self.root / name
        names = [plain, *(plain.with_name(plain.name + ending) for ending in COMPRESSIONS)]
        if plain.suffix == ".tar":
            names.insert(0, plain.with_suffix(""))
        return next((path for path in names if path.exists()), None)

    def path(self, name: str) -> Path:
        path = self.find(name)
        if path is None:
            raise DataError(f"{self.root / name} is missing")
        return path

    def missing(self, names: Sequence[str]) -> str | None:
        """Path of the first missing file; None if all exist."""
        return next((str(self.root / name) for name in names if self.find(name) is None), None)

    def checksums(self, names: Sequence[str]) -> dict[str, str]:
        """SHA-256 of each existing file by its place in the folder; for a folder, over all its files."""
        paths = {name: path for name in names if (path := self.find(name)) is not None}
        return {path.relative_to(self.root).as_posix(): _checksum(path) for path in paths.values()}


def _checksum(path: Path) -> str:
    if not path.is_dir():
        return files.sha256(path.resolve())  # data may be linked to
    digest = hashlib.sha256()
    for file in list_whole_folder(path):
        digest.update(f"{Path(file).relative_to(path).as_posix()} {files.sha256(Path(file).resolve())}\n".encode())
    return digest.hexdigest()
