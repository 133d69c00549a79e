"""The format of the unified evaluation framework (Raganato et al. 2017): sentences in XML, answers beside them.

<sentence id="d000.s000"> <wf lemma="the" pos="DET">The</wf>
<instance id="d000.s000.t000" lemma="art" pos="NOUN">art</instance> … </sentence>            senseval2.data.xml
d000.s000.t000 art%1:09:00::                                                            senseval2.gold.key.txt

sentences = list(read_unified("senseval2.data.xml.xz"))
gold = read_keys("senseval2.gold.key.txt.xz")
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from larvatus.core.errors import DataError
from larvatus.data.text.archives import ARCHIVE_ERRORS
from larvatus.data.text.streams import open_bytes
from larvatus.inference.senses.pos import POS
from larvatus.inference.senses.tagged import Instance, Sentence, Words, lines_of, surface

TAGS: dict[str, POS] = {"NOUN": "n", "VERB": "v", "ADJ": "a", "ADV": "r"}
_BLOCK = 1 << 16


def read_unified(path: str | Path) -> Iterator[Sentence]:
    """The sentences of a `.data.xml` file, packed or not; each with the words that are to be disambiguated."""
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
            raise DataError(f"{name}: the file breaks off: {fault}") from fault
    yield from reader.taken()
    if not reader.seen:
        raise DataError(f"{name} has no <sentence>; a .data.xml file of the unified evaluation framework is wanted")


def read_keys(path: str | Path) -> dict[str, tuple[str, ...]]:
    """`id key [key …]` a line: the answers of a person or of a system."""
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
    """The file of right answers that lies beside a `.data.xml` file."""
    data = Path(path)
    stem, mark, packed = data.name.partition(".data.xml")
    beside = [data.with_name(f"{stem}.gold.key.txt{end}") for end in dict.fromkeys((packed, "", ".xz", ".gz"))]
    for file in beside:
        if mark and file.exists():
            return file
    raise DataError(f"{beside[0]} is not there; lay the answers beside {data.name}, or name them with --gold")


class _Reader:
    """Takes what expat finds; sentences wait in `_done` until they are taken."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen = 0
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.EntityDeclHandler = self._entity
        self._done: list[Sentence] = []
        self._document = ""
        self._words = Words()
        self._ids: set[str] = set()
        self._open: dict[str, str] | None = None
        self._pieces: list[str] = []

    def taken(self) -> list[Sentence]:
        done, self._done = self._done, []
        return done

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "text":
            self._document = attributes.get("id", "")
        elif tag == "sentence":
            self._words = Words()
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

    def _instance(self, attributes: dict[str, str], span: tuple[int, int] | None) -> Instance:
        missing = [name for name in ("id", "lemma", "pos") if not attributes.get(name)]
        if missing or span is None:
            raise self._fault(f"an instance without {', '.join(missing) or 'a word'}")
        if attributes["pos"] not in TAGS:
            raise self._fault(f"an instance has pos {attributes['pos']!r}; there are: {', '.join(TAGS)}")
        if attributes["id"] in self._ids:
            raise self._fault(f"the id {attributes['id']} comes twice")
        self._ids.add(attributes["id"])
        lemma = attributes["lemma"].lower().replace(" ", "_")
        return Instance(*span, ((lemma, TAGS[attributes["pos"]]),), attributes["id"])

    def _entity(self, *_: object) -> None:
        raise self._fault("the file declares entities, which no set of the framework does; they are not expanded")

    def _fault(self, what: str) -> DataError:
        return DataError(f"{self.name}:{self.parser.CurrentLineNumber}: {what}")
