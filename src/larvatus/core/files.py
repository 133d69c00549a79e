"""Files that survive: checksums, durable writes, and directories that appear whole or not at all.

    with new_directory(run / "checkpoints" / "step-00000100") as aside:   # written aside, fsynced, renamed
        …
    with locked(run): …                                                   # one process writes a directory
    read_json(standing(run) / "config.json")                              # also where the last save was cut

Nothing here knows what the files mean.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from larvatus.core.errors import ArtefactError, LarvatusError
from larvatus.core.regular_files import is_there, open_regular, read_text, refuse_link

PENDING = ".pending"
MANIFEST = "larvatus.json"
MOST_TRIES = 100
"""Locks of a moment ago, removed by who held them, that are met in a row."""
REFUSED = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST}
    | {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOENT, errno.EINVAL, errno.EFBIG, errno.EIO}
)
"""How a system refuses a place: forbidden, of another kind, or a name that cannot be."""
_NOT_UTF_8 = re.compile("[\udc80-\udcff]")


def as_text(name: str, *, backslash: str = "\\") -> str:
    r"""Text with names of files in it, some not UTF-8: a byte that is none is written ``\xff``, as it can be read.

    >>> as_text(os.fsdecode(b"caf\xe9.txt"))
    'caf\\xe9.txt'
    """
    return _NOT_UTF_8.sub(lambda found: f"{backslash}x{ord(found[0]) - 0xDC00:02x}", name)


def sha256(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fsync(path: Path) -> None:
    """Force a file or a directory entry to the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a small file so that it is whole or absent: aside, fsync, rename, fsync of the parent."""
    with new_file(path, len(text)) as aside:
        aside.write_text(as_text(text), encoding="utf-8")


def append_bytes(path: Path, line: bytes) -> None:
    """Add to a file of a run, which is made if need be. What is no regular file is not written to."""
    is_there(path)  # says of what is none what it is; the flags below hold should it change meanwhile
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with saying_what_is_full(path), os.fdopen(os.open(path, flags, 0o666), "ab") as file:
        file.write(line)


def write_json(path: Path, value: Any) -> None:
    written = json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)
    write_text(path, as_text(written, backslash="\\\\") + "\n")


def read_json(path: Path, error: type[LarvatusError] = ArtefactError) -> Any:
    """JSON that Larvatus wrote; what is not JSON, or no regular file, is refused by name."""
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
        if fault.errno == errno.EFBIG:
            raise ArtefactError(
                f"{path} would be larger than a file may be here; raise ulimit -f, or choose another disk"
            ) from fault
        if fault.errno in (errno.EMFILE, errno.ENFILE):
            raise ArtefactError(f"too many files are open to write {path}; raise ulimit -n") from fault
        if fault.errno in REFUSED:
            raise ArtefactError(f"{path} cannot be written ({fault.strerror}); choose another --out") from fault
        raise


def aside_of(final: Path) -> Path:
    """Where a file or directory is written before it gets its name: next to it, under a name that `sweep` knows.

    A name may be as long as the system lets it: a name that would become too long is replaced by its hash.
    """
    if not final.name:
        raise ArtefactError(f"{str(final)!r} is not the name of a file; choose another --out")
    name = os.fsencode(final.name)
    stem = final.name if len(name) < 200 else hashlib.sha256(name).hexdigest()[:16]
    return final.with_name(f".{stem}.tmp-{os.getpid()}")


@contextmanager
def new_file(final: Path, size: int | None = None) -> Iterator[Path]:
    """A file that appears whole: written under a temporary name, fsynced, renamed, its parent fsynced."""
    aside = aside_of(final)
    with saying_what_is_full(final, size):
        try:
            remove(aside)  # of a killed process of the same number, or a link that was laid there to be written through
            os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666))
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
    aside = aside_of(final)
    with saying_what_is_full(final, size):
        final.parent.mkdir(parents=True, exist_ok=True)
        if size is not None and shutil.disk_usage(final.parent).free < size:
            raise OSError(errno.ENOSPC, "too little space", str(final))
        remove(aside)
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


def standing(directory: Path) -> Path:
    """Where to read the files of a directory: in it or, after an interrupted save, in `.pending`.

    `.pending` appears whole and goes as a whole (`models/bundle/atomic_save.py`), so a reader has the old files or the
    new ones
    and never a mixture. Nothing is written here: the next save finishes the one that was cut.
    """
    pending = directory / PENDING
    try:
        kind = os.lstat(pending).st_mode
    except OSError:  # none there, or nothing to read at all: the caller reports it
        return directory
    if not stat.S_ISDIR(kind):
        refuse_link(pending)
        raise ArtefactError(f"{pending} is no folder that a save of Larvatus left; remove it")
    if not is_there(pending / MANIFEST):
        raise ArtefactError(f"{pending} holds no {MANIFEST}: no save of Larvatus left it; remove it")
    return pending


def sweep(directory: Path) -> list[str]:
    """Remove what a killed process left half-written (`.name.tmp-PID`), unless that process still lives."""
    swept = []
    for path in sorted(directory.glob(".*.tmp-*")):
        owner = path.name.rpartition("-")[2]
        if owner.isdigit() and int(owner) != os.getpid() and _alive(int(owner)):
            continue
        with suppress(OSError):
            remove(path)
        swept.append(path.name)
    return swept


def remove(path: Path) -> None:
    """Remove what is there without following it: a link is removed, not its target."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def locked(directory: Path, *, nested: bool = False) -> Iterator[None]:
    """Only one process may write a directory. The lock goes with the process, however it ends.

    `nested` is for a save that may be part of a longer run: it is content where this thread has the lock already.
    """
    with saying_what_is_full(directory):
        directory.mkdir(parents=True, exist_ok=True)
    key = os.path.realpath(directory)
    if nested and _HELD.get(key) == threading.get_ident():
        yield
        return
    path = directory / ".lock"
    handle = _take_lock(path)
    _HELD[key] = threading.get_ident()
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        del _HELD[key]
        if _is_open_at(handle, path):  # the directory may be gone, and another run may have created it again
            with suppress(OSError):
                path.unlink()
        os.close(handle)


_HELD: dict[str, int] = {}
"""Directories that this process has locked, each with the thread that did."""


def _take_lock(path: Path) -> int:
    for _ in range(MOST_TRIES):
        is_there(path)  # a link, a FIFO or a device is refused by kind
        with saying_what_is_full(path.parent):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_open_at(handle, path):  # else its holder removed it meanwhile, and it locks nothing
                return handle
        except BlockingIOError as fault:
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(handle)
            raise ArtefactError(
                f"{path.parent}: another run (pid {holder}) is writing here; choose another --out or wait"
            ) from fault
        os.close(handle)
    raise ArtefactError(f"{path} cannot be locked: it is another file each time; choose another --out")


def _is_open_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except OSError:
        return False
