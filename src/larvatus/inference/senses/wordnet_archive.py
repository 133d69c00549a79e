"""WordNet's database files out of an archive: `.tar`, maybe compressed, as some distributors pack them.

folder = unpack_wordnet(Path("wordnet30.tar.xz"), Path("aside/wordnet"))        # a folder is given back as it is
WordNet.open(folder)
"""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath

from larvatus.core import files
from larvatus.core.errors import DataError
from larvatus.data.text.archives import ARCHIVE_ERRORS
from larvatus.data.text.streams import open_bytes
from larvatus.inference.senses.wordnet import NAMES

LARGEST = 1 << 28
"""Bytes of one file: WordNet's largest has 16 million."""


def unpack_wordnet(path: Path, folder: Path) -> Path:
    """The folder of the database files: what was given, or `folder` with those files of the archive alone."""
    if path.is_dir() or folder.is_dir():
        return path if path.is_dir() else folder
    wanted = {"index.sense", *(f"data.{name}" for name in NAMES.values()), *(f"{name}.exc" for name in NAMES.values())}
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            files.new_directory(folder) as aside,
            open_bytes(str(path)) as stream,
            tarfile.open(fileobj=stream, mode="r|") as archive,
        ):
            for member in archive:
                name = PurePosixPath(member.name).name
                if name in wanted and member.isfile():
                    if member.size > LARGEST:
                        raise DataError(f"{path}: {name} has {member.size:,} bytes; no WordNet is that large")
                    content = archive.extractfile(member)
                    assert content is not None
                    (aside / name).write_bytes(content.read())
    except (tarfile.TarError, *ARCHIVE_ERRORS) as fault:
        raise DataError(f"{path} cannot be read as an archive of WordNet: {fault}") from fault
    return folder
