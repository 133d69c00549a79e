"""Sense-tagged text: sentences of words, some of which have senses, and its two formats.

    sentences = list(read_unified("senseval2.data.xml.xz"))
    gold = read_keys("senseval2.gold.key.txt.xz")
    for sentence in read_semcor("semcor.tar.xz", wordnet, reading): …

A word of WordNet can be several words of the text ("primary election"). The **unified evaluation framework** (Raganato
et al. 2017) has sentences in XML, with the answers in a second file:

    <sentence id="d000.s000"> <wf lemma="the" pos="DET">The</wf>
    <instance id="d000.s000.t000" lemma="art" pos="NOUN">art</instance> … </sentence>            senseval2.data.xml
    d000.s000.t000 art%1:09:00::                                                            senseval2.gold.key.txt

**SemCor** (Miller et al. 1994) is running text in its original SGML-like format:

    <wf cmd=done pos=VB lemma=say wnsn=1 lexsn=2:32:00::>said</wf>

The input is a folder (read recursively) or an archive of it; attributes may have quotation marks. The sense key is
`lemma%lexsn`; several tags are joined by `;` and all count. Keys that the given WordNet does not have are skipped and
counted. Names are tagged by their class (`pn=person`, the sense of the word *person*): they say nothing about the use
of that word, and are skipped unless `names=True`.
"""

from __future__ import annotations

import html
import io
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from xml.parsers import expat

from larvatus.core.errors import DataError
from larvatus.data.text.archives import ARCHIVE_ERRORS
from larvatus.data.text.readers import list_whole_folder
from larvatus.data.text.streams import open_bytes
from larvatus.inference.senses.wordnet import POS, WordNet

Lemmas = tuple[tuple[str, POS], ...]

