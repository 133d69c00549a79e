"""A built corpus in remote storage (``s3://bucket/corpus``, whatever fsspec opens), read shard by shard when needed.

    folder = mirrored("s3://bucket/corpus")          # manifest and tokenizer, in the cache of this machine
    Corpus.open(folder)                              # like any other; its shards come when they are read

The mirror is a folder that looks like the corpus, but for its shards: `remote.json` in it says where these are. Workers
and ranks of a machine open the same folder, and share what is fetched (`cache.py`). What the manifest says is checked
when it is opened, a shard when it is fetched.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import fsspec

from larvatus.core import files
from larvatus.core.checksummed import LONGEST, read_checksummed, write_checksummed
from larvatus.core.errors import DataError
from larvatus.core.regular_files import is_there
from larvatus.data.corpus.cache import ShardCache, locked_file
from larvatus.data.corpus.format import MANIFEST, TOKENIZER, ShardInfo, read_manifest
from larvatus.data.text.streams import storage_errors

REMOTE = "remote.json"
LARGEST_TOKENIZER = 1 << 30
"""Bytes of one of its files."""


@dataclass(frozen=True)
class RemoteShards:
    """The shards of a corpus that is elsewhere."""

    address: str
    folder: Path
    cache: ShardCache

    @classmethod
    def of(cls, folder: Path) -> RemoteShards | None:
        """Those of a mirror; None of a folder that has its shards itself."""
        if not is_there(folder / REMOTE, DataError):
            return None
        told = read_checksummed(folder / REMOTE, DataError, way=f"remove {folder}")
        return cls(str(told["address"]), folder, ShardCache.here())

    def fetched(self, shard: ShardInfo) -> Path:
        return self.cache.fetched(self.folder / shard.file, shard, lambda: _open(f"{self.address}/{shard.file}"))


def is_address(given: object) -> bool:
    return isinstance(given, str) and "://" in given


def mirrored(address: str) -> Path | None:
    """The folder on this machine that stands for a corpus in remote storage; None where no corpus is there."""
    address = address.rstrip("/")
    with storage_errors(address):
        system, path = fsspec.core.url_to_fs(f"{address}/{MANIFEST}")
        if not system.exists(path):
            return None
    manifest = _read(f"{address}/{MANIFEST}", LONGEST)
    cache = ShardCache.here()
    folder = cache.root / hashlib.sha256(address.encode()).hexdigest()[:24]
    with locked_file(cache.root / f".{folder.name}.lock", cache.root):
        if not _stands(folder, manifest):
            if folder.exists():  # the corpus was built anew there
                shutil.rmtree(folder)
            _mirror(address, manifest, folder)
    return folder


def _stands(folder: Path, manifest: bytes) -> bool:
    return is_there(folder / MANIFEST) and (folder / MANIFEST).read_bytes() == manifest


def _mirror(address: str, manifest: bytes, folder: Path) -> None:
    with files.new_directory(folder) as aside:
        (aside / MANIFEST).write_bytes(manifest)
        names = read_manifest(aside).settings.tokenizer
        (aside / TOKENIZER).mkdir()
        for name in names:
            if Path(name).name != name:
                raise DataError(f"{address} names {name!r}, which is no file of a tokenizer; build it again")
            (aside / TOKENIZER / name).write_bytes(_read(f"{address}/{TOKENIZER}/{name}", LARGEST_TOKENIZER))
        write_checksummed(aside / REMOTE, {"address": address})


def _read(address: str, most: int) -> bytes:
    with storage_errors(address), _open(address) as stream:
        content: bytes = stream.read(most + 1)
    if len(content) > most:
        raise DataError(f"{address} is larger than {most:,} bytes; no corpus has such a file")
    return content


def _open(address: str) -> IO[bytes]:
    with storage_errors(address):
        opened: IO[bytes] = fsspec.open(address, "rb").open()
        return opened
