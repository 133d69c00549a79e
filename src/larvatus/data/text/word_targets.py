"""The word after each word, and the one before: what ELMo predicts. Words are those of a batch of characters.

Begin and end of a sentence are words too: from <s> the first word is predicted, from the last word </s>; the other way
round, from </s> the last word, from the first word <s>. No prediction crosses the border of a sequence. A word is
predicted from its neighbour's last character (or first), at which the neighbour's vector stands.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch
from larvatus.core.pretraining_targets import PlacedTokens
from larvatus.data.text.characters import Lexicon

A = TypeVar("A")


class NextWords(PlacedTokens[A]):
    """For each word but the last of its sequence: the one that follows."""

    what: ClassVar[str] = "the words that follow"
    of_words: ClassVar[bool] = True

    @classmethod
    def of_text(cls, tokens: TokenBatch[Ints], lexicon: Lexicon) -> NextWords[Ints]:
        words = lexicon.read(tokens)
        inside = np.flatnonzero(words.sequences[1:] == words.sequences[:-1])
        return NextWords(places=words.last[inside], ids=words.ids[inside + 1])


class PreviousWords(PlacedTokens[A]):
    """For each word but the first of its sequence: the one before it."""

    what: ClassVar[str] = "the words before"
    of_words: ClassVar[bool] = True

    @classmethod
    def of_text(cls, tokens: TokenBatch[Ints], lexicon: Lexicon) -> PreviousWords[Ints]:
        words = lexicon.read(tokens)
        inside = np.flatnonzero(words.sequences[1:] == words.sequences[:-1]) + 1
        return PreviousWords(places=words.first[inside], ids=words.ids[inside - 1])
