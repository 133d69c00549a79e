"""What was given as text: paths or documents, what lies there, and a way to tell whether it changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import fsspec

from larvatus.core.errors import DataError
from larvatus.core.files import as_text
from larvatus.data.corpus.format import CorpusSource
from larvatus.data.text.languages import LanguageSource, path_of, read_languages
from larvatus.data.text.readers import Document, ReadOptions, Skipped, file_kind, list_files
from larvatus.data.text.streams import storage_errors


@dataclass(frozen=True)
class SourceText:
    """The documents to build from: read again on each call, the skipped ones counted."""

    read: Callable[[], Iterable[Document]]
    sources: tuple[CorpusSource, ...]
    skipped: Skipped

    @classmethod
    def of(
        cls,
        documents: LanguageSource | Sequence[LanguageSource] | Iterable[Document],
        reading: ReadOptions,
        *,
        licence: str = "",
        sources: Sequence[LanguageSource] = (),
    ) -> SourceText:
        """`sources` says where documents come from that are not given as paths."""
        skipped = Skipped()
        paths = _paths(documents)
        if paths is None:
            given: Iterable[Document] = documents  # type: ignore[assignment]
            named = describe(sources, licence) or (CorpusSource(name="documents", licence=licence),)
            return cls(lambda: given, named, skipped)

        list_files([path_of(path) for path in paths])  # what is not there is named before anything is made

        def read() -> Iterable[Document]:
            return read_languages(paths, options=reading, skipped=skipped)

        return cls(read, describe(paths, licence), skipped)

    @property
    def names(self) -> str:
        return ", ".join(source.name for source in self.sources[:3]) + (", …" if len(self.sources) > 3 else "")


def _paths(documents: object) -> list[LanguageSource] | None:
    if isinstance(documents, LanguageSource):
        return [documents]
    if isinstance(documents, Sequence) and documents and all(isinstance(d, LanguageSource) for d in documents):
        return list(documents)
    return None


def describe(paths: Sequence[LanguageSource], licence: str) -> tuple[CorpusSource, ...]:
    """Each path as it was given, with the files and bytes found there (bytes of local files only)."""
    described = []
    for path in paths:
        listed = list_files([path_of(path)]) if os.path.exists(path_of(path)) else []
        size = sum(file.stat().st_size for file in listed if isinstance(file, Path))
        described.append(CorpusSource(name=as_text(str(path)), files=len(listed), bytes=size, licence=licence))
    return tuple(described)


def content_hash(path: LanguageSource) -> str | None:
    """SHA-256 of the files that a path stands for, names and bytes; None where they cannot be read twice.

    Sizes and times would be quicker to look at, but an edit need not change them. What lies at an address is not
    fetched for that: its storage tells one version from another (ETag, size, time).
    """
    listed = list_files([path_of(path)])
    digest = hashlib.sha256(str(path).encode(errors="surrogateescape"))
    for file in listed:
        if isinstance(file, str) and "://" in file:
            digest.update(f"\x00{file}\x00{_as_stored(file)}{_as_read(file)}".encode(errors="surrogateescape"))
            continue
        if not isinstance(file, Path) or not file.is_file():  # standard input, a pipe
            return None
        try:
            with file.open("rb") as opened:
                content = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError as fault:
            raise DataError(f"{file} cannot be read: {fault.strerror}") from fault
        digest.update(f"\x00{file}\x00{content}{_as_read(file)}".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _as_read(file: str | Path) -> str:
    """A mark of files that earlier versions read in another way: work begun by them is not resumed with other text."""
    return "\x00by columns" if file_kind(os.fspath(file)) in ("csv", "tsv") else ""


def _as_stored(address: str) -> str:
    with storage_errors(address):
        system, path = fsspec.core.url_to_fs(address)
        return str(system.ukey(path))


def fingerprint(paths: Sequence[LanguageSource]) -> str | None:
    """The contents of all paths, in their order; None where some cannot be read twice."""
    digests = [content_hash(path) for path in paths]
    return None if None in digests else hashlib.sha256("\n".join(map(str, digests)).encode()).hexdigest()


def skip_reasons(skipped: Skipped) -> dict[str, int]:
    """What reading left out, by reason."""
    reasons = {**skipped.bad, "blank": skipped.blank}
    reasons |= {f"{suffix} files of no known kind": count for suffix, count in skipped.ignored.items()}
    reasons |= skipped.reasons
    return {reason: count for reason, count in reasons.items() if count}
