"""A request to measure claims again: the model, the settings, and where the data are looked for.

    request = RerunRequest(ClaimedModel(Path("runs/ner")), DataFinder([Path("data/")]), claim)
    request.settings(ExamplesClaimSettings), request.paths(), request.model.bundle

A card may come from anywhere. So the data it names are searched by relative names below known places: what the user
named, the model's directory and the current directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from larvatus.core.errors import ArtefactError, DataError, LarvatusError, printable
from larvatus.core.files import sha256
from larvatus.inference.model import Model, load
from larvatus.models.bundle.claims import Claim, Data
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.tasks.registry import column_names

S = TypeVar("S", bound=Struct)


class OnlyRecorded(LarvatusError):
    """Figures of a command that only training gives; they are recorded and not measured again."""


class NotRerunnable(LarvatusError):
    """Figures that need more than data, such as another model."""


class MissingData(DataError):
    """Data of a claim that were not found."""

    def __init__(self, *data: Data) -> None:
        super().__init__(f"needs {', '.join(map(str, data))}")
        self.data = data


class ChangedData(DataError):
    """Data that have the right name but other contents."""

    def __init__(self, data: Data, actual: str, path: Path) -> None:
        super().__init__(f"{path} is not what was measured on: sha256 {actual[:12]}…, claimed {data.sha256[:12]}…")


@dataclass(frozen=True)
class DataFinder:
    places: Sequence[Path]

    def paths(self, data: Data) -> list[Path]:
        """All files of the data, in order. Data of kind `file` are checked against their checksum."""
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


@dataclass(frozen=True)
class ClaimedModel:
    """The model of the claims, loaded on first use."""

    directory: Path
    device: str = "cpu"

    @cached_property
    def bundle(self) -> Bundle:
        return load_bundle(self.directory)

    @cached_property
    def model(self) -> Model:
        return load(self.directory, device=self.device)


@dataclass(frozen=True)
class RerunRequest:
    """Claims that one run measures again: one command, the same data, the same settings."""

    model: ClaimedModel
    finder: DataFinder
    claim: Claim
    """The first of the claims."""

    @property
    def data(self) -> Data:
        """The data set of the claims; refused if they name none."""
        if not self.claim.data:
            raise ArtefactError(f"claim {self.claim.metric} names no data; {self.claim.command} measures on some")
        return self.claim.data[0]

    def paths(self) -> list[Path]:
        """Paths of the data."""
        return self.finder.paths(self.data)

    def files(self) -> list[Path]:
        """Paths of several data files, each named and checked by itself."""
        if not self.claim.data or any(data.kind != "file" for data in self.claim.data):
            raise ArtefactError(f"claim {self.claim.metric} names no files; {self.claim.command} measures on some")
        paths, missing = [], []
        for data in self.claim.data:
            try:
                paths += self.finder.paths(data)
            except MissingData:
                missing.append(data)
        if missing:  # name all of them, so that a reader fetches them at once
            raise MissingData(*missing)
        return paths

    def columns(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Column names, checked against those that commands know."""
        for name, value in given.items():
            if name not in column_names():
                raise ArtefactError(f"claim {self.claim.metric}: settings: {printable(name)!r} is no column")
            if not isinstance(value, str | bool | None):
                raise ArtefactError(f"claim {self.claim.metric}: settings: column {name} is no name")
        return dict(given)

    def settings(self, kind: type[S], settings: Mapping[str, Any] | None = None) -> S:
        """The settings of the claims as a struct; anything that does not fit is refused."""
        try:
            return msgspec.convert(dict(self.claim.settings if settings is None else settings), kind)
        except msgspec.ValidationError as fault:
            raise ArtefactError(f"claim {self.claim.metric}: settings: {fault}") from fault
