"""Passages of held-out text with hidden words, chosen by characters alone: what `yardstick.py` measures models on.

    yardstick = Yardstick.of(documents)
    yardstick.passages[0].hidden                    # 15% of its words, the same for every model, ever

A passage is whole sentences of one document, up to 64 words: what a model of short sequences can read at once. Which
passages, and which of their words, is a function of the text alone.
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

SEED = 0  # of passages and hidden words, whatever the seed of the training
RATE = 0.15
LONGEST, SHORTEST = 64, 8  # words of a passage; fewer give no context
PASSAGES = 1024  # about nine hidden words each


@dataclass(frozen=True)
class Passage:
    """Whole sentences of one document, and which of their words are hidden."""

    text: str
    words: tuple[tuple[int, int], ...]
    """Characters of the words that hold a letter or a digit."""
    hidden: tuple[int, ...]
    """Indices into `words`, ascending."""
    language: str = ""


@dataclass(frozen=True)
class Yardstick:
    passages: tuple[Passage, ...]

    @classmethod
    def of(
        cls, documents: Iterable[Document], *, language: str = "en", sentences: Mode = "library", limit: int = PASSAGES
    ) -> Yardstick:
        """Up to `limit` passages, drawn from the whole text in one reading; the same text gives the same ones."""
        drawn: list[tuple[int, int, str, str]] = []  # a heap: the passages with the smallest random numbers, negated
        for number, (text, spoken) in enumerate(_passages(documents, language, sentences)):
            entry = (-derive(SEED, "yardstick", 0, number), number, text, spoken)
            if len(drawn) < limit:
                heapq.heappush(drawn, entry)
            elif entry > drawn[0]:
                heapq.heapreplace(drawn, entry)
        chosen = sorted((number, text, spoken) for _, number, text, spoken in drawn)
        return cls(tuple(hide(text, number, language=spoken) for number, text, spoken in chosen))

    @property
    def languages(self) -> list[str]:
        """Of the passages, by alphabet."""
        return sorted({passage.language for passage in self.passages})

    @property
    def hidden(self) -> int:
        """Hidden words in all."""
        return sum(len(passage.hidden) for passage in self.passages)

    @cached_property
    def characters(self) -> int:
        """Characters of the hidden words."""
        return sum(len(word) for word in self._hidden_words())

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same passages with the same words hidden."""
        digest = hashlib.sha256()
        for passage in self.passages:
            digest.update(f"{passage.text}\x00{passage.hidden}\x00".encode(errors="surrogatepass"))
        return digest.hexdigest()

    @cached_property
    def guess(self) -> tuple[str, float]:
        """The most frequent visible word, and how many hidden words it would get right (case folded)."""
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


def hide(text: str, number: int, *, language: str = "") -> Passage:
    """Choose 15% of the words of passage number `number`, at least one; punctuation is never chosen: it is too easy."""
    spans = [(start, end) for start, end in segment_words(text).tolist() if any(map(str.isalnum, text[start:end]))]
    count = min(len(spans), max(1, round(RATE * len(spans))))
    chosen = stream(SEED, "yardstick/words", 0, number).choice(len(spans), size=count, replace=False) if spans else ()
    return Passage(text, tuple(spans), tuple(sorted(int(word) for word in chosen)), language)


def _passages(documents: Iterable[Document], language: str, mode: Mode) -> Iterator[tuple[str, str]]:
    """Sentences of each document, gathered up to `LONGEST` words; a longer sentence is cut, a short rest left out.

    Each with its language.
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
    """A sentence as stretches of at most `LONGEST` words: start, end, words."""
    spans = segment_words(text[first:last]) + first
    for k in range(0, len(spans), LONGEST):
        part = spans[k : k + LONGEST]
        yield int(part[0, 0]), int(part[-1, 1]), len(part)
