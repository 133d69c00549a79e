"""The documents of an index: which files a build must read, and the passages of a document.

    plan = plan_sources(["docs/"], old)
    plan.added, plan.changed, plan.removed, plan.unchanged        # the passages of unchanged files are copied

    >>> text = "Mt. Sanitas is steep. Bring water. The trail begins in Sunshine Canyon."
    >>> [text[start:end] for start, end in passage_spans(text, PassageSettings(passage=50, overlap=15))]
    ['Mt. Sanitas is steep. Bring water.', 'Bring water. The trail begins in Sunshine Canyon.']

A file whose size and time are those in the index is unchanged. If they differ, its checksum decides. A file that is
younger than the last build is always compared by its checksum: it may have been written again within one tick of the
clock.

A passage takes as many sentences as fit into `passage` characters. The next one begins again with the last sentences of
it that fit into `overlap` characters, so that an answer that spans a border is whole in one of the two. A sentence that
is longer than a passage is cut at white space, or anywhere if it has none. Every character that is not white space is
in a passage.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from larvatus.core import files
from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.core.files import as_text
from larvatus.core.ranges import CountOrNone, whole
from larvatus.core.settings import Flag, Settings
from larvatus.data.text.readers import Skipped, list_files
from larvatus.data.text.words import Mode, sentence_spans
from larvatus.inference.search.generation import Generation, SourceFile

TICK_NS = 2_000_000_000
"""Coarsest clock of a file system (FAT): files this much older than the build may have changed after it too."""


@dataclass(frozen=True)
class PlannedSource:
    """A file of the next generation, and what the old generation holds of it."""

    file: SourceFile
    old: SourceFile | None = None
    """The same contents in the old generation; None for a file that is to be read."""


@dataclass(frozen=True)
class SourcePlan:
    sources: tuple[PlannedSource, ...]
    added: int
    changed: int
    removed: int

    @property
    def unchanged(self) -> int:
        return len(self.sources) - self.added - self.changed


def plan_sources(paths: Sequence[str], old: Generation | None, skipped: Skipped) -> SourcePlan:
    """All files that paths name, in order, compared with those of the old generation."""
    before = {} if old is None else {_key(source.path, old.manifest.base): source for source in old.sources}
    here = os.getcwd()
    planned: list[PlannedSource] = []
    added = 0
    kept: set[str] = set()
    for file in list_files(paths, skipped=skipped):
        if not isinstance(file, Path) or not file.is_file():
            raise DataError(f"{as_text(str(file))} cannot be read again, and an index needs that; copy it to a file")
        key = _key(os.fspath(file), here)
        kept.add(key)
        known = before.get(key)
        added += known is None
        planned.append(_planned(file, known, None if old is None else old.manifest.built_ns))
    changed = sum(source.old is None for source in planned) - added
    return SourcePlan(tuple(planned), added, changed, len(before.keys() - kept))


def _key(path: str, base: str) -> str:
    return os.path.normpath(os.path.join(base, path))


def _planned(file: Path, known: SourceFile | None, built_ns: int | None) -> PlannedSource:
    path = os.fspath(file)
    size, mtime_ns = state_of(path)
    same = known is not None and (size, mtime_ns) == (known.size, known.mtime_ns)
    if same and known is not None and built_ns is not None and mtime_ns < built_ns - TICK_NS:
        return PlannedSource(replace(known, path=path), known)
    checksum = _sha256(file)
    current = SourceFile(path=path, size=size, mtime_ns=mtime_ns, sha256=checksum)
    return PlannedSource(current, known if known is not None and known.sha256 == checksum else None)


def _sha256(file: Path) -> str:
    try:
        return files.sha256(file.resolve() if file.is_symlink() else file)  # a pattern may name links
    except OSError as fault:
        raise DataError(
            f"{as_text(os.fspath(file))} cannot be read: {fault.strerror}; check its permissions"
        ) from fault


@lru_cache(maxsize=4_096)
def _known_sha256(path: str, size: int, mtime_ns: int) -> str:
    """Checksum of a file in this state, so that a server does not read it for every query."""
    return _sha256(Path(path))


def state_of(path: str) -> tuple[int, int]:
    """Size and time of last change of a file."""
    try:
        state = os.stat(path)
    except OSError as fault:
        raise DataError(f"{as_text(path)} cannot be read: {fault.strerror}; run the build again") from fault
    return state.st_size, state.st_mtime_ns


def changed_sources(sources: Sequence[SourceFile], base: str) -> Iterator[str]:
    """What to report of files that are no longer as they were indexed."""
    for source in sources:
        path = os.path.join(base, source.path)
        try:
            size, mtime_ns = state_of(path)
            same = size == source.size and (
                mtime_ns == source.mtime_ns or _known_sha256(path, size, mtime_ns) == source.sha256
            )
        except (DataError, ArtefactError):
            yield f"{as_text(source.path)} is gone"
            continue
        if not same:
            yield f"{as_text(source.path)} has changed"


# Passages.

PASSAGE = whole(20, 1_000_000)
Span = tuple[int, int]


class PassageSettings(Settings):
    """How documents are cut into passages."""

    passage: Annotated[int, PASSAGE, Flag(metavar="CHARACTERS")] = 1_000
    """Most characters of a passage, about 200 tokens of English."""
    overlap: Annotated[CountOrNone, Flag(metavar="CHARACTERS")] = 200
    """Most characters of whole sentences that a passage shares with the one before it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overlap >= self.passage:
            raise UsageError(
                f"--overlap {self.overlap} must be smaller than --passage {self.passage}, or passages never move on"
            )


def passage_spans(
    text: str, settings: PassageSettings = PassageSettings(), *, language: str = "en", mode: Mode = "library"
) -> Iterator[Span]:
    """First and last character (exclusive) of each passage, in order."""
    most = settings.passage
    pieces = [
        piece for span in sentence_spans(text, language=language, mode=mode) for piece in _cut_long(text, span, most)
    ]
    first = 0
    while first < len(pieces):
        last = first
        while last + 1 < len(pieces) and pieces[last + 1][1] - pieces[first][0] <= most:
            last += 1
        yield pieces[first][0], pieces[last][1]
        if last + 1 == len(pieces):
            return
        following = last + 1
        while following - 1 > first and _is_shared(pieces, following - 1, last, settings):
            following -= 1
        first = following


def _is_shared(pieces: list[Span], begin: int, last: int, settings: PassageSettings) -> bool:
    """Whether the next passage may begin with sentence `begin` of the last one, and still take a new sentence."""
    overlap, needed = pieces[last][1] - pieces[begin][0], pieces[last + 1][1] - pieces[begin][0]
    return overlap <= settings.overlap and needed <= settings.passage


def _cut_long(text: str, span: Span, most: int) -> Iterator[Span]:
    """A sentence, or its parts if it is longer than a passage."""
    start, end = span
    while end - start > most:
        cut = next((at for at in range(start + most, start, -1) if text[at].isspace()), start + most)
        yield start, start + len(text[start:cut].rstrip())
        start = next(at for at in range(cut, end) if not text[at].isspace())
    yield start, end
