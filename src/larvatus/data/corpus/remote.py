"""A built corpus in remote storage (``s3://bucket/corpus``, whatever fsspec opens), read shard by shard when needed.

    folder = mirror_corpus("s3://bucket/corpus")     # manifest and tokenizer, in the cache of this machine
    Corpus.open(folder)                              # like any other; its shards are fetched when they are read

The mirror is a folder that looks like the corpus, but for its shards: `remote.json` in it has their addresses. The
manifest is checked when it is opened, a shard when it is fetched.

`ShardCache` holds the shards of this machine in `$LARVATUS_CACHE`, at most `$LARVATUS_CACHE_GB` of them, for all ranks
and workers, so that a corpus may be larger than the disk. A shard is fetched by one process while the others wait for
it (a lock next to it, which goes with the process that holds it), into a file of its full size, and gets its name when
its SHA-256 is that of the manifest. The shards that were used longest ago are deleted to make room. A shard that is
deleted while a process reads it stays readable until it is closed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import fsspec

from larvatus.core import files
from larvatus.core.checksummed import LONGEST, read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.core.files import REFUSED, aside_of, sha256, sweep
from larvatus.core.regular_files import is_there
from larvatus.data.corpus.format import MANIFEST, TOKENIZER, ShardInfo, read_manifest
from larvatus.data.text.streams import storage_errors

ROOM_GB = 50.0
"""Default."""
TRIES = 2
"""Fetches of a shard whose bytes are not those of the manifest."""
_CHUNK = 1 << 20


@dataclass(frozen=True)
class ShardCache:
    root: Path
    room: int
    """Bytes of all shards in it."""

    @classmethod
    def here(cls) -> ShardCache:
        """The cache of this machine, from the environment variables."""
        given = os.environ.get("LARVATUS_CACHE_GB", "") or str(ROOM_GB)
        try:
            size = float(given)
            if not 0 < size < 10**9:
                raise ValueError(given)
        except ValueError:
            raise UsageError(f"LARVATUS_CACHE_GB={given} is no size; give gigabytes, such as 200") from None
        where = os.environ.get("LARVATUS_CACHE", "") or "~/.cache/larvatus"
        return cls(Path(where).expanduser(), int(size * 1e9))

    def fetched(self, path: Path, shard: ShardInfo, fetch: Callable[[], IO[bytes]]) -> Path:
        """A shard on this machine, fetched if need be; verified by the checksum in the manifest."""
        with locked_file(path.with_name(f".{path.name}.lock"), self.root):
            if path.exists():
                if path.stat().st_size == shard.bytes and sha256(path) == shard.sha256:
                    os.utime(path)  # used just now
                    return path
                path.unlink()  # damaged since
            for _ in range(TRIES):
                got = self._fetch(path, shard, fetch)
                if got == shard.sha256:
                    return path
        raise DataError(
            f"{path.name} as it was fetched does not match its checksum (wanted {shard.sha256[:8]}…, got {got[:8]}…); "
            "build the corpus again where it comes from"
        )

    def _fetch(self, path: Path, shard: ShardInfo, fetch: Callable[[], IO[bytes]]) -> str:
        """Fetch into a file aside, and name it if its checksum is right; the checksum."""
        aside = aside_of(path)
        try:
            with self._with_room(aside, shard.bytes) as file, fetch() as stream:
                digest, size = hashlib.sha256(), 0
                while size <= shard.bytes and (chunk := stream.read(_CHUNK)):
                    digest.update(chunk)
                    size += len(chunk)
                    file.write(chunk)
                file.truncate(size)
                file.flush()
                os.fsync(file.fileno())
            if size == shard.bytes and digest.hexdigest() == shard.sha256:
                os.replace(aside, path)
            return digest.hexdigest()
        except OSError as fault:
            raise self._said(fault, shard.bytes) from fault
        finally:
            aside.unlink(missing_ok=True)

    @contextmanager
    def _with_room(self, aside: Path, size: int) -> Iterator[IO[bytes]]:
        """A new file with all its disk space allocated; older shards are deleted for it."""
        if size > self.room:
            raise UsageError(
                f"a shard of {size:,} bytes does not fit into a cache of {self.room:,}; raise LARVATUS_CACHE_GB"
            )
        with locked_file(self.root / ".lock", self.root):
            sweep(aside.parent)  # of processes that were killed
            self._leave_room(size)
            while True:
                try:
                    _take_room(aside, size)
                    break
                except OSError as fault:
                    if fault.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._remove_oldest():
                        raise
        with aside.open("r+b") as file:
            yield file

    def _shards(self) -> list[tuple[float, int, Path]]:
        """Time of last use, size and path of each, those under way too; the oldest first."""
        shards = []
        for path in (*self.root.glob("*/*.arrow"), *self.root.glob("*/.*.arrow.tmp-*")):
            with suppress(FileNotFoundError):
                told = path.stat()
                shards.append((told.st_mtime, told.st_size, path))
        return sorted(shards)

    def _leave_room(self, size: int) -> None:
        while sum(each for _, each, _ in self._shards()) + size > self.room and self._remove_oldest():
            pass

    def _remove_oldest(self) -> bool:
        whole = [path for _, _, path in self._shards() if not path.name.startswith(".")]
        if whole:
            whole[0].unlink(missing_ok=True)
        return bool(whole)

    def _said(self, fault: OSError, size: int) -> Exception:
        if fault.errno in (errno.ENOSPC, errno.EDQUOT):
            return ArtefactError(
                f"no space left in the cache {self.root} ({size:,} bytes needed); free some, or name another disk with "
                "LARVATUS_CACHE"
            )
        if fault.errno in REFUSED and fault.filename is not None:
            return ArtefactError(
                f"the cache {self.root} cannot be written ({fault.strerror}); name another with LARVATUS_CACHE"
            )
        return DataError(f"a shard cannot be fetched: {fault}; run the same command again")


def _take_room(path: Path, size: int) -> None:
    """Allocate disk space, if the system can: a full disk is then known before anything is fetched."""
    with path.open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, max(1, size))
        except OSError as fault:
            if fault.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise


@contextmanager
def locked_file(path: Path, root: Path) -> Iterator[None]:
    """Hold a lock that processes of this machine wait for; it goes with the process, however it ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as fault:
        raise ArtefactError(
            f"the cache {root} cannot be written ({fault.strerror}); name another with LARVATUS_CACHE"
        ) from fault
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


# The mirror of a corpus.

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


def mirror_corpus(address: str) -> Path | None:
    """The folder on this machine that caches a corpus of remote storage; None where no corpus is there."""
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
            if folder.exists():  # the corpus was built again there
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
