"""Words of a text, which whole-word masking, word vectors and tags use; and its sentences.

    >>> text = "Mt. Sanitas, 山"
    >>> [text[start:end] for start, end in segment_words(text).tolist()]
    ['Mt', '.', 'Sanitas', ',', '山']

The rule of words is that of BERT's basic tokenizer (Devlin et al. 2019), made safe for every script:

- white space separates; a word never holds any;
- a punctuation character is a word by itself (Unicode category P, and the ASCII symbols ``$+<=>^`|~``);
- where the script does not write spaces (Han, Kana, Thai, Lao, Khmer, Burmese, Tibetan, …) each character is a word;
- anything else runs on until one of these;
- a grapheme cluster is never cut: accents stay with their letter, joiners hold an emoji family together;
- characters that nobody sees (zero-width space, controls) do not form words.

`split_sentences` splits text for next-sentence pairs and full-sentence packing. The mode `library` uses the `sentencex`
package (rules and abbreviations of many languages, in Rust); `newline` takes text that is already split, one sentence a
line. No character is lost: the spans hold every character that is not white space.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import regex
import sentencex

from larvatus.core.errors import UsageError
from larvatus.core.text_inputs import refuse_surrogates

UNSPACED_SCRIPTS = (
    "Han", "Hiragana", "Katakana", "Bopomofo", "Yi", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan",
    "Tai_Le", "New_Tai_Lue", "Tai_Tham", "Tai_Viet", "Javanese", "Balinese",
)  # fmt: skip
UNSPACED = "".join(rf"\p{{Script={script}}}" for script in UNSPACED_SCRIPTS)
SPACE = r"\s\x1c-\x1f"
"""White space as `str.isspace` says; the regular expression's own leaves out four separators."""
PUNCTUATION = r"\p{P}$+<=>^`|~"
ALONE = f"[{PUNCTUATION}{UNSPACED}]"
"""A character that is a word by itself (with what extends it)."""
EXTENDS = r"[\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=ZWJ}]"
"""A character that belongs to the one before it, never the first of a cluster."""

# A run is one character class, so a ten-megabyte word costs linear time and no backtracking memory.
# An unspaced script's own combining marks (Thai vowels above) extend the cluster before them, or start a run.
_WORD = regex.compile(rf"(?V1)(?!{EXTENDS})(?={ALONE})\X|[{EXTENDS}||[^{SPACE}{PUNCTUATION}{UNSPACED}]]++")
_JOINS_FORWARD = regex.compile(r"[\p{GCB=Prepend}\p{GCB=ZWJ}]")
_CLUSTER = regex.compile(r"\X")
_UNSEEN = r"[\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}]"
_ANY_UNSEEN = regex.compile(_UNSEEN)
_ALL_UNSEEN = regex.compile(f"{_UNSEEN}+")

_SPACES = np.zeros(0x3001, dtype=np.bool_)
_SPACES[[code for code in range(0x3001) if chr(code).isspace()]] = True


def segment_words(text: str) -> npt.NDArray[np.int64]:
    """Character spans of the words of a text, in order: [W, 2]."""
    spans = [match.span() for match in _WORD.finditer(text)]
    if not text.isascii() and _JOINS_FORWARD.search(text):
        spans = _uncut(text, spans)
    if _ANY_UNSEEN.search(text):
        spans = [(start, end) for start, end in spans if not _ALL_UNSEEN.fullmatch(text, start, end)]
    return np.asarray(spans, dtype=np.int64).reshape(-1, 2)


def _uncut(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join neighbours whose border is inside a grapheme cluster: rare (prepended marks, hostile joiners)."""
    borders = {match.start() for match in _CLUSTER.finditer(text)}
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and joined[-1][1] == start and start not in borders:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def code_points(text: str) -> npt.NDArray[np.uint32]:
    """The code points of a text: [N]. Lone surrogates pass: naming them is the caller's business."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def is_space(text: str) -> npt.NDArray[np.bool_]:
    """Which characters are white space, as `str.isspace` says: [N]."""
    codes = code_points(text)
    return _SPACES[np.minimum(codes, 0x3000)] & (codes <= 0x3000)


# Sentences.

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
