"""Instances of words in a corpus, each with its sentence.

    sample = find_instances(documents, ["bank"], FindOptions(limit=2_000))
    sample.instances[0].text, sample.instances[0].start, sample.total

Words are those of the aligner (`data/text/words.py`), in any case unless `cased`; "New York" is two words in a row. Of
more instances than the limit, a sample is kept: each instance has a random number f(seed, number), and the smallest
ones stay, so that the sample does not depend on how the corpus is read. Words and languages share the limit equally; a
rare one keeps all its instances.
"""

from __future__ import annotations

import difflib
import heapq
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from larvatus.core.errors import DataError, UsageError
from larvatus.core.ranges import Count, Seed
from larvatus.core.rng import random_bits
from larvatus.core.settings import Settings
from larvatus.data.text.documents import Document
from larvatus.data.text.words import Mode, segment_words, sentence_spans
from larvatus.inference.vectors.passages import breaks_lines

Group = TypeVar("Group")
_BLOCK = 4_096
_LONG = 800
"""Characters of an unusually long sentence: the splitter may have missed its end among quotation marks."""
_STOP = re.compile(r"(?:(?<![.!?…])[.!?…]++[\"'”’»)\]]*+\s+|[。！？]|\n)")  # a run of stops is scanned once
_SPELLINGS = 4_000_000
"""Characters of text whose words are kept, to suggest spellings for a word that does not occur."""


class FindOptions(Settings):
    limit: Count = 2_000
    """Most instances, in total."""
    cased: bool = False
    """Whether *Bank* is another word than *bank*."""
    language: str = "en"
    """Language of texts that do not name theirs, for sentence splitting."""
    sentences: Mode = "library"
    """Sentence splitter."""
    seed: Seed = 0
    """Seed of the sample."""


@dataclass(frozen=True, slots=True)
class CorpusInstance:
    word: str
    """Word as requested."""
    text: str
    """Its sentence."""
    start: int
    """Characters of the word in the sentence."""
    end: int
    source: str
    line: int
    language: str | None = None
    label: str | None = None
    """Label of the record: its sense, for instance."""


@dataclass(frozen=True, eq=False)
class InstanceSample:
    instances: list[CorpusInstance]
    """In the order of the corpus."""
    totals: dict[tuple[str, str], int]
    """Instances in the corpus, by word and language, including those outside the sample."""
    documents: int

    @property
    def total(self) -> int:
        return sum(self.totals.values())


def find_instances(documents: Iterable[Document], words: Sequence[str], options: FindOptions) -> InstanceSample:
    """All instances of the words, or a sample. A word that does not occur is refused, with similar words that do."""
    if options.limit < 1:
        raise UsageError(f"a map needs a limit of at least 3 instances, not {options.limit}")
    targets = _targets(words, cased=options.cased)
    sample = _Sample(options.limit, options.seed)
    spellings = _Spellings()
    count = 0
    for count, document in enumerate(documents, start=1):  # noqa: B007
        spellings.add(document.text)
        for instance in _in_document(document, targets, options):
            sample.add(instance, document.language or options.language)
    if not count:
        raise DataError("the corpus holds no text; name files with text in them")
    for word in targets.values():
        if not any(total for (counted, _), total in sample.totals.items() if counted == word):
            near = spellings.near(word)
            suggestion = f"; near it are {', '.join(near)}" if near else "; check the spelling"
            raise DataError(f"{word!r} is not among the words of the corpus{suggestion}")
    return InstanceSample(sample.kept(), dict(sample.totals), count)


Targets = Mapping[tuple[str, ...], str]
"""From the folded words of a requested term to the term."""


def _targets(words: Sequence[str], *, cased: bool) -> Targets:
    targets: dict[tuple[str, ...], str] = {}
    for word in words:
        parts = tuple(_fold(word[start:end], cased) for start, end in segment_words(word).tolist())
        if not parts:
            raise UsageError(f"{word!r} is not a word; name one such as bank")
        targets.setdefault(parts, word)
    if not targets:
        raise UsageError("no word was named; name one such as bank")
    return targets


def _fold(text: str, cased: bool) -> str:
    return text if cased else text.casefold()


