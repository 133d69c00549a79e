"""Sentences of a text: what next-sentence pairs and full-sentence packing are made of.

    [sentence for sentence in split_sentences("Mt. Sanitas is steep. Bring water.", language="en")]

`library` asks the `sentencex` package (rules and abbreviations of many languages, in Rust); `newline` takes text that
is already split, one sentence a line. No character is lost: the spans hold every character that is not white space.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

import regex
import sentencex

from larvatus.core.errors import UsageError
from larvatus.core.text_inputs import refuse_surrogates

Mode = Literal["library", "newline"]

_TITLE = regex.compile(r"(?:[—–-](?:Mrs?|Ms|Messrs|Mme|Mlle|Drs?|St|Prof|Capt|Col|Gen|Lt|Rev|Hon|Sir)|\bMdll?e)\.\s*$")
"""The library cuts after a title if a dash is before it, and does not know `Mdlle.`."""
_INITIALS = regex.compile(r"[—–-](?:\p{Lu}\.)+$")
_LANGUAGE = regex.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]+)*")


def is_language(code: str) -> bool:
    """Whether this looks like the code of a language: en, swa, zh-Hant."""
    return _LANGUAGE.fullmatch(code) is not None


def sentence_spans(text: str, *, language: str = "en", mode: Mode = "library") -> list[tuple[int, int]]:
    """Character spans of the sentences, without the white space around them; blank ones are left out.

    A line break does not end a sentence in `library` mode (prose is often wrapped); a blank line does.
    """
    if mode == "newline":
        return [span for start, end in _lines(text) if (span := _trimmed(text, start, end))]
    return _spans(text, _segments(text, language, mode))


def _segments(text: str, language: str, mode: Mode) -> list[str]:
    """What the library says."""
    if mode != "library":
        raise UsageError(f"there is no sentence mode {mode!r}; there are: library, newline")
    if not is_language(language):
        raise UsageError(f"{language!r} is no language code; use one such as en, de or zh")
    refuse_surrogates(text, "the text")
    segments = list(sentencex.segment(language, text))
    return _mended(segments) if language.lower().partition("-")[0] in ("en", "eng") else segments


def _mended(segments: list[str]) -> list[str]:
    """Segments with those joined that the library cut in two after a title, or within `pro-U.S.`."""
    out: list[str] = []
    for segment in segments:
        if out and (_TITLE.search(out[-1]) or (segment[1:2] == "." and _INITIALS.search(out[-1]))):
            out[-1] += segment
        else:
            out.append(segment)
    return out


def _spans(text: str, segments: list[str]) -> list[tuple[int, int]]:
    """Start and end of the library's sentences in the text."""
    spans, place = [], 0
    for sentence in segments:
        core = sentence.strip()
        if not core:
            continue
        start = text.find(core, place)
        if start < 0:  # the library rewrote something: keep the rest whole rather than lose a character
            break
        # what is between two sentences and is no white space belongs to the later one
        begin = place if text[place:start].strip() else start
        spans.append(_trimmed(text, begin, start + len(core)))
        place = start + len(core)
    rest = _trimmed(text, place, len(text))
    return [span for span in [*spans, rest] if span]


def split_sentences(text: str, language: str = "en", mode: Mode = "library") -> list[str]:
    """The sentences of a text, trimmed.

    >>> split_sentences("Dr. Smith came. He left.")
    ['Dr. Smith came.', 'He left.']
    """
    if mode == "newline":
        return [text[start:end] for start, end in sentence_spans(text, mode=mode)]
    segments = _segments(text, language, mode)
    if "".join(segments) == text:  # as it nearly always is: no need to look for them
        return [sentence for segment in segments if (sentence := segment.strip())]
    return [text[start:end] for start, end in _spans(text, segments)]


def _lines(text: str) -> list[tuple[int, int]]:
    spans, start = [], 0
    for line in text.splitlines(keepends=True):
        spans.append((start, start + len(line)))
        start += len(line)
    return spans


def _trimmed(text: str, start: int, end: int) -> tuple[int, int] | None:
    part = text[start:end]
    core = part.strip()
    if not core:
        return None
    start += len(part) - len(part.lstrip())
    return start, start + len(core)


LONG = 150
"""Characters of a sentence that is looked at again."""
_MARKS = regex.compile(r"[\p{Pi}\p{Pf}\p{Ps}\p{Pe}\"'`]")


def cut_sentences(text: str, language: str) -> Iterator[tuple[int, int]]:
    """Characters of each sentence; a long one is cut again without regard to quotation marks and brackets.

    The library does not end a sentence inside them. Where one is never closed, or an apostrophe is taken for one, much
    text becomes a single sentence.

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
