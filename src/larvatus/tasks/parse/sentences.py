"""Sentences of raw text for the parser: those of the library, and what it takes for one because of quotation marks.

The library (`data/text/words.py`) does not end a sentence inside quotation marks or brackets. Where one is never
closed, or an apostrophe is taken for one, much text becomes a single sentence. So a sentence of more than `LONG`
characters is cut again as if it had no such marks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import regex

from larvatus.data.text.words import sentence_spans

LONG = 150
"""Characters of a sentence that is looked at again."""
_MARKS = regex.compile(r"[\p{Pi}\p{Pf}\p{Ps}\p{Pe}\"'`]")


def cut_sentences(text: str, language: str) -> Iterator[tuple[int, int]]:
    """Characters of each sentence.

    >>> text = "\\"It is open. " + "They came in. " * 30 + "\\""
    >>> len(sentence_spans(text)), len(list(cut_sentences(text, "en")))
    (1, 31)
    """
    for start, end in sentence_spans(text, language=language):
        if end - start > LONG:
            yield from _cut_again(text, start, end, language)
        else:
            yield start, end


def _cut_again(text: str, start: int, end: int, language: str) -> Iterator[tuple[int, int]]:
    """The sentences of a part of a text without its marks, which stay with the words that they touch."""
    bare = _MARKS.sub(" ", text[start:end])
    borders = [start]
    for low, _ in sentence_spans(bare, language=language)[1:]:
        place = start + low
        while place > borders[-1] and not text[place - 1].isspace():
            place -= 1
        if place > borders[-1]:
            borders.append(place)
    for low, high in pairwise([*borders, end]):
        yield low, low + len(text[low:high].rstrip())
