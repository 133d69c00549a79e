"""From a stream of documents to units of work: about half a million characters each, cut the same way every time.

The cuts depend on the text alone, so the shards do not depend on how many workers encode the units or where a build was
killed. A document longer than a piece is cut at a paragraph, line, sentence or word, whichever is there, and keeps its
number: memory stays bounded for a novel or a 10 MB line, and packing still knows what belongs together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from larvatus.core.errors import DataError

UNIT_CHARACTERS = 1 << 19
PIECE_CHARACTERS = 1 << 17
_BORDERS = ("\n\n", "\n", ". ", "。", " ")


class DocumentLike(Protocol):
    """What a reader gives (`larvatus.data.text.readers.Document`)."""

    @property
    def text(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def language(self) -> str | None: ...


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
    """Pieces to encode together, and where the stream stands after them."""

    number: int
    pieces: list[TextPiece]
    documents: int  # so far, blank ones not counted
    blank: int  # blank documents so far
    text_sha256: str  # of the stream so far


def units(documents: Iterable[DocumentLike], *, language: str, size: int = UNIT_CHARACTERS) -> Iterator[Unit]:
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
