"""Output files: nothing that exists is replaced unless requested, and never what is being read.

    check_outputs(out, png, overwrite=overwrite, inputs=[model, *texts])      first of all, before any work is done
    with new_output(out) as aside: figure.savefig(aside)                      appears whole, or not at all

    check_directory(out, MODEL_FILES, overwrite=overwrite, inputs=[source])   the same for several files in a directory

`/dev/null`, `/dev/stdout` and FIFOs are written to, never replaced by a file. Pictures need matplotlib, the extra
`plots`, which is imported only if there is a plot.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from larvatus.core.errors import ArtefactError, UsageError
from larvatus.core.files import aside_of, new_file, remove, saying_what_is_full
from larvatus.core.regular_files import walk

WAY = "choose another name, or replace it with --overwrite"
RUN = ("checkpoints", "metrics.jsonl", "plan.json")
_DESCRIPTOR = re.compile(r"/dev/(stdin|stdout|stderr)|(?:/dev|/proc/self)/fd/(\d+)")
_STANDARD = {"stdin": 0, "stdout": 1, "stderr": 2}


def check_outputs(
    *paths: Path | None, overwrite: bool = False, inputs: Iterable[str | Path] = (), parents: bool = False
) -> None:
    """Refuse files that cannot be written: because they exist, because they are read, or for want of a directory.

    Inputs may be files, directories and patterns; what is none (text, standard input, a URL) counts for nothing.
    `parents`: directories will be made.
    """
    given = [path for path in paths if path is not None]
    for number, path in enumerate(given):
        if is_stream(path):
            continue
        if any(os.path.abspath(path) == os.path.abspath(other) for other in given[:number]):
            raise UsageError(f"{path} is named twice; give each output its own name")
        if not parents and not path.parent.is_dir():
            raise UsageError(f"{path.parent} is no directory to write {path.name} in; make it first")
        if _exists(path):
            _refuse(path, overwrite=overwrite, inputs=inputs)
        elif _exists(aside_of(path)):  # a name that is too long is too long now
            pass
        elif path.parent.is_dir() and not os.access(path.parent, os.W_OK | os.X_OK):
            raise ArtefactError(f"{path} cannot be written: {path.parent} is read-only; choose another name")


def check_directory(
    directory: Path, names: Iterable[str], *, overwrite: bool = False, inputs: Iterable[str | Path] = ()
) -> None:
    """Refuse a directory in which files of these names would be replaced. Others in it are kept."""
    inputs = list(inputs)
    if directory.is_dir() and any(_same(directory, Path(given)) for given in inputs):
        raise UsageError(f"{directory} is what is read; write to another directory")
    for name in names:
        path = directory / name
        if not _exists(path):
            continue
        if not overwrite:
            raise ArtefactError(
                f"{directory} already holds {name}, which would be replaced; choose another directory, or allow that "
                "with --overwrite"
            )
        if not path.is_dir():
            _refuse(path, overwrite=True, inputs=inputs)


def remove_run(directory: Path) -> None:
    """Remove what a run keeps next to its model, to start again; links are removed, not what they lead to."""
    for name in RUN:
        remove(directory / name)


@contextmanager
def new_output(path: Path, size: int | None = None) -> Iterator[Path]:
    """A file that the user named: it appears whole, under its name. Into a device or a pipe it is poured when whole."""
    if not is_stream(path):
        with new_file(path, size) as aside:
            yield aside
        return
    with tempfile.TemporaryDirectory() as folder:
        aside = Path(folder) / f"output{path.suffix}"
        yield aside
        with saying_what_is_full(path, size), aside.open("rb") as whole, os.fdopen(_opened(path), "wb") as stream:
            shutil.copyfileobj(whole, stream)


def write_output(path: Path, text: str) -> None:
    """A small file of text that the user named."""
    with new_output(path, len(text)) as aside:
        aside.write_text(text, encoding="utf-8")


def is_stream(path: Path) -> bool:
    """Whether the path is written to and not replaced: a device, a pipe, an open descriptor."""
    if _DESCRIPTOR.fullmatch(os.fspath(path)):
        return True
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def _opened(path: Path) -> int:
    named = _DESCRIPTOR.fullmatch(os.fspath(path))
    if named is None:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    number = _STANDARD[named[1]] if named[1] else int(named[2])
    sys.stdout.flush()
    return os.dup(number)  # of a file, a second opening would begin at its first byte


def _exists(path: Path) -> bool:
    try:
        os.lstat(path)
        return True
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as fault:  # ValueError: a NUL in the name
        why = getattr(fault, "strerror", None) or fault
        raise ArtefactError(f"{str(path)!r} is no name for a file here: {why}") from fault


def _refuse(path: Path, *, overwrite: bool, inputs: Iterable[str | Path]) -> None:
    if path.is_symlink() and not path.exists():
        raise ArtefactError(f"{path} is a link that leads nowhere; remove it, or choose another name")
    if path.is_dir():
        raise ArtefactError(f"{path} is a directory; name a file")
    if not path.is_file():
        raise ArtefactError(f"{path} is a socket or a disk; choose another name")
    if any(_same(path, file) for file in _files(inputs)):
        raise UsageError(f"{path} is read by this command; choose another name for the output")
    if not overwrite:
        raise ArtefactError(f"{path} is there already; {WAY}")


def _files(inputs: Iterable[str | Path]) -> Iterator[Path]:
    """The files that inputs are or hold."""
    for given in inputs:
        name = os.fspath(given)
        if name == "-" or "://" in name or "\0" in name:
            continue
        try:
            matches = glob.glob(name, recursive=True) if glob.has_magic(name) and not os.path.lexists(name) else [name]
        except RecursionError as fault:
            raise UsageError(f"{name} leads through folders nested too deep; name the folder itself") from fault
        for match in matches:
            yield Path(match)
            for place, _, names in walk(Path(match)):
                yield from (Path(place) / inner for inner in names)


def _same(path: Path, other: Path) -> bool:
    """The same file, also through links of either kind."""
    try:
        return os.path.samefile(path, other)
    except (OSError, ValueError):
        return False


def has_matplotlib() -> bool:
    return find_spec("matplotlib") is not None


def require_matplotlib() -> None:
    """Before the work, not after it."""
    if not has_matplotlib():
        raise UsageError('a picture needs matplotlib; pip install "larvatus[plots]"')


def escape_dollars(text: str) -> str:
    """Text unchanged: a dollar sign is matplotlib's mark of mathematics."""
    return text.replace("$", r"\$")
