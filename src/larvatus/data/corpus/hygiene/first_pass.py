"""The first pass over a corpus: each document is measured, then it is decided which are left out, and for what.

    measured = Pass(measures, folder).run(documents, resume=True)
    judge(measured, settings, measures).verdicts             # [D] 0: stays; else 1 + the number of the reason

Blocks of documents are measured by any executor; their records go to the disk, part by part, so that a killed pass goes
on after its last part. What must be known of all documents at once (duplicates) is found in the records, never in the
text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from larvatus.core.arrays import Bits32, Bools, Bytes, Ints, Records
from larvatus.core.errors import ArtefactError
from larvatus.data.bulk.executor import Executor
from larvatus.data.bulk.parts import PartsFolder
from larvatus.data.corpus.hygiene.measure import DocumentMeasures, measure_block, record_type
from larvatus.data.corpus.hygiene.overlap import exact_repeats, near_repeats
from larvatus.data.corpus.hygiene.settings import REASONS, HygieneSettings
from larvatus.data.corpus.processes import Processes
from larvatus.data.text.documents import Document

BLOCK_CHARACTERS = 1 << 19
PART_BLOCKS = 32
_FIX = "run the same command again"


class PassProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a pass has come."""

    blocks: int = 0
    documents: int = 0
    text_sha256: str = ""


class DocumentBlock(NamedTuple):
    documents: list[Document]
    text_sha256: str
    """Checksum of the stream so far."""


def blocks(documents: Iterable[Document], size: int) -> Iterator[DocumentBlock]:
    """Whole documents, of about `size` characters together."""
    stream, waiting, characters = TextChecksum(), list[Document](), 0
    for document in documents:
        stream.add(document)
        waiting.append(document)
        characters += len(document.text)
        if characters >= size:
            yield DocumentBlock(waiting, stream.hexdigest())
            waiting, characters = [], 0
    yield DocumentBlock(waiting, stream.hexdigest())  # even empty: it has the checksum of all


