"""Passages of held-out text with masked words, for word-level masked NLL (`word_nll.py`).

    passages = MaskedPassages.of(documents)
    passages.passages[0].hidden                    # 15% of its words, the same for every model

A passage consists of whole sentences of one document, up to 64 words, so that models with short contexts can read it.
Passages and masked words depend only on the text.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from larvatus.core.rng import derive, stream
from larvatus.data.text.readers import Document
from larvatus.data.text.sentences import Mode, sentence_spans
from larvatus.data.text.words import segment_words

SEED = 0  # of passages and masked words, independent of training seeds
RATE = 0.15
LONGEST, SHORTEST = 64, 8  # words per passage; fewer give no context
PASSAGES = 1024  # about nine masked words each


@dataclass(frozen=True)
class MaskedPassage:
    """Whole sentences of one document, some of whose words are masked."""

    text: str
    words: tuple[tuple[int, int], ...]
    """Character spans of the words that contain a letter or a digit."""
    hidden: tuple[int, ...]
    """Indices of the masked words in `words`, ascending."""
    language: str = ""


@dataclass(frozen=True)
class MaskedPassages:
    passages: tuple[MaskedPassage, ...]

    @classmethod
    def of(
        cls, documents: Iterable[Document], *, language: str = "en", sentences: Mode = "library", limit: int = PASSAGES
    ) -> MaskedPassages:
        """Sample up to `limit` passages in one pass over the text. The same text gives the same passages."""
        drawn: list[tuple[int, int, str, str]] = []  # a heap: the passages with the smallest random numbers, negated
        for number, (text, spoken) in enumerate(_passages(documents, language, sentences)):
            entry = (-derive(SEED, "yardstick", 0, number), number, text, spoken)
            if len(drawn) < limit:
                heapq.heappush(drawn, entry)
            elif entry > drawn[0]:
                heapq.heapreplace(drawn, entry)
        chosen = sorted((number, text, spoken) for _, number, text, spoken in drawn)
        return cls(tuple(mask_words(text, number, language=spoken) for number, text, spoken in chosen))

    @property
    def languages(self) -> list[str]:
        """Languages of the passages, sorted."""
        return sorted({passage.language for passage in self.passages})

    @property
    def hidden(self) -> int:
        """Total number of masked words."""
        return sum(len(passage.hidden) for passage in self.passages)

    @cached_property
    def characters(self) -> int:
        """Number of characters of the masked words."""
        return sum(len(word) for word in self._hidden_words())

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the passages and their masked words."""
        digest = hashlib.sha256()
        for passage in self.passages:
            digest.update(f"{passage.text}\x00{passage.hidden}\x00".encode(errors="surrogatepass"))
        return digest.hexdigest()

    @cached_property
    def guess(self) -> tuple[str, float]:
        """The most frequent visible word, and its accuracy as a constant prediction (case folded)."""
        seen = Counter(
            passage.text[start:end].casefold()
            for passage in self.passages
            for number, (start, end) in enumerate(passage.words)
            if number not in passage.hidden
        )
        if not seen:
            return "", 0.0
        word = min(seen, key=lambda w: (-seen[w], w))
        return word, sum(w.casefold() == word for w in self._hidden_words()) / max(self.hidden, 1)

    def _hidden_words(self) -> Iterator[str]:
        for passage in self.passages:
            for number in passage.hidden:
                start, end = passage.words[number]
                yield passage.text[start:end]


def mask_words(text: str, number: int, *, language: str = "") -> MaskedPassage:
    """Mask 15% of the words of passage `number`, at least one. Punctuation, which is easy, is never masked."""
    spans = [(start, end) for start, end in segment_words(text).tolist() if any(map(str.isalnum, text[start:end]))]
    count = min(len(spans), max(1, round(RATE * len(spans))))
    chosen = stream(SEED, "yardstick/words", 0, number).choice(len(spans), size=count, replace=False) if spans else ()
    return MaskedPassage(text, tuple(spans), tuple(sorted(int(word) for word in chosen)), language)


def _passages(documents: Iterable[Document], language: str, mode: Mode) -> Iterator[tuple[str, str]]:
    """Consecutive sentences of each document up to `LONGEST` words, with the language.

    Longer sentences are split. Remainders of fewer than `SHORTEST` words are dropped.
    """
    for document in documents:
        text, begin, end, count = document.text, 0, 0, 0
        spoken = document.language or language
        for first, last in sentence_spans(text, language=spoken, mode=mode):
            for start, stop, words in _cut(text, first, last):
                if count and count + words > LONGEST:
                    if count >= SHORTEST:
                        yield text[begin:end], spoken
                    count = 0
                begin = begin if count else start
                end, count = stop, count + words
        if count >= SHORTEST:
            yield text[begin:end], spoken


def _cut(text: str, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Segments of a sentence of at most `LONGEST` words: start, end, number of words."""
    spans = segment_words(text[first:last]) + first
    for k in range(0, len(spans), LONGEST):
        part = spans[k : k + LONGEST]
        yield int(part[0, 0]), int(part[-1, 1]), len(part)