_PENN = {"``": '"', "''": '"', "-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
"""Treebank escapes and the characters they represent."""


@dataclass(frozen=True)
class SenseInstance:
    """A word of a sentence, disambiguated or to be disambiguated."""

    start: int
    end: int
    """Its characters in the sentence."""
    lemmas: Lemmas
    """Lemmas that it may be a form of, with their parts of speech; tagged text names one."""
    id: str = ""
    keys: tuple[str, ...] = ()
    """Sense keys, if they are known; several may be right."""


@dataclass(frozen=True)
class SenseSentence:
    document: str
    text: str
    instances: tuple[SenseInstance, ...]
    start: int = 0
    """Character at which it begins in the original text."""


class SentenceBuilder:
    """Builds a sentence word by word; words are joined by spaces."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._size = 0
        self.instances: list[SenseInstance] = []

    def __len__(self) -> int:
        return len(self._words)

    def add(self, word: str) -> tuple[int, int]:
        """Add a word; returns its characters in the sentence."""
        start = self._size
        self._words.append(word)
        self._size += len(word) + 1
        return start, start + len(word)

    def sentence(self, document: str) -> SenseSentence:
        return SenseSentence(document, " ".join(self._words), tuple(self.instances))


@dataclass
class ReadingCounts:
    """Counters of a reader, updated while it reads."""

    sentences: int = 0
    instances: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    """Keys that this WordNet does not have, with their counts."""


def surface(word: str) -> str:
    """A treebank word in normal spelling: underscores are spaces, `` is a quotation mark, -LRB- a bracket."""
    return _PENN.get(word) or " ".join(part for part in word.split("_") if part) or word


@contextmanager
def lines_of(path: str) -> Iterator[Iterator[tuple[int, str]]]:
    """The numbered lines of a file, compressed or not; invalid UTF-8 is refused with its line."""
    with open_bytes(path) as stream:
        yield numbered(path, stream)


def numbered(path: str, lines: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    """Lines with their numbers. A truncated file and invalid UTF-8 are refused with their place."""
    number = 0
    try:
        for line in lines:
            number += 1
            yield number, line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as fault:
        raise DataError(f"{path}:{number}: not UTF-8") from fault
    except ARCHIVE_ERRORS as fault:
        raise DataError(f"{path}:{number + 1}: the file ends here: {fault}") from fault


TAGS: dict[str, POS] = {"NOUN": "n", "VERB": "v", "ADJ": "a", "ADV": "r"}
_BLOCK = 1 << 16


def read_unified(path: str | Path) -> Iterator[SenseSentence]:
    """The sentences of a `.data.xml` file, compressed or not, each with the words to disambiguate."""
    name = str(path)
    reader = _Reader(name)
    with open_bytes(name) as stream:
        try:
            while block := stream.read(_BLOCK):
                reader.parser.Parse(block)
                yield from reader.taken()
            reader.parser.Parse(b"", True)
        except expat.ExpatError as fault:
            raise DataError(f"{name}:{fault.lineno}: broken XML: {expat.errors.messages[fault.code]}") from fault
        except ARCHIVE_ERRORS as fault:
            raise DataError(f"{name}: the file is incomplete: {fault}") from fault
    yield from reader.taken()
    if not reader.seen:
        raise DataError(f"{name} has no <sentence>; expected a .data.xml file of the unified evaluation framework")


def read_keys(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Answers of a person or of a system: `id key [key …]` per line."""
    keys: dict[str, tuple[str, ...]] = {}
    with lines_of(str(path)) as lines:
        for number, line in lines:
            parts = line.split()
            if not parts:
                continue
            if len(parts) < 2 or "%" not in parts[1]:
                raise DataError(f"{path}:{number}: not an id and its sense keys: {line[:60]}")
            keys[parts[0]] = tuple(dict.fromkeys((*keys.get(parts[0], ()), *parts[1:])))
    if not keys:
        raise DataError(f"{path} holds no answers; a line is an id and its sense keys")
    return keys


def gold_of(path: str | Path) -> Path:
    """The gold answers next to a `.data.xml` file."""
    data = Path(path)
    stem, mark, packed = data.name.partition(".data.xml")
    candidates = [data.with_name(f"{stem}.gold.key.txt{end}") for end in dict.fromkeys((packed, "", ".xz", ".gz"))]
    for file in candidates:
        if mark and file.exists():
            return file
    raise DataError(f"{candidates[0]} is not there; put the answers next to {data.name}, or name them with --gold")


class _Reader:
    """Collects the elements of expat; sentences wait in `_done` until they are taken."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen = 0
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.EntityDeclHandler = self._entity
        self._done: list[SenseSentence] = []
        self._document = ""
        self._words = SentenceBuilder()
        self._ids: set[str] = set()
        self._open: dict[str, str] | None = None
        self._pieces: list[str] = []

    def taken(self) -> list[SenseSentence]:
        done, self._done = self._done, []
        return done

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "text":
            self._document = attributes.get("id", "")
        elif tag == "sentence":
            self._words = SentenceBuilder()
        elif tag in ("wf", "instance"):
            self._open, self._pieces = attributes, []

    def _text(self, text: str) -> None:
        self._pieces.append(text)

    def _end(self, tag: str) -> None:
        if tag == "sentence":
            self.seen += 1
            if len(self._words):
                self._done.append(self._words.sentence(self._document))
        elif tag in ("wf", "instance") and self._open is not None:
            word = "".join(self._pieces).strip()
            span = self._words.add(surface(word)) if word else None
            if tag == "instance":
                self._words.instances.append(self._instance(self._open, span))
            self._open = None

    def _instance(self, attributes: dict[str, str], span: tuple[int, int] | None) -> SenseInstance:
        missing = [name for name in ("id", "lemma", "pos") if not attributes.get(name)]
        if missing or span is None:
            raise self._fault(f"an instance without {', '.join(missing) or 'a word'}")
        if attributes["pos"] not in TAGS:
            raise self._fault(f"an instance has pos {attributes['pos']!r}; there are: {', '.join(TAGS)}")
        if attributes["id"] in self._ids:
            raise self._fault(f"the id {attributes['id']} comes twice")
        self._ids.add(attributes["id"])
        lemma = attributes["lemma"].lower().replace(" ", "_")
        return SenseInstance(*span, ((lemma, TAGS[attributes["pos"]]),), attributes["id"])

    def _entity(self, *_: object) -> None:
        raise self._fault("the file declares entities, which no set of the framework does; they are not expanded")

    def _fault(self, what: str) -> DataError:
        return DataError(f"{self.name}:{self.parser.CurrentLineNumber}: {what}")


# SemCor.

_END = bytes(1024)
"""The end of every tar archive."""
_ELEMENT = re.compile(
    r"\s*(?:<(?P<tag>wf|punc)(?P<attributes>(?:\s[^<>]*)?)>(?P<word>[^<>]*)</(?P=tag)>"
    r"|<(?P<mark>/?(?:contextfile|context|p|s))(?:\s[^<>]*)?>)\s*"
)
_ATTRIBUTE = re.compile(r"""(?<!\s)\s++([\w-]+)=(?:"([^"]*)"|'([^']*)'|([^\s"']+))""")


