"""What was given as text: paths or documents, what lies there, and a way to tell whether it changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from larvatus.corpus.format import Source
from larvatus.files import as_text
from larvatus.text.languages import Given, LanguagePath, path_of, read_languages
from larvatus.text.readers import Document, ReadOptions, Skipped, list_files


@dataclass(frozen=True)
class Text:
    """The documents to build from: read anew on each call, the skipped ones counted."""

    read: Callable[[], Iterable[Document]]
    sources: tuple[Source, ...]
    fingerprint: str | None
    skipped: Skipped

    @classmethod
    def of(
        cls,
        documents: Given | Sequence[Given] | Iterable[Document],
        reading: ReadOptions,
        *,
        licence: str = "",
        sources: Sequence[Given] = (),
    ) -> Text:
        """`sources` says where documents come from that are not given as paths."""
        skipped = Skipped()
        paths = _paths(documents)
        if paths is None:
            given: Iterable[Document] = documents  # type: ignore[assignment]
            named = describe(sources, licence) or (Source(name="documents", licence=licence),)
            return cls(lambda: given, named, None, skipped)

        def read() -> Iterable[Document]:
            return read_languages(paths, options=reading, skipped=skipped)

        return cls(read, describe(paths, licence), fingerprint(paths), skipped)

    @property
    def names(self) -> str:
        return ", ".join(source.name for source in self.sources[:3]) + (", …" if len(self.sources) > 3 else "")


def _paths(documents: object) -> list[Given] | None:
    if isinstance(documents, Given):
        return [documents]
    if isinstance(documents, Sequence) and documents and all(isinstance(d, Given) for d in documents):
        return list(documents)
    return None


def describe(paths: Sequence[Given], licence: str) -> tuple[Source, ...]:
    """Each path as it was given, with the files and bytes found there (bytes of local files only)."""
    described = []
    for path in paths:
        found = list_files([path_of(path)]) if os.path.exists(path_of(path)) else []
        size = sum(file.stat().st_size for file in found if isinstance(file, Path))
        described.append(Source(name=as_text(str(path)), files=len(found), bytes=size, licence=licence))
    return tuple(described)


def fingerprint(paths: Sequence[Given]) -> str | None:
    """Names, sizes and times of the files, as `make` would look at them; none where not all are local."""
    digest = hashlib.sha256("".join(f"{path}\x00" for path in paths if isinstance(path, LanguagePath)).encode())
    for file in list_files([path_of(path) for path in paths]):
        if not isinstance(file, Path):
            return None
        found = file.stat()
        digest.update(f"{file}\x00{found.st_size}\x00{found.st_mtime_ns}\x00".encode(errors="surrogateescape"))
    return digest.hexdigest()


def left_out(skipped: Skipped) -> dict[str, int]:
    """What reading left out, by reason."""
    reasons = {**skipped.bad, "blank": skipped.blank}
    reasons |= {f"{suffix} files of no known kind": count for suffix, count in skipped.ignored.items()}
    return {reason: count for reason, count in reasons.items() if count}
