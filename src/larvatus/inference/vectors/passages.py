"""A corpus as passages: runs of whole sentences that fit into the model's window.

    for passage in passages(["texts/"], PassageOptions(), Skipped()):
        passage.text, passage.source, passage.line

Statistics over a corpus (word instances for isotropy, a concordance) do not need whole documents: a document is split
into passages of a few sentences each, so that memory does not depend on its length.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from larvatus.core.ranges import CountOrNone
from larvatus.core.rng import stream
from larvatus.core.settings import Settings
from larvatus.data.text.readers import Document, ReadOptions, Skipped, has_columns, read_documents
from larvatus.data.text.words import Mode, segment_words, sentence_spans

CHARACTERS = 1_000
"""Characters of a passage, if its sentences allow: about 200 tokens of English."""


class PassageOptions(Settings):
    reading: ReadOptions = ReadOptions()
    sentences: Mode = "library"
    language: str = "en"
    """Language of texts that do not name theirs, for sentence splitting."""
    characters: CountOrNone = CHARACTERS
    """Most characters of a passage, unless one sentence is longer; 0 for one sentence per passage."""


@dataclass(frozen=True)
class LocatedText:
    """A text for the model, and its place in the corpus."""

    text: str
    document: int
    source: str
    line: int
    unit: int = 0
    """Number of its first unit in the document."""
    start: int = 0
    """Character of the document at which it begins."""
    lines: bool = True
    """Whether its line breaks are those of the file; a record is one line of JSONL."""

    def line_at(self, start: int) -> int:
        """The line of the file that contains a character of the text."""
        return self.line + self.text.count("\n", 0, start) if self.lines else self.line


def passages(
    paths: Sequence[str],
    options: PassageOptions,
    skipped: Skipped,
    keep: Callable[[str], bool] = lambda _: True,
) -> Iterator[LocatedText]:
    """All passages of all files in order, each with its place: `start` is its first character in the document.

    `keep` selects documents by their text: splitting sentences is slow, searching for a word is not.
    """
    for number, document in enumerate(read_documents(paths, options=options.reading, skipped=skipped)):
        if not keep(document.text):
            continue
        for start, end in _sentence_runs(document, options):
            lines = breaks_lines(document)
            line = document.line + (document.text.count("\n", 0, start) if lines else 0)
            yield LocatedText(document.text[start:end], number, document.source, line, 0, start, lines)


def breaks_lines(document: Document) -> bool:
    """Whether line breaks of the text are those of its file; those of a record or cell are not."""
    return not has_columns(document.source)


def _sentence_runs(document: Document, options: PassageOptions) -> Iterator[tuple[int, int]]:
    """Runs of neighbouring sentences, as many as fit."""
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


def sample(pieces: Iterable[LocatedText], words: int, *, seed: int = 0) -> list[LocatedText]:
    """A random sample of passages with this many `words` in total (or a few more), in the order of the corpus.

    Neighbouring passages share a topic: the first thousand words of a corpus would represent only its first document.
    Only the sample is held in memory.
    """
    kept: list[tuple[float, int, LocatedText, int]] = []  # the largest random number first
    total = 0
    for number, piece in enumerate(pieces):
        size = len(segment_words(piece.text))
        draw = float(stream(seed, "passages", item=number).random())
        heapq.heappush(kept, (-draw, number, piece, size))
        total += size
        while total - kept[0][3] >= words:
            total -= heapq.heappop(kept)[3]
    return [piece for _, _, piece, _ in sorted(kept, key=lambda entry: entry[1])]


def blocks(pieces: Iterable[LocatedText], characters: int) -> Iterator[list[LocatedText]]:
    """Runs of pieces with at least this many characters in total."""
    block: list[LocatedText] = []
    size = 0
    for piece in pieces:
        block.append(piece)
        size += len(piece.text)
        if size >= characters:
            yield block
            block, size = [], 0
    if block:
        yield block