def read_semcor(
    path: str | Path, wordnet: WordNet, reading: ReadingCounts, *, names: bool = False
) -> Iterator[SenseSentence]:
    """The sentences of SemCor that have a tagged word, file by file."""
    for name, stream in _files(Path(path)):
        yield from _sentences(name, numbered(name, stream), wordnet, reading, names)


def _files(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if path.is_dir():
        tagged = [file for file in list_whole_folder(path) if _is_semcor(file)]
        if not tagged:
            raise DataError(f"{path} holds no file of SemCor (they begin with <contextfile>); check the path")
        for file in tagged:
            with open_bytes(str(file)) as stream:
                yield str(file), stream
    elif ".tar" in path.name:
        with open_bytes(str(path)) as stream:
            yield from _members(path, _TailStream(stream))
    else:
        with open_bytes(str(path)) as stream:
            yield str(path), stream


class _TailStream(io.RawIOBase):
    """A stream that remembers its last bytes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.last = stream, b""

    def read(self, size: int | None = -1, /) -> bytes:
        chunk = self._stream.read(-1 if size is None else size)
        self.last = (self.last + chunk)[-len(_END) :]
        return chunk


def _members(path: Path, stream: _TailStream) -> Iterator[tuple[str, IO[bytes]]]:
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                inside = archive.extractfile(member) if member.isfile() and member.size else None
                if inside:
                    yield f"{path}/{member.name}", inside
        while stream.read(1 << 16):  # a file that ends after its last member is truncated, too
            pass
    except (OSError, tarfile.TarError, EOFError) as fault:
        raise DataError(f"{path} cannot be read as an archive of SemCor: {fault}") from fault
    if stream.last != _END:
        raise DataError(f"{path} is an incomplete archive; download it again")


def _is_semcor(path: Path) -> bool:
    with open_bytes(str(path)) as stream:
        return stream.read(64).lstrip().startswith(b"<contextfile")


def _sentences(
    name: str, lines: Iterator[tuple[int, str]], wordnet: WordNet, reading: ReadingCounts, names: bool
) -> Iterator[SenseSentence]:
    words = SentenceBuilder()
    for number, line in lines:
        for element in _elements(name, number, line):
            if element["mark"] == "/s":
                if words.instances:
                    reading.sentences += 1
                    reading.instances += len(words.instances)
                    yield words.sentence(name)
                words = SentenceBuilder()
            elif element["mark"] is None and (word := html.unescape(element["word"].strip())):
                span = words.add(surface(word))
                keys = _keys(f"{name}:{number}", element["attributes"] or "", wordnet, reading, names)
                senses = [sense for key in keys if (sense := wordnet.sense(key))]
                if senses:
                    lemmas = tuple(dict.fromkeys((sense.lemma, sense.pos) for sense in senses))
                    words.instances.append(SenseInstance(*span, lemmas, keys=keys))
    if len(words):
        raise DataError(f"{name}: the file ends within a sentence; download SemCor again")


def _elements(name: str, number: int, line: str) -> Iterator[re.Match[str]]:
    place = 0
    while line[place:].strip():
        element = _ELEMENT.match(line, place)
        if element is None:
            raise DataError(f"{name}:{number}: not an element of SemCor: {line[place:].strip()[:60]}")
        yield element
        place = element.end()


def _keys(where: str, written: str, wordnet: WordNet, reading: ReadingCounts, names: bool) -> tuple[str, ...]:
    """The sense keys of a word that WordNet has; others are counted."""
    attributes = {match[1]: match[2] or match[3] or match[4] or "" for match in _ATTRIBUTE.finditer(written)}
    if "lexsn" not in attributes or ("pn" in attributes and not names):
        return ()
    if "lemma" not in attributes:
        raise DataError(f"{where}: a word has lexsn={attributes['lexsn']} but no lemma")
    keys = [f"{attributes['lemma'].lower()}%{sense}" for sense in attributes["lexsn"].split(";")]
    reading.unknown.update(key for key in keys if key not in wordnet)
    return tuple(dict.fromkeys(key for key in keys if key in wordnet))
