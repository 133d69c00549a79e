"""Which tokens open a word, by their ids only: a fast way to the aligner's result.

Encoding with offsets costs a third more than encoding without, and corpus building wants only ids and word borders.
Every style of vocabulary marks the borders in its pieces, so a few tables over the vocabulary and one look at the
token before decide:

    start(t) = marked(t)  or  not glued(t-1)  and  not extends(t)  and  (alone_first(t) or closes(t-1))

marked: the piece says that a space came before it (no ``##``; ``▁``; ``Ġ``). glued: a bare ``▁`` or ``Ġ``, whose word
comes next. alone_first: it begins with a character that is a word by itself (`words.ALONE`). closes: it ends in one, or
in ``</w>``, or holds two words, of which it belongs to the first. extends: it begins with a combining mark.

Where a piece cannot tell (half a UTF-8 character, an unknown in a style that does not mark words), or the normaliser
rewrites words (`rewritten_characters`), the text is *unsure* and the caller asks the aligner.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import regex

from larvatus.core.arrays import Bools
from larvatus.data.text.words import ALONE, EXTENDS, segment_words

Style = Literal["##", "</w>", "▁", "Ġ", "##bytes"]
"""How a vocabulary marks words: WordPiece, GPT's BPE, SentencePiece, byte-level BPE, single bytes."""

_ALONE_FIRST = regex.compile(f"{ALONE}")
_ALONE_LAST = regex.compile(rf"(?s).*{ALONE}{EXTENDS}*")
_EXTENDS_FIRST = regex.compile(EXTENDS)


def byte_alphabet() -> dict[str, int]:
    """The printable stand-in of each byte in byte-level BPE (Radford et al. 2019): 'Ġ' is the space."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    stands = printable + [0x100 + index for index in range(len(others))]
    return {chr(stand): byte for stand, byte in zip(stands, printable + others, strict=True)}


@dataclass(frozen=True)
class WordStarts:
    """Tables over the vocabulary, each [V]."""

    marked: Bools
    glued: Bools
    extends: Bools
    alone_first: Bools
    closes: Bools
    unsure: Bools

    def starts(self, ids: npt.NDArray[np.integer], first: npt.NDArray[np.integer]) -> Bools:
        """[N] whether each token of texts laid end to end opens a word; `first` are the places where texts begin."""
        starts: Bools = self.alone_first[ids]
        starts[1:] |= self.closes[ids[:-1]]
        starts &= ~self.extends[ids]
        starts[1:] &= ~self.glued[ids[:-1]]
        starts |= self.marked[ids]
        starts[first] = True
        return starts


def word_starts(pieces: Sequence[str], style: Style, unknown: int | None) -> WordStarts:
    """The tables of a vocabulary."""
    size = len(pieces)
    tables = WordStarts(*(np.zeros(size, dtype=np.bool_) for _ in range(6)))
    alphabet = byte_alphabet()
    for index, piece in enumerate(pieces):
        body = token_body(piece, style, alphabet)
        if body is None or (index == unknown and style != "##"):
            tables.unsure[index] = True
            continue
        text, marked, closes = body
        tables.marked[index] = marked
        tables.glued[index] = marked and not text
        if text.isascii() and text.isalnum():  # most pieces: plain letters, nothing to look into
            tables.closes[index] = closes
            continue
        tables.extends[index] = bool(_EXTENDS_FIRST.match(text))
        tables.alone_first[index] = bool(_ALONE_FIRST.match(text))
        tables.closes[index] = closes or bool(_ALONE_LAST.fullmatch(text)) or len(segment_words(text)) > 1
        # after white space an accent opens a word, after punctuation it belongs to it: the piece looks the same
        tables.unsure[index] = style == "##" and marked and tables.extends[index]
    return tables


def rewritten_characters(normalise: Callable[[str], str]) -> regex.Pattern[str] | None:
    """Characters that a normaliser turns into other words than they are: NFKC makes '…' three full stops, Nmt a joiner
    a space. A text that holds one is unsure. None where there are none."""
    changed = [char for char in _candidates() if _shape(char) != _shape(normalise(char))]
    return regex.compile(f"[{''.join(map(regex.escape, changed))}]") if changed else None


@cache
def _candidates() -> tuple[str, ...]:
    """Characters that some Unicode normalisation rewrites, and those without a glyph."""
    places = [*range(0x20), *range(0x7F, 0xAC00), *range(0xF900, 0x10000), *range(0x1D400, 0x1F300)]
    return tuple(
        char
        for char in map(chr, places)
        if not unicodedata.is_normalized("NFKD", char) or unicodedata.category(char) in ("Cc", "Cf", "Zs")
    )


def _shape(text: str) -> list[str]:
    """What a text is to the segmentation: white space, one-character words, runs. What is deleted is part of a run."""
    shape: list[str] = []
    for char in text or "a":
        if _EXTENDS_FIRST.match(char) and shape:
            continue
        kind = " " if char.isspace() else "." if _ALONE_FIRST.match(char) else "a"
        if kind == "." or shape[-1:] != [kind]:
            shape.append(kind)
    return ["."] if shape == [" ", ".", " "] else shape  # BERT puts spaces around an ideograph


def token_body(piece: str, style: Style, alphabet: dict[str, int]) -> tuple[str, bool, bool] | None:
    """A piece as (its text, whether it says that a word opens, whether it says that one closes)."""
    if style == "##":
        return (piece[2:], False, False) if piece.startswith("##") and len(piece) > 2 else (piece, True, False)
    if style == "##bytes":
        text = piece[2:] if len(piece) > 2 else piece
        single = alphabet.get(text, 0x80) < 0x80 and (len(piece) == 1 or piece.startswith("##"))
        return (text, len(piece) == 1, False) if single else None
    if style == "</w>":
        return piece.removesuffix("</w>"), False, piece.endswith("</w>")
    if style == "▁":
        text = piece.lstrip("▁")
        return None if "▁" in text or len(piece) - len(text) > 1 else (text, piece != text, False)
    try:
        text = bytes(alphabet[char] for char in piece).decode()
    except (KeyError, UnicodeDecodeError):
        return None
    body = text.lstrip()
    return body, text != body, text.rstrip() != text and body != ""
