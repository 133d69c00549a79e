"""Files of tensors that belong to a model and have a name: standardisers, translators of the tuned lens.

    LENSES = NamedTensors(folder="lens", what="tuned lens", make="larvatus lens train")
    LENSES.path(directory, "default")             # directory/lens/default.safetensors
    LENSES.save(path, tensors, described)         # appears complete or not at all
    LENSES.description(path, LensDescription)     # what the header says about them

The description is JSON in the header of a safetensors file. It has a `format`, the fingerprint of the model and a
checksum of the tensors, which the owner of the file verifies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import safetensors
from torch import Tensor

from larvatus.core import files
from larvatus.core.errors import ArtefactError, UsageError, did_you_mean
from larvatus.core.outputs import new_output
from larvatus.core.regular_files import follow_link, is_there, refuse_link
from larvatus.models.bundle.weights import stored_bytes, write_tensors

SUFFIX = ".safetensors"
_NAME = re.compile(r"\w[\w.-]*")
D = TypeVar("D", bound=msgspec.Struct)


@dataclass(frozen=True)
class NamedTensors:
    """A kind of file."""

    folder: str
    """Folder in the model's directory."""
    what: str
    """Name in messages: ``standardiser``."""
    make: str
    """Command that makes one."""

    def path(self, directory: Path, name: str) -> Path:
        """Path of a file of a model by name; a name that ends in .safetensors is a path itself."""
        if name.endswith(SUFFIX):
            return Path(name)
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} cannot name a {self.what}; use letters, digits, dots and hyphens")
        refuse_link(directory / self.folder)
        return directory / self.folder / (name + SUFFIX)

    def names(self, directory: Path) -> list[str]:
        """Names of the files of a model."""
        return sorted(file.name.removesuffix(SUFFIX) for file in (directory / self.folder).glob("*" + SUFFIX))

    def find(self, directory: Path, name: str) -> Path:
        """The same of a file that exists."""
        path = self.path(directory, name)
        if name.endswith(SUFFIX):
            path = follow_link(path)
        if is_there(path):
            return path
        if name.endswith(SUFFIX):
            raise ArtefactError(f"{path} does not exist; fit it: {self.make} --model {directory} --out {path}")
        known = self.names(directory)
        raise ArtefactError(
            f"{directory} has no {self.what} {name!r}{did_you_mean(name, known)}; "
            f"fit one: {self.make} --model {directory} --corpus TEXT --name {name}"
        )

    def check_model(self, name: str, fitted: str, *, fingerprint: str, path: Path) -> None:
        """Refuse a model that the file was not fitted for."""
        if fingerprint != fitted:
            raise ArtefactError(
                f"{self.what} {name} was fitted for another model than {path} (or for its weights before they "
                f"changed); fit it again: {self.make} --model {path} --name …"
            )

    def check_sum(self, path: Path, *, stored: str, computed: str) -> None:
        """Refuse a file whose tensors were changed."""
        if stored != computed:
            raise ArtefactError(
                f"{path} does not match its checksum (wanted {stored[:8]}…, got {computed[:8]}…); fit it again: "
                f"{self.make}"
            )

    def save(self, path: Path, tensors: Mapping[str, Tensor], described: msgspec.Struct) -> None:
        """Write one file, which appears complete or not at all."""
        with files.saying_what_is_full(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with new_output(path, stored_bytes(tensors)) as aside:
            write_tensors(aside, tensors, {"larvatus": msgspec.json.encode(described).decode()})

    def description(self, path: Path, kind: type[D]) -> D:
        """What the header says."""
        try:
            with safetensors.safe_open(path, framework="np") as file:
                metadata = file.metadata() or {}
            value = json.loads(metadata["larvatus"])
            if isinstance(value, dict) and value.get("format") != 1:
                was = value.get("format")
                raise ArtefactError(f"{path} has format {was!r}, and this Larvatus reads 1; fit it again")
            return msgspec.convert(value, kind)
        except (KeyError, ValueError, safetensors.SafetensorError) as fault:
            raise ArtefactError(f"{path} is not a {self.what} of Larvatus; fit it again: {self.make}") from fault
