"""Tokens that are whole words at a blank: the candidates of `fill`, unless subwords are requested.

    allowed_tokens(tokenizer, "words")              # [V] words by form; "word-starts", "tokens": more
    known = abbreviations(tokenizer)                # ids of St, Mr, Dr …: words by form
    needs_period(log_V, other_V, known)             # those that are likely only because of the period after the blank

A token is a word by form if it begins one (`Ġ`, `▁`, no `##`), has a letter or a digit, and is a single word. The text
after the blank makes the model end the word there, with one exception: before a period, `St` may be the most likely
"word", as in *St. Louis*. A token is taken for such an abbreviation if both the sentence splitter, which has a list of
them, and the model say so: the model gives an abbreviation little probability if the sentence ends with an exclamation
mark. Probabilities are never renormalised: an excluded token keeps its share.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import regex
from torch import Tensor

from larvatus.data.text.sentences import split_sentences
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import ALONE, segment_words

Candidates = Literal["words", "word-starts", "tokens"]
PERIOD, OTHER_END = ".", "!"
LONGEST = 6
"""Characters of an abbreviation that a vocabulary has as one token."""
LESS = 1 / 3
"""An abbreviation keeps less than this share of its probability without its period. In 14 sentences, with the weights
packaged before these, St, Mr, Dr and initials kept 0.00 to 0.29 (once 0.38), and words that look like an abbreviation
(me, no, ill, May, art) 0.40 or more."""
_ALONE = regex.compile(ALONE)


def glued_tokens(tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
    """[V] tokens without a space before them, by the marker of the vocabulary."""
    if tokenizer.style in ("Ġ", "▁"):
        return np.array([not piece.startswith(tokenizer.style) for piece in tokenizer.tokens])
    return np.array([piece.startswith("##") for piece in tokenizer.tokens])


@lru_cache(maxsize=8)
def allowed_tokens(tokenizer: Tokenizer, candidates: Candidates) -> npt.NDArray[np.bool_]:
    """[V] tokens that may fill a blank; special tokens never do."""
    allowed = np.ones(tokenizer.size, dtype=np.bool_)
    if candidates != "tokens":
        glued = glued_tokens(tokenizer)
        allowed = ~glued
    if candidates == "words":
        surfaces = (tokenizer.decode([id]).strip() for id in range(tokenizer.size))
        allowed = np.array([_is_word(text, bool(g)) for text, g in zip(surfaces, glued, strict=True)], dtype=np.bool_)
    allowed[sorted(tokenizer.special_ids)] = False
    return allowed


def surface(tokenizer: Tokenizer, id: int) -> str:
    """A token in readable form; `##` stays."""
    return tokenizer.decode([id]).strip() or tokenizer.readable(tokenizer.token(id))


def _is_word(text: str, glued: bool) -> bool:
    """Whether a token is one word; characters of scripts without spaces are words anywhere."""
    if glued and not _ALONE.match(text):
        return False
    if text.isalnum():
        return True
    if "\ufffd" in text or not any(char.isalnum() for char in text):
        return False
    spans = segment_words(text)
    return len(spans) == 1 and (int(spans[0, 0]), int(spans[0, 1])) == (0, len(text))


@lru_cache(maxsize=8)
def abbreviations(tokenizer: Tokenizer, language: str = "en") -> npt.NDArray[np.int64]:
    """Ids of words that the sentence splitter of a language takes for abbreviations before a period."""
    words = ((int(id), surface(tokenizer, int(id))) for id in np.flatnonzero(allowed_tokens(tokenizer, "words")))
    known = [
        id
        for id, word in words
        if len(word) <= LONGEST and len(split_sentences(f"It is {word}{PERIOD} Paul was near.", language)) == 1
    ]
    return np.array(known, dtype=np.int64)


def without_periods(pieces: tuple[str, ...], mask: str) -> str | None:
    """The text (`Blanks.pieces`) with another sentence end right after its blanks; None if no period follows them.

    >>> without_periods(("It is ", ". So ", " is it."), "[MASK]")
    'It is [MASK]! So [MASK] is it.'
    """
    first, *after = pieces
    if not any(map(ends_sentence, after)):
        return None
    ends = (piece.replace(PERIOD, OTHER_END, 1) if ends_sentence(piece) else piece for piece in after)
    return mask.join([first, *ends])


def ends_sentence(after: str) -> bool:
    """Whether the text after a blank begins with a period."""
    after = after.lstrip(" ")
    return after.startswith(PERIOD) and not after.startswith(PERIOD * 2)


def needs_period(log_V: Tensor, other_V: Tensor, known: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Abbreviations whose log-probability falls if the sentence ends with another mark."""
    falls: npt.NDArray[np.bool_] = ((other_V[known] - log_V[known]).exp() < LESS).cpu().numpy()
    return np.compress(falls, known)
