"""Cut a document into passages: runs of whole sentences that overlap, each with its exact characters.

    >>> text = "Mt. Sanitas is steep. Bring water. The trail begins in Sunshine Canyon."
    >>> [text[start:end] for start, end in passage_spans(text, PassageSettings(passage=50, overlap=15))]
    ['Mt. Sanitas is steep. Bring water.', 'Bring water. The trail begins in Sunshine Canyon.']

A passage takes as many sentences as fit into `passage` characters. The next one begins again with the last sentences of
it that fit into `overlap` characters, so that an answer that spans a border is whole in one of the two. A sentence that
is longer than a passage is cut at white space, or anywhere if it has none. Every character that is not white space is
in a passage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from larvatus.core.errors import UsageError
from larvatus.core.flags import Flag
from larvatus.core.ranges import CountOrNone, whole
from larvatus.core.settings import Settings
from larvatus.data.text.sentences import Mode, sentence_spans

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
