"""Which text of a corpus is held out for validation: whole documents where there are many, else passages.

    split = ValidationSplit.of(documents(), length=128)        # one reading: counts and a checksum
    split.training(documents()), split.held_out(documents())   # two streams that share no sentence

Every language has a part of its own, found by the same rule from its own text:

- Of a hundred documents or more, every fiftieth is held out.
- Of fewer, two passages or more of about 2% of the characters in all, at equal distances over the documents laid end to
  end. Neighbouring sentences share names and topics, so a gap before and after each passage is left out of both
  streams: as many characters as the longest sequence can hold (8 a token). Streams are cut between sentences only;
  what remains of a document on either side of a cut is a document of its own.
- Where passages and gaps would take more than a quarter of the text, nothing is held out, and `without` names the
  language.

No randomness, and no dependence on workers or on where a run was stopped: the same text is split the same way.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

import msgspec

from larvatus.core.errors import DataError
from larvatus.core.settings import Settings
from larvatus.data.text.documents import Document
from larvatus.data.text.words import Mode, sentence_spans

EVERY = 50
MANY = 2 * EVERY
"""Documents from which on whole ones are held out."""
CHARACTERS = 8
"""Generous estimate of the characters of a word and the space before it: English has 6, German 7."""
MOST = 0.25
"""Share of a text that passages and their gaps may take."""
FEWEST = 2
"""Passages of a language: a random sentence pair is of two of them."""

Part = Literal["training", "held out", "gap"]
Span = tuple[int, int]


class LanguageSplit(Settings):
    """What one language has, and so how it is split."""

    documents: int
    characters: int
    gap: int
    """Characters left out before and after a passage."""

    @property
    def whole(self) -> bool:
        """Whether whole documents are held out."""
        return self.documents >= MANY

    @property
    def least(self) -> int:
        """Characters that this language must have before passages are held out."""
        return round(FEWEST * 3 * self.gap / MOST)

    @property
    def passages(self) -> int:
        """Passages of about eight gaps' length; none of a text that is too short."""
        if self.whole or self.characters < self.least:
            return 0
        return max(FEWEST, round(self.characters / EVERY / (8 * self.gap)))

    @property
    def length(self) -> int:
        """Characters of a passage, at least as many as of a gap."""
        return max(self.gap, self.characters // EVERY // max(1, self.passages))

    @property
    def nothing(self) -> bool:
        return not (self.whole or self.passages)

    def passage_near(self, start: int, end: int) -> Iterator[Span]:
        """The passages, as characters of the whole text, that reach with their gaps into a stretch of it."""
        distance = self.characters / max(1, self.passages)
        reach = self.length / 2 + self.gap
        first = max(0, int((start - reach) / distance - 0.5))
        for number in range(first, self.passages):
            begin = round((number + 0.5) * distance - self.length / 2)
            if begin - self.gap >= end:
                return
            if begin + self.length + self.gap > start:
                yield begin, begin + self.length

    def __str__(self) -> str:
        if self.whole:
            return f"every fiftieth of {self.documents:,} documents"
        if not self.passages:
            return f"nothing ({self.characters:,} characters; {self.least:,} are needed)"
        share = self.passages * self.length / self.characters
        return (
            f"{self.passages:,} passages of {self.length:,} characters ({share:.1%} of the text; "
            f"the {self.gap:,} before and after are not trained on)"
        )


class ValidationSplit(Settings):
    """How a text is split; stored as JSON with the run."""

    languages: dict[str, LanguageSplit]
    language: str
    """Language of documents that name none."""
    sentences: Mode
    text_sha256: str
    """Checksum of all documents: a split belongs to one text."""

    @classmethod
    def of(
        cls, documents: Iterable[Document], *, length: int, language: str = "en", sentences: Mode = "library"
    ) -> ValidationSplit:
        """Read the text once; `length` is the number of tokens of the longest sequence of the training."""
        counts: Counter[str] = Counter()
        characters: Counter[str] = Counter()
        digest = hashlib.sha256()
        for document in documents:
            name = document.language or language
            counts[name] += 1
            characters[name] += len(document.text)
            digest.update(f"{name}\x00{len(document.text)}\x00".encode(errors="surrogatepass"))
            digest.update(document.text.encode(errors="surrogatepass"))
        gap = CHARACTERS * length
        splits = {
            name: LanguageSplit(documents=counts[name], characters=characters[name], gap=gap) for name in sorted(counts)
        }
        return cls(languages=splits, language=language, sentences=sentences, text_sha256=digest.hexdigest())

    @property
    def without(self) -> tuple[str, ...]:
        """Languages of which nothing is held out."""
        return tuple(name for name, split in self.languages.items() if split.nothing)

    @property
    def nothing(self) -> bool:
        return len(self.without) == len(self.languages)

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    def __str__(self) -> str:
        if len(self.languages) == 1:
            return str(*self.languages.values())
        return " · ".join(f"{name}: {split}" for name, split in self.languages.items())

    def training(self, documents: Iterable[Document]) -> Iterator[Document]:
        return self._stream(documents, "training")

    def held_out(self, documents: Iterable[Document]) -> Iterator[Document]:
        return self._stream(documents, "held out")

    def _stream(self, documents: Iterable[Document], wanted: Part) -> Iterator[Document]:
        seen: Counter[str] = Counter()  # documents of each language so far …
        place: Counter[str] = Counter()  # … and their characters
        for document in documents:
            name = document.language or self.language
            split = self.languages.get(name)
            if split is None:
                raise DataError(f"{document.source} changed while it was read: its language {name} is new; start again")
            seen[name] += 1
            start, place[name] = place[name], place[name] + len(document.text)
            if split.whole:
                part: Part = "held out" if seen[name] % EVERY == 0 else "training"
                if part == wanted:
                    yield document
                continue
            passages = list(split.passage_near(start, place[name]))
            if not passages:
                if wanted == "training":
                    yield document
                continue
            for first, last in self._stretches(document, split, start, passages)[wanted]:
                yield replace(document, text=document.text[first:last])

    def _stretches(
        self, document: Document, split: LanguageSplit, start: int, passages: list[Span]
    ) -> dict[Part, list[Span]]:
        """A document's characters in stretches of whole sentences, by what becomes of them."""
        stretches: dict[Part, list[Span]] = {"training": [], "held out": [], "gap": []}
        before: Part | None = None
        language = document.language or self.language
        for first, last in sentence_spans(document.text, language=language, mode=self.sentences):
            for begin, end in _cut(document.text, first, last, split.length // 2):
                part = _part(start + begin, start + end, passages, split.gap)
                if part == before:
                    stretches[part][-1] = (stretches[part][-1][0], end)
                else:
                    stretches[part].append((begin, end))
                before = part
        return stretches


def _part(start: int, end: int, passages: list[Span], gap: int) -> Part:
    """Text within a passage is held out; text at least a gap away from all of them is trained on."""
    if any(first <= start and end <= last for first, last in passages):
        return "held out"
    apart = all(end <= first - gap or start >= last + gap for first, last in passages)
    return "training" if apart else "gap"


def _cut(text: str, start: int, end: int, most: int) -> Iterator[Span]:
    """A sentence, or where it is no sentence (a text without full stops) parts of it, at spaces where there are any."""
    while end - start > most:
        space = text.rfind(" ", start + most // 2, start + most)
        cut = space + 1 if space >= 0 else start + most
        yield start, cut
        start = cut
    yield start, end
