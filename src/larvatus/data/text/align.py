"""The aligner: characters ↔ words ↔ subwords. The word-span contract of the house; nothing else maps between them.

    found = align("Mt. Sanitas is in Sunshine Canyon.", tokenizer)
    found.tokens_of_word(2)          # range(2, 4): 'San', '##itas'
    found.word_of_token(3)           # 2
    found.chars_of_token(3)          # (7, 11)

What holds, for every kind of vocabulary and on hostile Unicode (property-tested):

- a token's characters are a span of the original Python string; spans never go backwards;
- a token belongs to the word of its first character that lies in a word; a token of only white space belongs to the
  word that starts where it ends (the lone ``▁`` or ``Ġ`` that opens a word); any other token has word -1;
- a word's tokens are contiguous: all that overlap its characters, ``[UNK]`` included. A token may serve two words
  (a two-character Chinese piece; ``'t``): it belongs to the first and covers both;
- a word that the vocabulary's own normalisation deletes whole (a lone accent under an accent-stripping vocabulary, a
  private-use character under BERT's) has an empty range, placed where its tokens would have been, and is listed by
  `Alignment.uncovered`: a caller that needs a vector or a tag for every word must look there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Ints
from larvatus.core.errors import DataError
from larvatus.data.text.words import is_space, segment_words


@dataclass(frozen=True, eq=False)
class Alignment:
    """One text, its T tokens and its W words, and the maps between them."""

    text: str
    ids: Ints
    """[T] ids of the tokens; no special tokens are added."""
    spans: Ints
    """[T, 2] characters of each token, start and end, in `text`."""
    words: Ints
    """[T] word of each token, -1 for none."""
    word_spans: Ints
    """[W, 2] characters of each word."""
    word_tokens: Ints
    """[W, 2] tokens of each word, start and end."""

    def __len__(self) -> int:
        return len(self.ids)

    def word_of_token(self, token: int) -> int:
        return int(self.words[token])

    def tokens_of_word(self, word: int) -> range:
        start, end = self.word_tokens[word].tolist()
        return range(start, end)

    def chars_of_token(self, token: int) -> tuple[int, int]:
        start, end = self.spans[token].tolist()
        return start, end

    def chars_of_word(self, word: int) -> tuple[int, int]:
        start, end = self.word_spans[word].tolist()
        return start, end

    def word_text(self, word: int) -> str:
        start, end = self.word_spans[word].tolist()
        return self.text[start:end]

    def tokens_of_chars(self, start: int, end: int) -> range:
        """Tokens that overlap the characters [start, end)."""
        low, high = _overlapping(self.spans, np.asarray([[start, end]]))[0].tolist()
        return range(low, high)

    def marked_tokens_of_chars(self, start: int, end: int) -> range:
        """The same with a lone mark of a space (`▁`) before them: it is of their word, and tells how that is cut."""
        tokens, word = self.tokens_of_chars(start, end), self.words_of_chars(start, end).start
        first = tokens.start
        while first > 0 and self.words[first - 1] == word:
            first -= 1
        return range(first, tokens.stop)

    def words_of_chars(self, start: int, end: int) -> range:
        """Words that overlap the characters [start, end)."""
        low, high = _overlapping(self.word_spans, np.asarray([[start, end]]))[0].tolist()
        return range(low, high)

    def token_at(self, char: int) -> int | None:
        """The first token that covers a character; None between tokens."""
        found = self.tokens_of_chars(char, char + 1)
        return found.start if found else None

    @property
    def word_starts(self) -> npt.NDArray[np.bool_]:
        """[T] whether a token opens a new word; a token of no word opens one too."""
        return starts_of(self.words)

    @property
    def uncovered(self) -> list[int]:
        """Words that no token covers: those that normalisation deletes whole."""
        return np.flatnonzero(self.word_tokens[:, 0] >= self.word_tokens[:, 1]).tolist()


class Encodes(Protocol):
    """What the aligner needs of a tokenizer."""

    def encode_spans(self, text: str, *, special_tokens_in_text: bool = False) -> tuple[Ints, Ints]: ...


def align(
    text: str,
    tokenizer: Encodes,
    words: Sequence[tuple[int, int]] | None = None,
    *,
    special_tokens_in_text: bool = False,
) -> Alignment:
    """Encode a text and align it with its own words (`segment_words`) or with the spans that the caller gives."""
    ids, spans = tokenizer.encode_spans(text, special_tokens_in_text=special_tokens_in_text)
    word_spans = segment_words(text) if words is None else _checked(words, len(text))
    return align_spans(text, ids, spans, word_spans)


def align_words(words: Sequence[str], tokenizer: Encodes) -> Alignment:
    """Encode words that come already cut (CoNLL rows), joined by single spaces; word i of the result is words[i].

    >>> # align_words(["Mt.", "Sanitas", "is", "in", "Sunshine", "Canyon", "."], tokenizer).tokens_of_word(0)
    """
    text, spans = join_words(words)
    return align_spans(text, *tokenizer.encode_spans(text), spans)


def join_words(words: Sequence[str]) -> tuple[str, Ints]:
    """The text that words make with single spaces between them, and the characters of each: [W, 2].

    >>> join_words(["Mt.", "Sanitas"])[0]
    'Mt. Sanitas'
    """
    spans, start = [], 0
    for index, word in enumerate(words):
        if not word or word.isspace():
            raise DataError(f"word {index + 1} of {len(words)} is empty; drop it, or give it a visible character")
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return " ".join(words), np.asarray(spans, dtype=np.int64).reshape(-1, 2)


def align_spans(text: str, ids: Ints, spans: Ints, word_spans: Ints) -> Alignment:
    """The maps, from the spans of tokens and the spans of words."""
    words = words_of_tokens(text, spans, word_spans)
    return Alignment(text, ids, spans, words, word_spans, _overlapping(spans, word_spans))


def words_of_tokens(text: str, spans: Ints, word_spans: Ints) -> Ints:
    """[T] word of each token: that of its first character that lies in a word, see the head of this file."""
    size = len(text)
    word_of_char = np.full(size + 1, -1, dtype=np.int64)
    lengths = word_spans[:, 1] - word_spans[:, 0]
    inside = np.repeat(word_spans[:, 0] - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
    word_of_char[inside] = np.repeat(np.arange(len(word_spans)), lengths)
    # the nearest character at or after each one that lies in a word
    place = np.where(word_of_char >= 0, np.arange(size + 1), size + 1)
    next_inside = np.append(np.minimum.accumulate(place[::-1])[::-1], size + 1)
    start, end = spans[:, 0], spans[:, 1]
    first = next_inside[start]
    blank_up_to = np.concatenate([[0], np.cumsum(~is_space(text))])
    only_space = (blank_up_to[end] == blank_up_to[start]) & (end > start)
    found = (first < end) | (only_space & (first == end))
    return np.where(found, word_of_char[np.minimum(first, size)], -1)


def starts_of(words: Ints) -> npt.NDArray[np.bool_]:
    """[T] True where a token's word differs from that of the token before it, or is none."""
    starts = np.ones(len(words), dtype=np.bool_)
    starts[1:] = (words[1:] != words[:-1]) | (words[1:] < 0)
    return starts


def _overlapping(spans: Ints, wanted: Ints) -> Ints:
    """[W, 2] range of the spans (ordered, [T, 2]) that overlap each wanted span [W, 2]; empty where none does."""
    low = np.searchsorted(spans[:, 1], wanted[:, 0], side="right")
    high = np.searchsorted(spans[:, 0], wanted[:, 1], side="left")
    return np.stack([low, np.maximum(low, high)], axis=1).astype(np.int64)


def _checked(words: Sequence[tuple[int, int]], size: int) -> Ints:
    spans = np.asarray(words, dtype=np.int64).reshape(-1, 2)
    ordered = (spans[1:, 0] >= spans[:-1, 1]).all()
    if not ordered or (spans[:, 0] >= spans[:, 1]).any() or (len(spans) and (spans[0, 0] < 0 or spans[-1, 1] > size)):
        raise DataError(f"word spans must be non-empty, in order, apart, and inside the text (0 to {size})")
    return spans
