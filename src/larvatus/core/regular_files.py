"""Read files of directories that come from anywhere: regular files only, no links followed, sizes bounded.

    with open_regular(run / "state.json") as file: ...      a link, FIFO, socket, device or folder is refused by kind
    read_bytes(model / "config.json")                       and so is what is larger than any such file can be
    if is_there(model / "crf.safetensors"): ...             an optional file: absent is fine, a link is not
    read_text(named(Path("mine.toml")))                     named by the user himself: it may be a link

A directory that somebody else made may hold a link to a private file, or a FIFO that never answers, where a file of
a model should be. What a user names on the command line may be a link; what a directory holds may not.

The one exception is the cache of Hugging Face, whose snapshots consist of links into the folder `blobs` next to them.
"""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from larvatus.core.errors import ArtefactError, LarvatusError

_INHERITED = re.compile(r"/dev/stdin|/dev/fd/[0-9]+|/proc/self/fd/[0-9]+")
"""Names of streams that were open when the command began."""
LARGEST = 64 * 2**20
"""Bytes of settings, manifests and other small files; what is larger is none of them."""
COPY = "copy the directory with its files (cp -rL) and use that"

Walked = tuple[str, list[str], list[str]]
"""A folder, and the names of the folders and files in it."""

_KINDS = (
    (stat.S_ISLNK, "a symbolic link", COPY),
    (stat.S_ISDIR, "a folder", "a file belongs there"),
    (stat.S_ISFIFO, "a FIFO", "a file belongs there"),
    (stat.S_ISSOCK, "a socket", "a file belongs there"),
    (stat.S_ISCHR, "a device", "a file belongs there"),
    (stat.S_ISBLK, "a device", "a file belongs there"),
)


def is_there(path: Path, error: type[LarvatusError] = ArtefactError) -> bool:
    """Whether a regular file is there; a link, folder or device is refused by its kind."""
    return _status(path, error) is not None


def size_of(path: Path, error: type[LarvatusError] = ArtefactError) -> int:
    """Bytes of a regular file, which must be there."""
    status = _status(path, error)
    if status is None:
        raise error(f"{path} is missing")
    return status.st_size


def open_regular(path: Path, error: type[LarvatusError] = ArtefactError) -> io.BufferedReader:
    """Open for reading what must be a regular file. Nothing is waited for, and nothing is followed."""
    size_of(path, error)  # says of what is no file what it is; the flags below hold should it change meanwhile
    try:
        follow = 0 if cached_blob(path) else os.O_NOFOLLOW
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | follow)
    except OSError as fault:
        raise error(f"{path} cannot be read: {fault.strerror}") from fault
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise error(f"{path} changed while it was opened; try again")
    return os.fdopen(handle, "rb")


def read_bytes(path: Path, error: type[LarvatusError] = ArtefactError, *, most: int = LARGEST) -> bytes:
    """The contents of a small file."""
    with open_regular(path, error) as file:
        try:
            content = file.read(most + 1)
        except OSError as fault:
            raise error(f"{path} cannot be read: {fault.strerror}") from fault
    if len(content) > most:
        raise error(f"{path} has {size_of(path, error):,} bytes; more than {most:,} are refused")
    return content


def read_text(path: Path, error: type[LarvatusError] = ArtefactError, *, most: int = LARGEST) -> str:
    """The same as text, which must be UTF-8."""
    try:
        return read_bytes(path, error, most=most).decode("utf-8")
    except UnicodeDecodeError as fault:
        raise error(f"{path} cannot be read: byte {fault.start:,} is not UTF-8") from fault


def open_named(name: str, error: type[LarvatusError] = ArtefactError) -> io.BufferedReader:
    """Open for reading what a user names: a regular file, also through a link.

    A FIFO, socket or device is refused by kind, as a FIFO that nobody writes to is waited for without end. A pipe that
    the shell has opened already (`/dev/stdin`, `<(…)`) is read like standard input.
    """
    inherited = _INHERITED.fullmatch(name) is not None
    try:
        handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC | (0 if inherited else os.O_NONBLOCK))
    except (OSError, ValueError) as fault:  # ValueError: a NUL in the name
        kind = _kind_of(name)
        said = f"is {kind}" if kind else f"cannot be opened: {getattr(fault, 'strerror', None) or fault}"
        raise error(f"{name} {said}") from fault
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode) or (inherited and stat.S_ISFIFO(mode)):
        return os.fdopen(handle, "rb")
    os.close(handle)
    kind = next(kind for is_kind, kind, _ in _KINDS if is_kind(mode))
    raise error(f"{name} is {kind}, not a file; write it to a file first, or pipe it in where - is taken")