class TextChecksum:
    """A checksum of a stream of documents."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, document: Document) -> None:
        head = f"{document.source}\x00{document.line}\x00{document.language}\x00{len(document.text)}\x00"
        self._digest.update(head.encode(errors="surrogatepass"))
        self._digest.update(document.text.encode(errors="surrogatepass"))

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


@dataclass(frozen=True)
class DocumentMeasurements:
    """The records of all documents, on the disk, and what the evaluation sets share with them."""

    parts: tuple[Records, ...]
    text_sha256: str
    hits: Bools

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def column(self, name: str) -> Any:
        """One field of all records, in memory."""
        return np.concatenate([np.ascontiguousarray(part[name]) for part in self.parts])

    def blocks(self) -> Iterator[Bits32]:
        """Signatures (`duplicates.Signatures`)."""
        for part in self.parts:
            yield part["signature"]

    def rows(self, numbers: Ints) -> Bits32:
        ends = np.cumsum([len(part) for part in self.parts])
        owner = np.searchsorted(ends, numbers, side="right")
        rows = np.empty((len(numbers), self.parts[0]["signature"].shape[1]), np.uint32)
        for number in np.unique(owner).tolist():
            chosen = owner == number
            start = int(ends[number]) - len(self.parts[number])
            rows[chosen] = self.parts[number]["signature"][numbers[chosen] - start]
        return rows


@dataclass
class MeasuringPass:
    """A pass under way."""

    measures: DocumentMeasures
    folder: PartsFolder[PassProgress]
    executor: Executor | None = None
    workers: int = 1
    block_characters: int = BLOCK_CHARACTERS
    progress: Callable[[int, int], None] = lambda documents, size: None
    """Called with documents and bytes so far."""
    _hits: Bools = field(init=False)

    def run(self, documents: Iterable[Document], *, resume: bool) -> DocumentMeasurements:
        self._hits = np.zeros(len(self.measures.sets.grams), bool)
        progress = self.folder.open(resume=resume)
        stream = blocks(documents, self.block_characters)
        last = self._skip(stream, progress)
        head = list(islice(stream, 2))
        executor = self.executor or Processes(self.workers if len(head) == 2 and self.workers > 1 else 0)
        checksums: list[str] = []

        def tasks() -> Iterator[list[Document]]:
            for block in chain(head, stream):
                checksums.append(block.text_sha256)
                yield block.documents

        waiting: list[Records] = []
        seen, size = progress.documents, 0
        with executor.pool(lambda: self.measures, measure_block, what="a worker that checks text", fix=_FIX) as pool:
            for number, (records, hits) in enumerate(pool.map(tasks())):
                self._hits[hits] = True
                waiting.append(records)
                seen, size, last = seen + len(records), size + int(records["bytes"].sum()), checksums[number]
                checksums[number] = ""
                if len(waiting) == PART_BLOCKS:
                    progress = self._write(waiting, progress, last)
                self.progress(seen, size)
        if waiting:
            self._write(waiting, progress, last)
        parts = tuple(np.load(path, mmap_mode="r") for path in self.folder.paths())
        parts = parts or (np.zeros(0, record_type(self.measures.permutations)),)
        return DocumentMeasurements(parts, last, self._hits)

    def _skip(self, stream: Iterator[DocumentBlock], progress: PassProgress) -> str:
        """Read past what was measured, and make sure that it is still the same."""
        last = ""
        for block in islice(stream, progress.blocks):
            last = block.text_sha256
        if last != progress.text_sha256:
            raise ArtefactError(f"{self.folder.directory} is of other text; remove it to start again")
        return last

    def _write(self, waiting: list[Records], progress: PassProgress, text_sha256: str) -> PassProgress:
        records = np.concatenate(waiting)
        new = PassProgress(
            blocks=progress.blocks + len(waiting), documents=progress.documents + len(records), text_sha256=text_sha256
        )

        def write(path: Path) -> None:
            with path.open("wb") as file:
                np.save(file, records)

        self.folder.write(write, new, size=records.nbytes)
        waiting.clear()
        return new


class FilterVerdicts(NamedTuple):
    flags: dict[str, Bools]
    """Documents that match each reason: duplicates among those that no other reason of the filter
    leaves out."""
    verdicts: Bytes
    """0: stays; n: left out for reason n − 1."""
    first: Ints
    """Document that an exact or near duplicate repeats; −1 for documents that are not duplicates."""


def judge_documents(
    measured: DocumentMeasurements, settings: HygieneSettings, measures: DocumentMeasures
) -> FilterVerdicts:
    """Which documents are left out. Of several reasons, the first that holds of a document counts."""
    flags = _alone(measured, settings)
    reasons = settings.reasons
    stays = np.ones(len(measured), bool)
    for reason in reasons:
        if reason in flags:
            stays &= ~flags[reason]
    first = np.full(len(measured), -1, np.int64)
    members = np.flatnonzero(stays)  # what goes anyway is no reason for another to go
    repeated = exact_repeats(measured.column("digest")[members])
    first[members] = np.where(repeated >= 0, members[repeated], -1) if len(members) else repeated
    flags["exact"] = first >= 0
    if measures.scheme is not None:
        near = near_repeats(measured, measures.scheme, stays & ~flags["exact"])
        flags["near"] = near >= 0
        first = np.where(near >= 0, near, first)
    verdicts = np.zeros(len(measured), np.uint8)
    for number, reason in reversed(list(enumerate(REASONS, start=1))):
        if reason in reasons and reason in flags:
            verdicts[flags[reason]] = number
    return FilterVerdicts({reason: flags[reason] for reason in REASONS if reason in flags}, verdicts, first)


def _alone(measured: DocumentMeasurements, settings: HygieneSettings) -> dict[str, Bools]:
    """Reasons that concern a document by itself."""
    words, language = measured.column("words"), measured.column("language")
    long = words > settings.most_words if settings.most_words is not None else np.zeros(len(words), bool)
    other = (language != b"") & (language != measured.column("stated"))
    flags = {
        "language": other & (measured.column("confidence") >= settings.confidence),
        "length": (words < settings.least_words) | long,
        "characters": measured.column("letters") < settings.least_letters,
        "encoding": measured.column("damaged") > settings.most_damaged,
    }
    if settings.against:
        flags["overlap"] = measured.column("overlap") > 0
    if settings.word_list is not None:
        flags["words"] = measured.column("listed") > settings.most_listed * np.maximum(1, words)
    return flags
