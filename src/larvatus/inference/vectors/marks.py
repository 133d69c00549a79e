r"""Marked words: `*…*` selects a word of a text; `\*` is a star.

    >>> read_marks("the *bank* of the river")
    MarkedText(text='the bank of the river', spans=((4, 8),))

A text without a marked word, or with several where one is expected, is refused in one line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from larvatus.core.errors import UsageError

_STAR = re.compile(r"\\\*|\*")
_SHOWN = 60


@dataclass(frozen=True)
class MarkedText:
    """A text without its marks, and the characters of the marked words."""

    text: str
    spans: tuple[tuple[int, int], ...]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.text[start:end] for start, end in self.spans)


def read_marks(text: str) -> MarkedText:
    """All marked words of a text; at least one."""
    pieces: list[str] = []
    borders: list[int] = []
    size = place = 0
    for star in _STAR.finditer(text):
        piece = text[place : star.start()] + ("*" if star[0] == r"\*" else "")
        pieces.append(piece)
        size += len(piece)
        place = star.end()
        if star[0] == "*":
            borders.append(size)
    plain = "".join([*pieces, text[place:]])
    if not borders:
        raise UsageError(f"no word is marked in {_short(text)}; put stars around it: the *bank* of the river")
    if len(borders) % 2:
        raise UsageError(f"a mark is not closed in {_short(text)}; put a star on both sides, or write \\* for a star")
    spans = tuple(_trimmed(plain, start, end) for start, end in zip(borders[::2], borders[1::2], strict=True))
    if any(start == end for start, end in spans):
        raise UsageError(f"there is nothing between two stars in {_short(text)}; mark a word: the *bank* of the river")
    return MarkedText(plain, spans)


def read_mark(text: str) -> MarkedText:
    """The one marked word of a text; none or several are refused."""
    marked = read_marks(text)
    if len(marked.spans) > 1:
        words = ", ".join(marked.words)
        raise UsageError(f"{len(marked.spans)} words are marked in {_short(text)} ({words}); mark one")
    return marked


def mark_word(text: str, word: str) -> MarkedText:
    """A word that is named instead of marked: it must occur in the text, as a word, exactly once.

    >>> mark_word("the bank of the river", "bank").spans
    ((4, 8),)
    """
    spans = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", text)] if word else []
    if not spans:
        raise UsageError(f"{word!r} is not in {_short(text)}; check the spelling, or mark it with stars")
    if len(spans) > 1:
        raise UsageError(f"{word!r} occurs {len(spans)} times in {_short(text)}; mark one of them with stars")
    return MarkedText(text, (spans[0],))


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    part = text[start:end]
    return (start + len(part) - len(part.lstrip()), start + len(part.rstrip())) if part.strip() else (start, start)


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
