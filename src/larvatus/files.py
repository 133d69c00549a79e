"""Files that survive: checksums, durable writes, and directories that appear whole or not at all.

    with new_directory(run / "checkpoints" / "step-00000100") as aside:   # written aside, fsynced, renamed
        …
    with replaced_files(run) as aside:                                    # several files of a directory change together
        …

Nothing here knows what the files mean.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from larvatus.errors import ArtefactError, LarvatusError
from larvatus.regular_files import open_regular, read_text

PENDING = ".pending"
REFUSED = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST}
    | {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOENT, errno.EINVAL, errno.EFBIG, errno.EIO}
)
"""How a system refuses a place: forbidden, of another kind, or a name that cannot be."""


def sha256(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fsync(path: Path) -> None:
    """Force a file or a directory entry to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a small file so that it is whole or absent: aside, fsync, rename, fsync of the parent."""
    aside = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    with saying_what_is_full(path, len(text)):
        try:
            aside.write_text(text, encoding="utf-8")
            fsync(aside)
            os.replace(aside, path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
    fsync(path.parent)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n")


def read_json(path: Path, error: type[LarvatusError] = ArtefactError) -> Any:
    """JSON of our own making; what is not JSON, or no regular file, is refused by name."""
    try:
        return json.loads(read_text(path, error))
    except (ValueError, RecursionError) as fault:
        raise error(f"{path} cannot be read as JSON: {fault}") from fault


@contextmanager
def saying_what_is_full(path: Path, size: int | None = None) -> Iterator[None]:
    """Turn a full, read-only or forbidden disk into one line that names the path."""
    try:
        yield
    except OSError as fault:
        if fault.errno in (errno.ENOSPC, errno.EDQUOT):
            need = f" ({size:,} bytes needed)" if size else ""
            raise ArtefactError(f"no space left to write {path}{need}; free some, or choose another --out") from fault
        if fault.errno in REFUSED:
            raise ArtefactError(f"{path} cannot be written ({fault.strerror}); choose another --out") from fault
        raise


@contextmanager
def new_file(final: Path, size: int | None = None) -> Iterator[Path]:
    """A file that appears whole: written under a temporary name, fsynced, renamed, its parent fsynced."""
    aside = final.with_name(f".{final.name}.tmp-{os.getpid()}")
    with saying_what_is_full(final, size):
        try:
            yield aside
            fsync(aside)
            os.replace(aside, final)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
    fsync(final.parent)


@contextmanager
def new_directory(final: Path, size: int | None = None) -> Iterator[Path]:
    """A directory that appears whole: filled under a temporary name, fsynced, renamed, its parent fsynced.

    `size` is what the caller expects to write: too small a disk is then refused before anything is written.
    """
    aside = final.with_name(f".{final.name}.tmp-{os.getpid()}")
    with saying_what_is_full(final, size):
        final.parent.mkdir(parents=True, exist_ok=True)
        if size is not None and shutil.disk_usage(final.parent).free < size:
            raise OSError(errno.ENOSPC, "too little space", str(final))
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        try:
            yield aside
            for path in sorted(aside.rglob("*")):
                fsync(path)
            fsync(aside)
            os.rename(aside, final)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
    fsync(final.parent)


@contextmanager
def replaced_files(directory: Path, size: int | None = None) -> Iterator[Path]:
    """Replace several files of a directory together: they are first gathered in `.pending`, which appears whole.

    Files in folders go into folders of the same name; what else stands there stays.
    A crash before that leaves the old files; a crash after it is finished by `settle`, which every reader calls.
    """
    settle(directory)
    with new_directory(directory / PENDING, size) as aside:
        yield aside
    settle(directory)


def settle(directory: Path) -> None:
    """Finish an interrupted `replaced_files`: move what is pending into place. Nothing to do most of the time."""
    pending = directory / PENDING
    if not pending.is_dir():
        return
    with saying_what_is_full(directory):
        with suppress(FileNotFoundError):  # a reader and the writer may settle at once: what one misses the other moved
            _move(pending, directory)
        fsync(directory)


def _move(source: Path, target: Path) -> None:
    """Move all files of a folder and of those in it, and remove what is then empty."""
    for path in sorted(source.iterdir()):
        with suppress(FileNotFoundError):
            if path.is_dir():
                (target / path.name).mkdir(exist_ok=True)
                _move(path, target / path.name)
            else:
                os.replace(path, target / path.name)
    fsync(target)
    source.rmdir()


def sweep(directory: Path) -> list[str]:
    """Remove what a killed process left half-written (`.name.tmp-PID`), unless that process still lives."""
    swept = []
    for path in sorted(directory.glob(".*.tmp-*")):
        owner = path.name.rpartition("-")[2]
        if owner.isdigit() and int(owner) != os.getpid() and _alive(int(owner)):
            continue
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        swept.append(path.name)
    return swept


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Only one process may write a directory. The lock goes with the process, however it ends."""
    with saying_what_is_full(directory):
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / ".lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as fault:
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
            raise ArtefactError(
                f"{directory}: another run (pid {holder}) is writing here; choose another --out or wait"
            ) from fault
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
