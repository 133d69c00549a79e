"""What a card asks to have worked out again: the model, the settings and the data of some claims.

asked = Asked(Subject(Path("runs/ner"), "cpu"), Shelf([Path("data/")]), claim)
asked.settings(OnExamples), asked.paths(), asked.bundle
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from larvatus.core.errors import ArtefactError, LarvatusError, printable
from larvatus.inference.model import Model, load
from larvatus.models.bundle.claim_data import DataFinder, MissingData
from larvatus.models.bundle.claims import Claim, Data
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.tasks.registry import column_names

S = TypeVar("S", bound=Struct)


class OnlyRecorded(LarvatusError):
    """Figures that only training gives, though others of the same command are run again."""


class NotRerunnable(LarvatusError):
    """Figures that need more than data: another model, or a file that a card cannot name."""


@dataclass(frozen=True)
class ClaimedModel:
    """The model that claims are about; loaded once, when it is first needed."""

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
    """Claims that one run answers: of one command, on the same data, under the same settings."""

    subject: ClaimedModel
    shelf: DataFinder
    claim: Claim
    """The first of them."""

    @property
    def bundle(self) -> Bundle:
        return self.subject.bundle

    @property
    def device(self) -> str:
        return self.subject.device

    @property
    def data(self) -> Data:
        """The data set; claims of a command that wants one must name it."""
        if not self.claim.data:
            raise ArtefactError(f"claim {self.claim.metric} names no data; {self.claim.command} measures on some")
        return self.claim.data[0]

    def paths(self) -> list[Path]:
        """Where the data stand."""
        return self.shelf.paths(self.data)

    def files(self) -> list[Path]:
        """Of data that are several files, each named and checked by itself."""
        if not self.claim.data or any(data.kind != "file" for data in self.claim.data):
            raise ArtefactError(f"claim {self.claim.metric} names no files; {self.claim.command} measures on some")
        paths, missing = [], []
        for data in self.claim.data:
            try:
                paths += self.shelf.paths(data)
            except MissingData:
                missing.append(data)
        if missing:  # all are named, so that a reader fetches them at once
            raise MissingData(*missing)
        return paths

    def columns(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Names of columns, of those that commands know."""
        for name, value in given.items():
            if name not in column_names():
                raise ArtefactError(f"claim {self.claim.metric}: settings: {printable(name)!r} is no column")
            if not isinstance(value, str | bool | None):
                raise ArtefactError(f"claim {self.claim.metric}: settings: column {name} is no name")
        return dict(given)

    def settings(self, kind: type[S], settings: Mapping[str, Any] | None = None) -> S:
        """The settings of the claims as a struct; what does not fit is refused."""
        try:
            return msgspec.convert(dict(self.claim.settings if settings is None else settings), kind)
        except msgspec.ValidationError as fault:
            raise ArtefactError(f"claim {self.claim.metric}: settings: {fault}") from fault
