"""The text of a corpus: paths or documents, checksums that tell whether they changed, and units of work.

A unit has about half a million characters and is cut the same way every time. The cuts depend only on the text, so the
shards depend neither on how many workers encode the units nor on where a build was killed. A document longer than a
piece is cut at a paragraph, line, sentence or word, whichever is there, and keeps its number: memory stays bounded for
a novel or a 10 MB line, and packing still knows what belongs together.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import fsspec

from larvatus.core.errors import DataError
from larvatus.core.files import as_text
from larvatus.data.corpus.format import CorpusSource
from larvatus.data.text.languages import LanguageSource, path_of, read_languages
from larvatus.data.text.readers import Document, ReadOptions, Skipped, file_kind, list_files
from larvatus.data.text.streams import storage_errors

UNIT_CHARACTERS = 1 << 19
PIECE_CHARACTERS = 1 << 17
_BORDERS = ("\n\n", "\n", ". ", "。", " ")


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
        """`sources` names the sources of documents that are not given as paths."""
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
    """SHA-256 of the files of a path, names and bytes; None where they cannot be read twice.

    Sizes and times would be quicker to look at, but an edit need not change them. What lies at an address is not
    fetched for that: the metadata of its storage distinguish versions (ETag, size, time).
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


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A document or a part of one."""

    text: str
    document: int
    part: int
    language: str
    source: str
    line: int


@dataclass(frozen=True)
class Unit:
    """Pieces to encode together, and the state of the stream after them."""

    number: int
    pieces: list[TextPiece]
    documents: int  # so far, blank ones not counted
    blank: int  # blank documents so far
    text_sha256: str  # of the stream so far


def units(documents: Iterable[Document], *, language: str, size: int = UNIT_CHARACTERS) -> Iterator[Unit]:
    """Cut the stream of documents into units of about `size` characters."""
    digest = hashlib.sha256()
    pieces: list[TextPiece] = []
    number = documents_so_far = blank = characters = 0
    for document in documents:
        if not document.text or document.text.isspace():
            blank += 1
            continue
        name = document.language or language
        try:
            head = f"{document.source}\x00{document.line}\x00{name}\x00{len(document.text)}\x00"
            digest.update(head.encode())
            digest.update(document.text.encode())
        except UnicodeEncodeError as fault:
            where = f"{document.source}:{document.line}"
            raise DataError(f"{where}: a lone surrogate ({fault.object[fault.start]!a}) is not text") from fault
        for part, text in enumerate(cut_text(document.text, min(size, PIECE_CHARACTERS))):
            pieces.append(TextPiece(text, documents_so_far, part, name, document.source, document.line))
            characters += len(text)
            if characters >= size:
                yield Unit(number, pieces, documents_so_far + 1, blank, digest.hexdigest())
                number, pieces, characters = number + 1, [], 0
        documents_so_far += 1
    # the last unit always comes, even empty: it carries the final count and checksum of the stream
    yield Unit(number, pieces, documents_so_far, blank, digest.hexdigest())


def cut_text(text: str, size: int) -> Iterator[str]:
    """Parts of at most `size` characters, cut in the second half of each at the strongest border there is.

    >>> list(cut_text("One two. Three four five.", 12))
    ['One two. ', 'Three four ', 'five.']
    """
    start = 0
    while len(text) - start > size:
        end = start + size
        for border in _BORDERS:
            at = text.rfind(border, start + size // 2, end)
            if at >= 0:
                end = at + len(border)
                break
        yield text[start:end]
        start = end
    yield text[start:]
