"""Replace the files of a model directory together: readers see the old model or the new one, never a mixture.

    with files.locked(run), replace_files(run, size) as staging: …     all files of the new model, its manifest last

1. The files are collected in a new directory, which appears as `.pending` by one rename. Readers now read there.
2. Each file gets its place (a hard link), and files that only the previous model had are removed.
3. `.pending` is removed by one rename. Readers now read the directory again.

An interrupted save is finished by `finish_interrupted_save` when the next save begins, and by nothing else: loading
writes nothing, in the directory or through it. A `.pending` that holds anything that its `larvatus.json` does not list
was not left by Larvatus; readers and writers refuse it.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from larvatus.core import files
from larvatus.core.errors import ArtefactError
from larvatus.core.regular_files import is_there, refuse_link
from larvatus.models.bundle import manifest as manifests
from larvatus.models.bundle.manifest import Manifest, read_manifest

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES)
"""Error codes of file systems that have no hard links, or no more of them."""


@contextmanager
def replace_files(directory: Path, size: int | None = None) -> Iterator[Path]:
    """The directory to write the new files to. The caller holds the directory's lock."""
    finish_interrupted_save(directory)
    with files.new_directory(directory / files.PENDING, size) as aside:
        yield aside
    _put_in_place(directory, check_pending(directory / files.PENDING))


def finish_interrupted_save(directory: Path) -> None:
    """Finish an interrupted save, after its files are verified. The lock must be held."""
    pending = files.standing(directory)
    if pending == directory:
        return
    manifest = check_pending(pending)
    manifests.verify(pending, manifest)
    for part in manifest.parts:
        manifests.verify(pending / part, _manifest(pending / part))
    _put_in_place(directory, manifest)


def check_pending(pending: Path) -> Manifest:
    """The manifest of `.pending`, which must list every file in it; checksums are not compared here."""
    manifest = _manifest(pending)
    _refuse_more(pending, manifest)
    for part in manifest.parts:
        refuse_link(pending / part)
        _refuse_more(pending / part, _manifest(pending / part))
    return manifest


def _manifest(folder: Path) -> Manifest:
    manifest = read_manifest(folder)
    if manifest is None:
        raise ArtefactError(f"{folder} has no {manifests.NAME}, so no save of Larvatus left it; remove it")
    return manifest


def _refuse_more(folder: Path, manifest: Manifest) -> None:
    listed = {manifests.NAME, *manifest.files, *manifest.parts}
    for path in sorted(folder.iterdir()):
        if path.name not in listed:
            raise ArtefactError(
                f"{path} is not listed in its {manifests.NAME}, so no save of Larvatus left it; remove {folder}"
            )
        if path.name not in manifest.parts:
            is_there(path)


def _put_in_place(directory: Path, manifest: Manifest) -> None:
    pending = directory / files.PENDING
    before = read_manifest(directory)
    with files.saying_what_is_full(directory):
        for part in manifest.parts:
            refuse_link(directory / part)
            (directory / part).mkdir(exist_ok=True)
            for path in sorted((pending / part).iterdir()):
                _put(path, directory / part / path.name)
            files.fsync(directory / part)
        for name in manifest.files:
            _put(pending / name, directory / name)
        if before is not None:
            _remove_what_is_left(directory, before, manifest)
        _put(pending / manifests.NAME, directory / manifests.NAME)  # last: until then `before` can be read again
        files.fsync(directory)
        gone = directory / f".{files.PENDING}.tmp-{os.getpid()}"
        files.remove(gone)
        os.rename(pending, gone)
        files.fsync(directory)
        files.remove(gone)


def _put(source: Path, target: Path) -> None:
    """Give the file a second name, replacing what has that name now: this takes neither time nor space."""
    with suppress(FileNotFoundError):
        if os.path.samestat(os.lstat(source), os.lstat(target)):
            return  # linked before the save was interrupted
    aside = target.with_name(f".{target.name}.tmp-{os.getpid()}")
    files.remove(aside)
    try:
        os.link(source, aside, follow_symlinks=False)
    except OSError as fault:
        if fault.errno not in _NO_LINKS:
            raise
        with files.new_file(target) as aside:
            shutil.copyfile(source, aside)
    else:
        os.replace(aside, target)


def _remove_what_is_left(directory: Path, before: Manifest, now: Manifest) -> None:
    """Remove files that only the previous model had: of another kind of vocabulary, or of a generator."""
    for name in {*before.files, *before.parts} - {*now.files, *now.parts, manifests.NAME}:
        if name == os.path.basename(name) and name not in ("", ".", ".."):
            files.remove(directory / name)
