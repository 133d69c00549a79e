"""Texts with blanks. The literal mask token (`[MASK]`) marks each blank; elsewhere it is plain text.

If a text does not contain the model's own mask token, `[MASK]` and `<mask>` are both read as blanks.

blanks = read_blanks("The [MASK] of the river was [MASK].", tokenizer)
blanks.places                                       # positions among the tokens
blanks.filled(["bank", "##wide"], glued=[False, True])
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.batch import NO_WORD
from larvatus.core.errors import UsageError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.tokenizer_files import WELL_KNOWN


@dataclass(frozen=True, eq=False)
class Blanks:
    pieces: tuple[str, ...]
    """The text between the blanks: one more than there are blanks."""
    ids: Ints  # [T] tokens of the text, the mask token at each blank
    words: Ints  # [T]
    places: tuple[int, ...]
    """Index of each blank among the tokens."""

    def filled(self, tokens: Sequence[str], glued: Sequence[bool]) -> str:
        """The text with its blanks filled. A token that continues the previous word removes the space before it."""
        text = self.pieces[0]
        for token, joins, after in zip(tokens, glued, self.pieces[1:], strict=True):
            text = (text.rstrip() if joins else text) + token + after
        return text


def mark_of(text: str, tokenizer: Tokenizer) -> str:
    """The mask token that this text uses."""
    marks = (tokenizer.special.mask, *WELL_KNOWN["mask"])
    return next((mark for mark in marks if mark in text), tokenizer.special.mask)


def read_blanks(text: str, tokenizer: Tokenizer) -> Blanks:
    """Tokens of a text and the positions of its blanks; refused if it has none."""
    mask = mark_of(text, tokenizer)
    pieces = re.split(re.escape(mask), text)
    if len(pieces) == 1:
        raise UsageError(f"nothing to fill: mark each blank of the text with {mask}")
    ids: list[int] = []
    words: list[int] = []
    places: list[int] = []
    before = 0  # words so far
    for number, piece in enumerate(pieces):
        if number:
            places.append(len(ids))
            ids.append(tokenizer.mask_id)
            words.append(before)
            before += 1
        # A space before a blank belongs to the blank: in byte-level vocabularies it is part of the word that follows.
        encoding = tokenizer.encode(piece.rstrip() if number < len(pieces) - 1 else piece)
        ids += encoding.ids.tolist()
        words += np.where(encoding.words == NO_WORD, NO_WORD, encoding.words + before).tolist()
        before += len(encoding.word_spans)
    return Blanks(tuple(pieces), np.array(ids, np.int64), np.array(words, np.int64), tuple(places))


def window(total: int, places: Sequence[int], room: int) -> tuple[int, int]:
    """A window of at most `room` of `total` tokens around the places, centred on them; they must fit into it.

    >>> window(100, [50], 11), window(100, [2], 11), window(100, [97, 99], 11), window(5, [2], 11)
    ((45, 56), (0, 11), (89, 100), (0, 5))
    """
    first, last = min(places), max(places) + 1
    start = first - (room - (last - first)) // 2
    start = max(0, min(start, total - room))
    return start, min(total, start + room)