def _in_document(document: Document, targets: Targets, options: FindOptions) -> Iterator[CorpusInstance]:
    firsts = {parts[0] for parts in targets}
    folded = _fold(document.text, options.cased)
    if not any(first in folded for first in firsts):
        return
    language = document.language or options.language
    lines = breaks_lines(document)
    for begin, stop in _sentences(document.text, language, options.sentences):
        sentence = document.text[begin:stop].strip()
        before = document.text.find(sentence, begin)
        folded = _fold(sentence, options.cased)
        if not any(first in folded for first in firsts):
            continue
        spans = segment_words(sentence).tolist()
        units = [_fold(sentence[start:end], options.cased) for start, end in spans]
        for place in range(len(units)):
            if units[place] not in firsts:
                continue
            for parts, word in targets.items():
                if tuple(units[place : place + len(parts)]) == parts:
                    yield CorpusInstance(
                        word=word,
                        text=sentence,
                        start=spans[place][0],
                        end=spans[place + len(parts) - 1][1],
                        source=document.source,
                        line=document.line + (document.text.count("\n", 0, before + spans[place][0]) if lines else 0),
                        language=document.language,
                        label=document.label,
                    )


def _sentences(text: str, language: str, mode: Mode) -> Iterator[tuple[int, int]]:
    """Sentences; unusually long ones are split again, at every full stop and line break."""
    for begin, stop in sentence_spans(text, language=language, mode=mode):
        if stop - begin > _LONG:
            for match in _STOP.finditer(text, begin, stop):
                yield begin, match.end()
                begin = match.end()
        if begin < stop:
            yield begin, stop


class _Sample:
    """The instances with the smallest random numbers, of each word and language."""

    def __init__(self, limit: int, seed: int) -> None:
        self._limit = limit
        self._numbers = _numbers(seed)
        self._heaps: dict[tuple[str, str], list[tuple[int, int, CorpusInstance]]] = {}
        self._count = 0
        self.totals: Counter[tuple[str, str]] = Counter()

    def add(self, instance: CorpusInstance, language: str) -> None:
        group = instance.word, language
        self.totals[group] += 1
        self._count += 1
        heap = self._heaps.setdefault(group, [])
        entry = (-next(self._numbers), -self._count, instance)
        if len(heap) < self._limit:
            heapq.heappush(heap, entry)
        else:
            heapq.heappushpop(heap, entry)

    def kept(self) -> list[CorpusInstance]:
        shares = allot({group: len(heap) for group, heap in self._heaps.items()}, self._limit)
        chosen = [entry for group, heap in self._heaps.items() for entry in heapq.nlargest(shares[group], heap)]
        return [instance for _, _, instance in sorted(chosen, key=lambda entry: -entry[1])]


def _numbers(seed: int) -> Iterator[int]:
    for block in itertools.count():
        items = np.arange(block * _BLOCK, (block + 1) * _BLOCK)
        yield from random_bits(seed, "map", items=items, draws=np.zeros_like(items))[0].tolist()


def allot(sizes: Mapping[Group, int], limit: int) -> dict[Group, int]:
    """Number of instances of each group that are kept: an equal share, or all of a small group.

    >>> allot({"en": 10, "de": 500}, 100)
    {'en': 10, 'de': 90}
    """
    left, shares = limit, dict[Group, int]()
    for rank, (group, size) in enumerate(sorted(sizes.items(), key=lambda item: item[1])):
        shares[group] = min(size, left // (len(sizes) - rank))
        left -= shares[group]
    return {group: shares[group] for group in sizes}


@dataclass
class _Spellings:
    """Words of the first part of a corpus."""

    words: Counter[str] = field(default_factory=Counter)
    left: int = _SPELLINGS

    def add(self, text: str) -> None:
        if self.left > 0:
            self.words.update(re.findall(r"[^\W\d_]+", text[: self.left]))
            self.left -= len(text)

    def near(self, word: str) -> list[str]:
        alike = [other for other in self.words if abs(len(other) - len(word)) <= 2]
        return difflib.get_close_matches(word, alike, n=3, cutoff=0.7)
