"""A corpus as passages: stretches of whole sentences that the model reads at once.

    for passage in passages(["texts/"], PassageOptions(), Skipped()):
        passage.text, passage.source, passage.line

What is counted over a corpus (word instances for isotropy, a concordance) needs no document in one piece: a document is
cut at sentences into passages of some sentences each, so that memory never depends on its length.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from larvatus.core.ranges import CountOrNone
from larvatus.core.rng import stream
from larvatus.core.settings import Settings
from larvatus.data.text.readers import Document, ReadOptions, Skipped, has_columns, read_documents
from larvatus.data.text.sentences import Mode, sentence_spans
from larvatus.data.text.words import segment_words

CHARACTERS = 1_000
"""Of a passage, if its sentences allow: some 200 tokens of English."""


class PassageOptions(Settings):
    reading: ReadOptions = ReadOptions()
    sentences: Mode = "library"
    language: str = "en"
    """Language of text that names none, for cutting sentences."""
    characters: CountOrNone = CHARACTERS
    """Of a passage at most, but for a longer sentence; 0: every sentence by itself."""


@dataclass(frozen=True)
class TextPiece:
    """One text for the model, and where it comes from."""

    text: str
    document: int
    source: str
    line: int
    unit: int = 0
    """Number of its first unit in the document."""
    start: int = 0
    """Character of the document where it begins."""
    lines: bool = True
    """Whether its line breaks are those of the file: not so of a record, which stands in one line of JSONL."""

    def line_at(self, start: int) -> int:
        """The line of the file in which a character of the text stands."""
        return self.line + self.text.count("\n", 0, start) if self.lines else self.line


def passages(
    paths: Sequence[str],
    options: PassageOptions,
    skipped: Skipped,
    keep: Callable[[str], bool] = lambda _: True,
) -> Iterator[TextPiece]:
    """All passages of all files in order, each with its place: `start` is its first character in the document.

    `keep` says of a document's text whether it is wanted: cutting sentences is slow, looking for a word is not.
    """
    for number, document in enumerate(read_documents(paths, options=options.reading, skipped=skipped)):
        if not keep(document.text):
            continue
        for start, end in _stretches(document, options):
            lines = breaks_lines(document)
            line = document.line + (document.text.count("\n", 0, start) if lines else 0)
            yield TextPiece(document.text[start:end], number, document.source, line, 0, start, lines)


def breaks_lines(document: Document) -> bool:
    """Whether line breaks of the text are those of its file; a record's or cell's are its own."""
    return not has_columns(document.source)


def _stretches(document: Document, options: PassageOptions) -> Iterator[tuple[int, int]]:
    """Neighbouring sentences, as many as fit."""
    language = document.language or options.language
    spans = sentence_spans(document.text, language=language, mode=options.sentences)
    first = last = -1
    for start, end in spans:
        if first >= 0 and end - first > options.characters:
            yield first, last
            first = -1
        first = start if first < 0 else first
        last = end
    if first >= 0:
        yield first, last


def sample(pieces: Iterable[TextPiece], most: int, *, seed: int = 0) -> list[TextPiece]:
    """Passages with `most` words in all (or a few more), drawn at random from the whole corpus, in its order.

    Neighbouring passages share their topic, so the first thousand words of a corpus stand for its first document. Only
    what is drawn is held.
    """
    kept: list[tuple[float, int, TextPiece, int]] = []  # the largest lot first
    total = 0
    for number, piece in enumerate(pieces):
        size = len(segment_words(piece.text))
        lot = float(stream(seed, "passages", item=number).random())
        heapq.heappush(kept, (-lot, number, piece, size))
        total += size
        while total - kept[0][3] >= most:
            total -= heapq.heappop(kept)[3]
    return [piece for _, _, piece, _ in sorted(kept, key=lambda entry: entry[1])]


def blocks(pieces: Iterable[TextPiece], characters: int) -> Iterator[list[TextPiece]]:
    """Runs of pieces with at least so many characters together."""
    block: list[TextPiece] = []
    size = 0
    for piece in pieces:
        block.append(piece)
        size += len(piece.text)
        if size >= characters:
            yield block
            block, size = [], 0
    if block:
        yield block
