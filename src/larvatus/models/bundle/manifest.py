"""`larvatus.json`: the files that make up a model directory, and the model's origin.

    {"format": 1, "larvatus": "0.1.0", "recipe": {…}, "lineage": {"seed": 7, "steps": 9600, "corpus": "5f2c…", …},
     "claims": [{"metric": "masked-lm loss", "value": 2.64, "command": "held-out text", …}, …],
     "files": {"model.safetensors": {"sha256": "…", "bytes": 115343360}, "tokenizer.json": {…}, …}}

Every listed file is checked when the directory is loaded; other files (metrics, checkpoints) are ignored. A directory
without it (from Hugging Face) has nothing to be checked against, and loads too. A model that belongs to this one (its
generator) has a folder with a `larvatus.json` of its own, which `parts` lists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from larvatus.core import files
from larvatus.core.errors import ArtefactError
from larvatus.core.ranges import Tally
from larvatus.core.regular_files import is_there, refuse_link, size_of
from larvatus.core.run_identity import VERSION
from larvatus.core.settings import Settings
from larvatus.models.bundle.weights import plain_name

NAME = files.MANIFEST
CARD = "README.md"
ADAPTER = "sentence"
"""Folder of the sentence adapter that a model may have (`sentence_adapter.py`)."""
FORMAT = 1
LAST = "last"


class FileEntry(Settings, error=ArtefactError):
    sha256: str
    bytes: Tally


class Manifest(Settings):
    format: int = FORMAT
    """Version of this file format."""
    larvatus: str = VERSION
    """Version of Larvatus that wrote the directory."""
    recipe: dict[str, Any] | None = None
    """The complete recipe of the training run, including defaults."""
    lineage: dict[str, Any] = {}
    """Origin of the model: seed, steps, tokens, hashes of its corpus and of its parent."""
    files: dict[str, FileEntry]
    """Checksum and size of each file of the model."""
    parts: dict[str, FileEntry] = {}
    """Folders that belong to the model: checksum and size of the manifest in each."""
    claims: list[dict[str, Any]] = []
    """The figures of its card (`claims.py` reads them; a model loads whatever they contain)."""
    word_layers: str = LAST
    """Layers that vectors of words are of where none are requested, as `--layers` writes them."""

    @property
    def digest(self) -> str:
        """A checksum of everything the model consists of except the card; claims refer to it.

        A sentence adapter is left out: it changes nothing but the vectors of whole texts, so claims stay true with it.
        """
        parts = {**self.files, **self.parts}
        lines = [f"{name} {parts[name].sha256}" for name in sorted(parts) if name not in (CARD, ADAPTER)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def write_manifest(
    directory: Path,
    names: Iterable[str],
    *,
    recipe: dict[str, Any] | None,
    lineage: dict[str, Any],
    parts: Iterable[str] = (),
    claims: Iterable[Mapping[str, Any]] = (),
    word_layers: str = LAST,
) -> Manifest:
    """Checksum the named files of a directory and write its `larvatus.json`; those of `parts` are written first.

    Claims without a model are about this one.
    """
    manifest = Manifest(
        recipe=recipe,
        lineage=lineage,
        files={name: _entry(directory / name) for name in sorted(names)},
        parts={name: _entry(directory / name / NAME) for name in sorted(parts)},
        word_layers=word_layers,
    )
    stamped = [{"model": manifest.digest, **claim} for claim in claims]
    manifest = msgspec.structs.replace(manifest, claims=stamped)
    files.write_json(directory / NAME, plain(manifest))
    return manifest


def plain(manifest: Manifest) -> dict[str, Any]:
    """The JSON that is written, without fields that say nothing: no claims, word vectors of the last layer."""
    values: dict[str, Any] = msgspec.to_builtins(manifest)
    silent = {"claims": [], "word_layers": LAST}
    return {name: value for name, value in values.items() if name not in silent or value != silent[name]}


def _entry(path: Path) -> FileEntry:
    return FileEntry(sha256=files.sha256(path), bytes=path.stat().st_size)


def read_manifest(directory: Path) -> Manifest | None:
    """The directory's manifest, not yet verified; None if there is none."""
    path = directory / NAME
    if not is_there(path):
        return None
    value = files.read_json(path)
    if isinstance(value, dict) and value.get("format", FORMAT) != FORMAT:
        raise ArtefactError(
            f"{path} has format {value['format']!r}, and this Larvatus ({VERSION}) reads format {FORMAT}; "
            "use the Larvatus that wrote it, or train again"
        )
    try:
        return msgspec.convert(value, Manifest)
    except msgspec.ValidationError as fault:
        raise ArtefactError(f"{path} is not a Larvatus manifest: {fault}") from fault


def verify(directory: Path, manifest: Manifest, *, required: Iterable[str] = ()) -> None:
    """Refuse a directory whose files are not those that were saved; the error names the first that differs."""
    source = directory / NAME
    for name in required:
        if name not in manifest.files:
            raise ArtefactError(f"{source} has no checksum for {name}; save or fetch the directory again")
    for name, entry in manifest.files.items():
        _check(directory / plain_name(source, name), entry)
    for name, entry in manifest.parts.items():
        folder = directory / plain_name(source, name)
        refuse_link(folder)
        _check(folder / NAME, entry)


def _check(path: Path, entry: FileEntry) -> None:
    if not is_there(path):
        raise ArtefactError(f"{path} is missing, but {NAME} lists it; save or fetch the directory again")
    size = size_of(path)
    if size != entry.bytes:
        raise ArtefactError(
            f"{path} has {size:,} bytes, not the {entry.bytes:,} that were saved; save or fetch the directory again"
        )
    got = files.sha256(path)
    if got != entry.sha256:
        raise ArtefactError(
            f"{path} does not match its checksum (expected {entry.sha256[:8]}…, got {got[:8]}…); it was changed or "
            "damaged since it was saved: save or fetch the directory again"
        )