def read_named(path: Path, error: type[LarvatusError] = ArtefactError, *, most: int = LARGEST) -> str:
    """The text of a small file that a user names, in UTF-8, with or without a mark at its beginning."""
    with open_named(str(path), error) as file:
        try:
            content = file.read(most + 1)
        except OSError as fault:
            raise error(f"{path} cannot be read: {fault.strerror}") from fault
    if most < len(content):
        raise error(f"{path} has more than {most:,} bytes; give a smaller file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise error(f"{path} cannot be read: byte {fault.start:,} is not UTF-8") from fault


def _kind_of(name: str) -> str | None:
    """What cannot be opened at all: a socket."""
    try:
        mode = os.stat(name).st_mode
    except (OSError, ValueError):
        return None
    return "a socket, not a file" if stat.S_ISSOCK(mode) else None


def follow_link(path: Path) -> Path:
    """What a user names himself may be a link: the file that it leads to, which must be a regular one all the same."""
    return Path(os.path.realpath(path)) if os.path.islink(path) else path


def refuse_link(path: Path, error: type[LarvatusError] = ArtefactError) -> None:
    """For a folder inside a directory: it may be absent, but it may not lead elsewhere."""
    if path.is_symlink():
        raise error(f"{path} is a symbolic link; {COPY}")


def only_regular(
    directory: Path, names: Iterable[str] | None = None, error: type[LarvatusError] = ArtefactError
) -> None:
    """Refuse whatever is neither file nor folder among these parts of a directory (None: all), however deep.

    Called before a directory is written in, or read all over: nothing in it then leads elsewhere.
    """
    for root in [directory] if names is None else [directory / name for name in names]:
        if names is not None and not _is_folder(root):
            is_there(root, error)
            continue
        for folder, folders, files in walk(root):
            for name in sorted((*folders, *files)):
                if not _is_folder(Path(folder, name)):
                    is_there(Path(folder, name), error)


def walk(root: Path, on_error: Callable[[OSError], None] = lambda fault: None) -> Iterator[Walked]:
    """`os.walk` without recursion: folders that somebody nested a thousand deep are walked like others.

    Links are not followed. As in `os.walk`, names that the caller takes out of the list of folders are not entered.
    """
    waiting = [os.fspath(root)]
    while waiting:
        place = waiting.pop()
        folders: list[str] = []
        names: list[str] = []
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    (folders if _is_dir(entry) else names).append(entry.name)
        except OSError as fault:
            on_error(fault)
            continue
        yield place, folders, names
        below = [os.path.join(place, name) for name in folders]
        waiting += [folder for folder in reversed(below) if not os.path.islink(folder)]


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads round in a circle
        return False


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def cached_blob(path: Path) -> bool:
    """Whether a link leads from a snapshot of the Hugging Face cache to where that cache keeps its files.

    models--org--name/snapshots/COMMIT/config.json -> ../../blobs/0a1b…
    """
    if not path.is_symlink():
        return False
    for folder in path.absolute().parents:
        if folder.name == "snapshots" and folder.parent.name.startswith("models--"):
            blobs = folder.parent / "blobs"
            target = Path(os.path.realpath(path))
            return not blobs.is_symlink() and target.parent == Path(os.path.realpath(blobs))
    return False


def _status(path: Path, error: type[LarvatusError]) -> os.stat_result | None:
    """The file's status if it is a regular file, None if nothing is there."""
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode) and cached_blob(path):
            status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as fault:  # ValueError: a NUL in the name
        raise error(f"{path} cannot be read: {getattr(fault, 'strerror', fault)}") from fault
    for is_kind, name, way in _KINDS:
        if is_kind(status.st_mode):
            raise error(f"{path} is {name}; {way}")
    return status
