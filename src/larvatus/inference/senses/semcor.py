"""SemCor (Miller et al. 1994): running text tagged with WordNet senses, in its original SGML-like format.

    <s snum=1>
    <wf cmd=done pos=VB lemma=say wnsn=1 lexsn=2:32:00::>said</wf>
    <punc>.</punc>
    </s>

    for sentence in read_semcor("semcor.tar.xz", wordnet, reading):
        …

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
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from larvatus.core.errors import DataError
from larvatus.data.text.readers import list_whole_folder
from larvatus.data.text.streams import open_bytes
from larvatus.inference.senses.tagged import (
    ReadingCounts,
    SenseInstance,
    SenseSentence,
    SentenceBuilder,
    numbered,
    surface,
)
from larvatus.inference.senses.wordnet import WordNet

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
