"""Tagged text: sentences of words, some of which carry senses. What the readers of SemCor and of test sets give.

A word of WordNet may be several of the text ("primary election").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from larvatus.core.errors import DataError
from larvatus.data.text.archives import ARCHIVE_ERRORS
from larvatus.data.text.streams import open_bytes
from larvatus.inference.senses.pos import POS

Lemmas = tuple[tuple[str, POS], ...]

_PENN = {"``": '"', "''": '"', "-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
"""How treebanks write what encoders know as other characters."""


@dataclass(frozen=True)
class Instance:
    """A word of a sentence to be disambiguated, or that is."""

    start: int
    end: int
    """Its characters in the sentence."""
    lemmas: Lemmas
    """The lemmas that it may be a form of, with their parts of speech; tagged text says which one."""
    id: str = ""
    keys: tuple[str, ...] = ()
    """Sense keys, where they are known; several may be right."""


@dataclass(frozen=True)
class Sentence:
    document: str
    text: str
    instances: tuple[Instance, ...]
    start: int = 0
    """Where it begins in a text that it was cut from."""


class Words:
    """A sentence in the making, of words that come one by one: they are joined by spaces."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._size = 0
        self.instances: list[Instance] = []

    def __len__(self) -> int:
        return len(self._words)

    def add(self, word: str) -> tuple[int, int]:
        """The characters that the word has in the sentence."""
        start = self._size
        self._words.append(word)
        self._size += len(word) + 1
        return start, start + len(word)

    def sentence(self, document: str) -> Sentence:
        return Sentence(document, " ".join(self._words), tuple(self.instances))


@dataclass
class Reading:
    """What reading came across; grows while it goes on."""

    sentences: int = 0
    instances: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    """Keys that this WordNet has not, and how often they were met."""


def surface(word: str) -> str:
    """A word of a treebank as people write it: underscores are spaces, `` is a quotation mark, -LRB- a bracket."""
    return _PENN.get(word) or " ".join(part for part in word.split("_") if part) or word


@contextmanager
def lines_of(path: str) -> Iterator[Iterator[tuple[int, str]]]:
    """The numbered lines of a file, packed or not; what is no UTF-8 is refused by its line."""
    with open_bytes(path) as stream:
        yield numbered(path, stream)


def numbered(path: str, lines: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    """Lines with their numbers. A file that breaks off, or bytes that are no UTF-8, are refused by their place."""
    number = 0
    try:
        for line in lines:
            number += 1
            yield number, line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as fault:
        raise DataError(f"{path}:{number}: not UTF-8") from fault
    except ARCHIVE_ERRORS as fault:
        raise DataError(f"{path}:{number + 1}: the file breaks off here: {fault}") from fault
